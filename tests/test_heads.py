"""The heads as layers: scores, likelihoods, models, precision, bad input."""

import keras
import numpy as np
import pytest
import reference
from conftest import (
    assert_drawn_from,
    compiled,
    gradient_function,
    head_gradients,
    on_table,
    rejects,
    slow_but,
    thorough_but,
    to_numpy,
)
from head_zoo import (
    COUNTS,
    HEADS,
    PER_EXAMPLE,
    TABLE_HEADS,
    D,
    N,
    built,
    data,
    inputs,
    models,
    numpy_nll,
    numpy_scores,
    randomize,
    tables,
)
from small import assert_all_equal, labels_below, saved_and_loaded, spec, training, vectors

import softbench
from softbench import (
    AdaptiveSoftmax,
    AugmentReduce,
    ClassTable,
    FullSoftmax,
    HierarchicalSoftmax,
    NegativeSampling,
    NoiseContrastive,
    OneVsEach,
    RowAdagrad,
    SampledHinge,
    SampledSoftmax,
)
from softbench.targets import Targets

# The others differ from one of these by their loss or their updates alone, which have their tests.
FITTED = ("sampled rows", "nce binary", "hierarchical rows")
MORE = (
    "full chunked",
    "adaptive counts",
    "negative",
    "one vs each rows",
    "augment reduce rows",
    "hinge rows",
)


@pytest.mark.parametrize("name", slow_but(HEADS, *FITTED, thorough=MORE))
def test_functional_model(name, tmp_path):
    """Trains, evaluates to the exact likelihood, predicts the scores, saves and loads the same."""
    head = HEADS[name]()
    model, predictor, encoder = models(head)
    randomize(head, 0.1)
    x, y = data(100)
    model.compile(keras.optimizers.Adagrad(0.3))
    model.fit(inputs(head, x, y), batch_size=25, epochs=8, verbose=0)
    hidden = to_numpy(encoder(x))
    if isinstance(head, SampledHinge):  # its scores rank, they are not log-probabilities
        learned = np.mean(numpy_scores(head, hidden, x).argmax(-1) == y) > 0.6
    else:
        learned = numpy_nll(head, hidden, y, x).mean() < 0.7 * np.log(N)
    assert learned, "it has learned less than this easy problem allows"
    x, y = data(30, seed=1)
    hidden = to_numpy(encoder(x))
    nll = numpy_nll(head, hidden, y, x)
    # Batches of 16 and 14: Keras weights the loss of a batch by its size.
    arrays = inputs(head, x, y)
    np.testing.assert_allclose(
        model.evaluate(arrays, batch_size=16, verbose=0), nll.mean(), rtol=1e-4
    )
    np.testing.assert_allclose(model.predict(arrays, verbose=0), nll, rtol=1e-4, atol=1e-5)
    scores = predictor.predict(x, verbose=0)
    np.testing.assert_allclose(scores, numpy_scores(head, hidden, x), rtol=1e-4, atol=1e-4)
    loaded = saved_and_loaded(model, tmp_path)
    other = loaded.layers[-1]
    assert type(other) is type(head) and other.get_config() == head.get_config()
    assert_all_equal(other.variables, head.variables)
    np.testing.assert_array_equal(
        loaded.predict(arrays, verbose=0), model.predict(arrays, verbose=0)
    )


OPTIONS = {
    "plain": {},
    "no bias": {"use_bias": False},
    "normalize": {"normalize": True, "temperature": 0.09},
    "absolute": {"absolute": True, "temperature": 2.0},
}


@pytest.mark.parametrize("options", OPTIONS)
def test_scores_likelihood_and_leading_dims(options):
    """hidden (2, 3, d): scores (2, 3, n), likelihoods (2, 3), top k (2, 3, k)."""
    head = built(on_table(SampledSoftmax, N, "uniform", 5, **OPTIONS[options]))
    hidden, labels = vectors(2, 3, D), labels_below(N, 2, 3).astype("int64")
    expected = numpy_scores(head, hidden.reshape(6, D))

    def everything(hidden, labels):
        training = head(hidden, labels, training=True)
        return head(hidden), head(hidden, labels), training, head.top_k(hidden, 4)

    scores, nll, training, (best, ids) = compiled(everything, head)(hidden, labels)
    np.testing.assert_allclose(to_numpy(scores).reshape(6, N), expected, rtol=1e-5, atol=1e-5)
    exact = reference.negative_log_likelihood(expected, labels.reshape(6))
    assert nll.shape == (2, 3) and training.shape == (2, 3)
    np.testing.assert_allclose(to_numpy(nll).reshape(6), exact, rtol=1e-4, atol=1e-5)
    best_expected, ids_expected = reference.top_k(expected, 4)
    np.testing.assert_array_equal(to_numpy(ids).reshape(6, 4), ids_expected)
    np.testing.assert_allclose(to_numpy(best).reshape(6, 4), best_expected, rtol=1e-5, atol=1e-5)
    assert to_numpy(scores).dtype == to_numpy(nll).dtype == to_numpy(training).dtype == np.float32


@pytest.mark.parametrize("name", ["full", "sampled", "hierarchical"])
def test_symbolic_shapes_of_sequences(name):
    """Of a length that is not known: scores (B, T, n), losses (B, T)."""
    head = HEADS[name]()
    hidden, labels = keras.Input((None, D)), keras.Input((None,), dtype="int32")
    assert head(hidden).shape == (None, None, N)
    assert head(hidden, labels).shape == (None, None)
    for table in tables(head):
        assert table.compute_output_shape((2, 3, D)) == (2, 3, table.units)


@pytest.mark.parametrize("corrected", [True, False])
def test_a_corrected_true_logit_takes_draws_from_all_classes(corrected):
    """The label too, at its rate; without the correction an example draws from the others."""
    head = built(SampledSoftmax(N, PER_EXAMPLE, 4000, correct_true_logit=corrected, seed=3))
    labels = np.array([N - 1, 2], "int32")
    targets = Targets(keras.ops.convert_to_tensor(labels))
    ((draw,),) = head.draw(keras.ops.zeros((2, D)), targets)
    q = np.tile(reference.unigram_distribution(COUNTS, 1.0), (2, 1))
    if corrected:
        expected = np.log(4000 * q[[0, 1], labels])
        np.testing.assert_allclose(to_numpy(draw.true_log_expected_count), expected, rtol=1e-5)
    else:
        q[[0, 1], labels] = 0.0
        q = q / q.sum(-1, keepdims=True)
    for ids, own in zip(to_numpy(draw.ids), q, strict=True):
        assert_drawn_from(ids, own)


@pytest.mark.parametrize("scale", [1.0, 1e-4, 1e-12])
def test_short_vectors_are_normalized_like_all(scale):
    """No floor below which a norm is not divided by; in each of the three ways to score."""
    head = built(FullSoftmax(N, use_bias=False, normalize=True), scale)
    hidden = np.random.default_rng(6).normal(0, scale, (3, D)).astype("float32")
    expected = numpy_scores(head, hidden)
    ids = np.array([[0, 1], [2, 3], [4, N - 1]], "int32")
    for found in (head(hidden), head.table.scores(hidden, keras.ops.arange(N)[None])):
        np.testing.assert_allclose(to_numpy(found), expected, rtol=1e-4, atol=1e-6)
    found = to_numpy(head.table.scores(hidden, keras.ops.convert_to_tensor(ids)))
    np.testing.assert_allclose(found, np.take_along_axis(expected, ids, -1), rtol=1e-4, atol=1e-6)
    rows = head.table.rows(keras.ops.convert_to_tensor(ids[:, 0]))
    found = to_numpy(head.table.paired_logits(keras.ops.convert_to_tensor(hidden), rows))
    np.testing.assert_allclose(found, expected[np.arange(3), ids[:, 0]], rtol=1e-4, atol=1e-6)


BFLOAT_HEADS = {
    "full chunked": (FullSoftmax, {"class_chunk": 64}),
    "normalized": (FullSoftmax, {"normalize": True, "temperature": 0.1}),
    "sampled": (SampledSoftmax, {"sampler": "uniform", "num_sampled": 50, "seed": 1}),
    "exp": (SampledSoftmax, {"sampler": "exp", "num_sampled": 50, "seed": 1}),
    "hierarchical": (HierarchicalSoftmax, {}),
    "adaptive": (AdaptiveSoftmax, {"cutoffs": [100], "tail_capacity": 0.5}),
}


@pytest.mark.parametrize("name", thorough_but(BFLOAT_HEADS, "full chunked", "sampled", "adaptive"))
def test_bfloat16_stays_within_two_percent(name):
    cls, options = BFLOAT_HEADS[name]
    hidden, labels, results = vectors(32, 64, seed=5), labels_below(500, 32, seed=5), []
    for dtype in ("float32", "mixed_bfloat16"):
        head = built(cls(500, **options, dtype=dtype), scale=0.2, width=64)
        assert tables(head)[0].kernel.dtype == "float32"

        def both(hidden, labels, head=head):
            return head(hidden, labels, training=True), head(hidden, labels)

        losses = [to_numpy(x) for x in compiled(both, head)(hidden, labels)]
        assert all(x.dtype == np.float32 for x in losses)
        results.append([x.astype(float).mean() for x in losses])
    np.testing.assert_allclose(results[1], results[0], rtol=0.02)
    assert results[0][1] != results[1][1], "the second head did not compute in bfloat16"


@pytest.mark.parametrize("name", HEADS)
def test_config_round_trip(name):
    """Of the head and of its table, whose options the head does not repeat."""
    options = {"use_bias": False}
    if name in TABLE_HEADS:
        options |= {"normalize": True, "temperature": 0.5, "absolute": True}
    if not name.startswith("hierarchical"):
        options |= {"kernel_initializer": "he_normal"}
    head = HEADS[name](**options, name="own")
    config = head.get_config()
    kept = config["table"]["config"] if "table" in config else config
    initializer = options.pop("kernel_initializer", "glorot_uniform")
    assert keras.initializers.get(kept["kernel_initializer"]).get_config() == (
        keras.initializers.get(initializer).get_config()
    )
    assert {key: kept[key] for key in options} == options
    assert "table" not in config or not set(options) & set(config)
    assert type(head).from_config(config).get_config() == config
    serialized = keras.saving.serialize_keras_object(head)
    assert keras.saving.deserialize_keras_object(serialized).get_config() == config


# Label smoothing.


@pytest.mark.parametrize(
    "make",
    [
        lambda **o: FullSoftmax(N, **o),
        lambda **o: FullSoftmax(N, class_chunk=4, normalize=True, temperature=0.3, **o),
        lambda **o: SampledSoftmax(N, spec("unigram", counts=[1] * N, unique=True), N, **o),
    ],
    ids=["full", "chunked", "all classes drawn"],
)
def test_label_smoothing(make):
    head = built(make(label_smoothing=0.2))
    hidden, labels = vectors(6, D), data(6)[1]
    expected = reference.smoothed_loss(numpy_scores(head, hidden), labels, 0.2)
    np.testing.assert_allclose(to_numpy(training(head)(hidden, labels)), expected, rtol=1e-4)
    nll = reference.negative_log_likelihood(numpy_scores(head, hidden), labels)
    np.testing.assert_allclose(to_numpy(head(hidden, labels)), nll, rtol=1e-4)


def test_the_mean_logit_is_estimated_without_bias():
    """Of draws with replacement, with their own frequencies: the mean of many estimates."""
    rng = np.random.default_rng(2)
    logits, q = rng.normal(size=N).astype("float32"), np.array(COUNTS[1:]) / sum(COUNTS[1:])
    draws = 1 + rng.choice(N - 1, size=(20_000, 5), p=q)  # class 0 is the label
    count = np.log(5 * q[draws - 1]).astype("float32")
    true = np.full(20_000, logits[0], "float32")
    found = to_numpy(softbench.losses.mean_logit(true, logits[draws], None, count, N))
    error = found.std() / np.sqrt(len(found))
    assert abs(found.mean() - logits.mean()) < 4 * error


@pytest.mark.parametrize(
    ("units", "given", "sizes"), [(37, None, (6, 3)), (37, 5, (6, 5)), (9, None, (6, 1))]
)
def test_draws_for_the_regularizer(units, given, sizes):
    """As many as said; else a tenth of the classes, and one at least."""
    options = {"regularization": 0.1, "regularization_samples": given}
    head = built(NoiseContrastive(units, "uniform", num_sampled=6, **options))
    draws = head.draw(keras.ops.zeros((2, D)), Targets(keras.ops.zeros((2,), "int32")))
    assert tuple(draw.ids.shape[-1] for (draw,) in draws) == sizes


def test_streamed_full_softmax_in_half_precision():
    """Scores are float32 whatever the table is: its biases too are added as float32."""
    head = built(FullSoftmax(N, class_chunk=4, dtype="bfloat16"))
    hidden, labels = vectors(5, D), labels_below(N, 5)
    rows, bias = (
        to_numpy(keras.ops.cast(v, "float32")) for v in (head.table.kernel, head.table.bias)
    )
    expected = reference.negative_log_likelihood(hidden @ rows.T + bias, labels)
    loss, gradients = head_gradients(head, hidden, labels)
    assert loss == pytest.approx(expected.mean(), rel=2e-2)
    to_bias = (
        reference.softmax(hidden @ rows.T + bias).mean(0) - np.bincount(labels, minlength=N) / 5
    )
    np.testing.assert_allclose(gradients[-1].astype("float32"), to_bias, atol=1e-2)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "mixed_bfloat16"])
def test_the_likelihood_does_not_depend_on_the_chunks(dtype, monkeypatch):
    """Labels of sure predictions too: their score is that of the sum, whatever it was rounded to.

    A second computation in bfloat16 may differ by 1 / 256 of scores of 30 and more.
    """
    head = built(SampledSoftmax(N, "uniform", num_sampled=4, temperature=0.01, dtype=dtype))
    hidden = vectors(5, D)
    labels = to_numpy(head.top_k(hidden, 1)[1])[:, 0].astype("int32")
    whole = to_numpy(head(hidden, labels))
    monkeypatch.setattr(softbench.partition, "class_chunk", lambda *_: 4)
    parts = to_numpy(head(hidden, labels))
    np.testing.assert_allclose(parts, whole, rtol=1e-5, atol=1e-5)
    assert (parts >= 0).all()


@pytest.mark.parametrize("chunk", [4, N])
def test_the_exact_likelihood_has_its_gradient_in_chunks_too(chunk, monkeypatch):
    """Of the mean, softmax minus one-hot times the rows; the last chunk repeats classes."""
    monkeypatch.setattr(softbench.partition, "class_chunk", lambda *_: chunk)
    head = built(SampledSoftmax(N, "uniform", num_sampled=4))
    hidden, labels = vectors(5, D), labels_below(N, 5)
    kernel = head.table.kernel

    def loss(hidden, labels):
        return keras.ops.mean(head(hidden, labels))

    _, (to_hidden, to_kernel) = gradient_function(loss, head, [kernel])(hidden, labels)
    error = reference.softmax(numpy_scores(head, hidden)) - np.eye(N)[labels]
    np.testing.assert_allclose(to_hidden, error @ to_numpy(kernel) / 5, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(to_kernel, error.T @ hidden / 5, rtol=1e-4, atol=1e-6)


def test_the_default_sampler_suits_the_scores():
    assert type(SampledSoftmax(N, normalize=True).sampler).__name__ == "RandomFourierKernel"
    head = SampledSoftmax(N, num_sampled=6, seed=1)
    assert type(head.sampler).__name__ == "Codebook"
    again = SampledSoftmax.from_config(head.get_config())
    assert type(again.sampler).__name__ == "Codebook"


def test_what_a_sampler_needs_is_named():
    message = rejects("counts", OneVsEach, N, "unigram")
    assert "`sampler` 'unigram' needs `counts`" in message and "class_name" in message


# Bad input.

NAN = float("nan")
BAD_TEMPERATURES = (0, -0.1, NAN, float("inf"), "1", None)
ALL = spec("unigram", counts=[1] * N, unique=True)
EXP = spec("exp", share_draws=True)
# Argument, class, and what it is called with.
BAD = [
    *(("units", FullSoftmax, [x], {}) for x in (0, -3, 2.5, "10", None)),
    *(("temperature", FullSoftmax, [N], {"temperature": x}) for x in BAD_TEMPERATURES),
    *(("class_chunk", FullSoftmax, [N], {"class_chunk": x}) for x in (0, -1, 2.5)),
    *(("max_valid", FullSoftmax, [N], {"max_valid": x}) for x in (0, -1, 0.0, 1.5, True, "4", NAN)),
    *(
        ("label_smoothing", FullSoftmax, [N], {"label_smoothing": x})
        for x in (-0.1, 1.0, NAN, "0.1")
    ),
    ("label_smoothing", FullSoftmax, [N], {"label_smoothing": 0.1, "multi_label": "mean"}),
    ("ignore_index", FullSoftmax, [N], {"ignore_index": "-1"}),
    ("regularization", FullSoftmax, [N], {"regularization": -1.0}),
    ("multi_label", FullSoftmax, [N], {"multi_label": "max"}),
    ("multi_label", AugmentReduce, [N], {"num_examples": 10, "multi_label": "mean"}),
    ("multi_label", HierarchicalSoftmax, [N], {"multi_label": "mean"}),
    ("multi_label", AdaptiveSoftmax, [N, [4]], {"multi_label": "mean"}),
    *(
        ("num_sampled", cls, [N, "uniform", x], {})
        for cls in (SampledSoftmax, NoiseContrastive)
        for x in (0, -3, 2.5, True, "10", None)
    ),
    *(
        ("label_smoothing", SampledSoftmax, [N, ALL, N], {"label_smoothing": 0.1, **x})
        for x in ({"correct_true_logit": True}, {"remove_accidental_hits": False})
    ),
    ("objective", NoiseContrastive, [N, "uniform"], {"objective": "bianry"}),
    ("objective", NoiseContrastive, [N], {"objective": "bianry"}),
    ("regularization", NoiseContrastive, [N, "uniform"], {"regularization": -1.0}),
    ("regularization_samples", NoiseContrastive, [N, "uniform"], {"regularization_samples": 0}),
    (
        "learn_log_partition",
        NoiseContrastive,
        [N, "uniform"],
        {"objective": "ranking", "learn_log_partition": True},
    ),
    ("sampler", NoiseContrastive, [N], {}),  # unigram, without its counts
    ("counts", NoiseContrastive, [N], {}),
    ("regularization", NegativeSampling, [N, "uniform"], {"regularization": -1.0}),
    ("num_sampled", NegativeSampling, [N, "uniform"], {"num_sampled": 0}),
    ("sampler", NegativeSampling, [N, "in_batch"], {}),
    ("sampler", NegativeSampling, [N, EXP], {}),
    ("objective", NegativeSampling, [N, "uniform"], {"objective": "bce"}),
    ("t", NegativeSampling, [N, "uniform"], {"objective": "gbce", "t": 1.5}),
    (
        "regularization",
        NegativeSampling,
        [N, "uniform"],
        {"objective": "gbce", "regularization": 0.1},
    ),
    ("margin", SampledHinge, [N], {"margin": 0.0}),
    ("num_examples", AugmentReduce, [N], {"num_examples": 0}),
    *(
        ("step_power", AugmentReduce, [N], {"num_examples": 10, "step_power": x})
        for x in (0.5, 1.1, "1")
    ),
    *(
        ("leaf_order", HierarchicalSoftmax, [3, x], {})
        for x in ([0, 1], [0, 1, 1], [0, 1, 4], [-1, 0, 1], [0.0, 1.0, 2.0], [[0], [1], [2]])
    ),
    *(("cutoffs", AdaptiveSoftmax, [N, x], {}) for x in ([], [3, 3], [4, 2], [N], [0, 3], [2.5])),
    ("div_value", AdaptiveSoftmax, [N, [3]], {"div_value": 0.5}),
    ("counts", AdaptiveSoftmax, [N, [3]], {"counts": [1, 2]}),
    *(
        ("tail_capacity", AdaptiveSoftmax, [N, [3]], {"tail_capacity": x})
        for x in (0.0, 1.5, -1.0, "1")
    ),
]


@pytest.mark.parametrize("argument, cls, arguments, options", BAD)
def test_bad_arguments(argument, cls, arguments, options):
    rejects(argument, cls, *arguments, **options)


def test_bad_tables():
    rejects("table", FullSoftmax, table=ClassTable(N, row_optimizer=RowAdagrad(0.1)))


HIDDEN = np.zeros((3, D), "float32")
LABELS = np.array([0, 1, 2], "int32")
BAD_LABELS = [
    [0, 1, N],
    [-1, 1, 2],
    LABELS.astype("float32"),
    LABELS.astype(bool),
    np.eye(N)[:3].astype("int32"),
    LABELS[:2],
    LABELS[None],
    LABELS[0],
]
BAD_CALLS = [
    *(("labels", lambda head, x=x: head(HIDDEN, np.array(x))) for x in BAD_LABELS),
    *(("labels", lambda head, x=x: head(HIDDEN, np.array(x), training=True)) for x in BAD_LABELS),
    ("labels", lambda head: head(keras.Input((D,)), keras.Input(()))),
    *(
        ("hidden", lambda head, shape=shape, call=call: call(head, np.zeros(shape, "float32")))
        for shape in ((D,), (3, D + 1), (3, 2, D - 1))
        for call in (
            lambda head, x: head(x),
            lambda head, x: head(x, np.zeros(x.shape[:-1], "int32")),
            lambda head, x: head.top_k(x, 2),
        )
    ),
    *(("hidden", lambda head, x=x: head(keras.Input(x))) for x in ((D + 1,), (2, D - 1))),
    ("hidden", lambda head: FullSoftmax(N)(np.zeros(D, "float32"))),
    ("hidden", lambda head: FullSoftmax(N)(keras.Input((None,)))),
    *(("k", lambda head, k=k: head.top_k(HIDDEN, k)) for k in (0, -1, N + 1, 2.5, "3")),
]


@pytest.mark.parametrize("argument, call", BAD_CALLS)
def test_bad_calls(argument, call):
    rejects(argument, call, built(SampledSoftmax(N, "uniform", 5)))


def test_units_may_be_a_numpy_integer():
    """`labels.max() + 1` is one."""
    assert FullSoftmax(LABELS.max() + 1).units == 3

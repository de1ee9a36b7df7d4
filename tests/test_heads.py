"""The heads as layers: scores, likelihoods, models, saving, precision, bad input."""

import keras
import numpy as np
import pytest
import reference
from conftest import (
    BACKEND,
    assert_drawn_from,
    compiled,
    head_gradients,
    on_table,
    rejects,
    slow_but,
    to_numpy,
)
from head_zoo import (
    COUNTS,
    HEADS,
    PER_EXAMPLE,
    TABLE_HEADS,
    WIDTH,
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

from softbench import (
    Classifier,
    ClassTable,
    FullSoftmax,
    NoiseContrastive,
    RowAdagrad,
    SampledHinge,
    SampledSoftmax,
)
from softbench.targets import Targets

# The others differ from one of these by their loss or their updates alone, which have their tests.
FITTED = ("full chunked", "sampled rows", "nce binary", "hierarchical rows", "adaptive counts")
MORE = (
    "nce ranking rows",
    "negative",
    "one vs each rows",
    "augment reduce rows",
    "hinge rows",
    "adaptive",
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
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    other = loaded.layers[-1]
    assert type(other) is type(head) and other.get_config() == head.get_config()
    for mine, its in zip(head.variables, other.variables, strict=True):
        np.testing.assert_array_equal(to_numpy(its), to_numpy(mine))
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
    rng = np.random.default_rng(1)
    hidden = rng.normal(size=(2, 3, D)).astype("float32")
    labels = rng.integers(0, N, (2, 3)).astype("int64")
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


@pytest.mark.parametrize("name", ["sampled", "sampled rows", "hierarchical rows"])
def test_row_updates_are_compiled_by_xla_on_jax_alone(name):
    """TensorFlow's in-place updates of rows are not for XLA."""
    assert HEADS[name]().supports_jit == ("rows" not in name or BACKEND == "jax")


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


@pytest.mark.parametrize("training", [True, False])
def test_sample_weight(training):
    """Losses are multiplied by their weights; the added loss is sum(w l) / sum(w)."""
    head = built(FullSoftmax(N))
    rng = np.random.default_rng(2)
    hidden, labels = rng.normal(size=(6, D)).astype("float32"), rng.integers(0, N, 6)
    weight = np.array([1.0, 0.0, 2.5, 1.0, 0.0, 0.25], "float32")
    nll = numpy_nll(head, hidden, labels)
    losses = head(hidden, labels, sample_weight=weight, training=training)
    np.testing.assert_allclose(to_numpy(losses), nll * weight, rtol=1e-5)
    np.testing.assert_allclose(
        float(to_numpy(head.losses[-1])), (nll * weight).sum() / weight.sum(), rtol=1e-5
    )
    head(hidden, labels, sample_weight=0 * weight, training=training)
    assert float(to_numpy(head.losses[-1])) == 0.0


@pytest.mark.parametrize("k", [1, 4, N])
def test_top_k_puts_the_lower_id_first_among_ties(k):
    """Small integers, so that ties are exact."""
    head = built(FullSoftmax(N, use_bias=False), width=2)
    rng = np.random.default_rng(3)
    head.table.kernel.assign(rng.integers(-1, 2, (N, 2)))
    hidden = rng.integers(-1, 2, (8, 2)).astype("float32")
    best, ids = head.top_k(hidden, k)
    expected = reference.top_k(numpy_scores(head, hidden), k)
    np.testing.assert_array_equal(to_numpy(best), expected[0])
    np.testing.assert_array_equal(to_numpy(ids), expected[1])


def test_more_classes_than_one_pass_holds():
    """n = 150,001 is streamed in three chunks: top k with ties, and the exact likelihood."""
    n = 150_001
    head = FullSoftmax(n)
    head.build((None, 2))
    rng = np.random.default_rng(4)
    head.table.kernel.assign(rng.integers(-3, 4, (n, 2)))
    bias = rng.integers(-1, 2, n).astype("float32")
    bias[[65_535, 65_536, 131_071, 131_072, n - 1]] = 30.0  # the edges of the chunks
    head.table.bias.assign(bias)
    hidden = rng.integers(-2, 3, (4, 2)).astype("float32")
    labels = np.array([0, 65_536, n - 1, 70_000], "int32")

    def everything(hidden, labels):
        return head.top_k(hidden, 9), head(hidden, labels)

    (best, ids), nll = compiled(everything, head)(hidden, labels)
    scores = numpy_scores(head, hidden)
    expected = reference.top_k(scores, 9)
    np.testing.assert_array_equal(to_numpy(best), expected[0])
    np.testing.assert_array_equal(to_numpy(ids), expected[1])
    exact = reference.negative_log_likelihood(scores, labels)
    np.testing.assert_allclose(to_numpy(nll), exact, rtol=1e-5)


BFLOAT_HEADS = {
    "full": lambda dtype: FullSoftmax(500, dtype=dtype),
    "full chunked": lambda dtype: FullSoftmax(500, class_chunk=64, dtype=dtype),
    "normalized": lambda dtype: FullSoftmax(500, normalize=True, temperature=0.1, dtype=dtype),
    "sampled": lambda dtype: SampledSoftmax(500, "uniform", 50, seed=1, dtype=dtype),
    "exp": lambda dtype: SampledSoftmax(500, "exp", 50, seed=1, dtype=dtype),
    "nce": lambda dtype: NoiseContrastive(500, "uniform", 50, seed=1, dtype=dtype),
}


@pytest.mark.parametrize("name", BFLOAT_HEADS)
def test_bfloat16_stays_within_two_percent(name):
    rng = np.random.default_rng(5)
    hidden = rng.normal(size=(32, 64)).astype("float32")
    labels = rng.integers(0, 500, 32).astype("int32")
    results = []
    for dtype in ("float32", "mixed_bfloat16"):
        head = built(BFLOAT_HEADS[name](dtype), scale=0.25, width=64)
        assert head.table.kernel.dtype == "float32"

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


# Bad input.


@pytest.fixture(scope="module")
def head():
    return built(SampledSoftmax(N, "uniform", 5))


HIDDEN = np.zeros((3, D), "float32")
LABELS = np.array([0, 1, 2], "int32")


@pytest.mark.parametrize("labels", [[0, 1, N], [-1, 1, 2]])
@pytest.mark.parametrize("training", [True, False])
def test_labels_out_of_range(head, labels, training):
    rejects("labels", head, HIDDEN, np.array(labels), training=training)


@pytest.mark.parametrize(
    "labels",
    [LABELS.astype("float32"), LABELS.astype(bool), LABELS[:2], LABELS[None], LABELS[0]],
)
def test_labels_of_wrong_type_or_shape(head, labels):
    rejects("labels", head, HIDDEN, labels)


def test_labels_of_a_model_must_be_integers(head):
    rejects("labels", head, keras.Input((D,)), keras.Input(()))


@pytest.mark.parametrize("shape", [(D,), (3, D + 1), (3, 2, D - 1)])
def test_hidden_of_wrong_shape(head, shape):
    rejects("hidden", head, np.zeros(shape, "float32"))
    rejects("hidden", head, np.zeros(shape, "float32"), np.zeros(shape[:-1], "int32"))
    rejects("hidden", head.top_k, np.zeros(shape, "float32"), 2)


@pytest.mark.parametrize("shape", [(D + 1,), (2, D - 1)])
def test_symbolic_hidden_of_wrong_shape(head, shape):
    rejects("hidden", head, keras.Input(shape))


def test_first_hidden_of_wrong_rank():
    rejects("hidden", FullSoftmax(N), np.zeros(D, "float32"))
    rejects("hidden", FullSoftmax(N), keras.Input((None,)))


@pytest.mark.parametrize("k", [0, -1, N + 1, 2.5, "3"])
def test_k_out_of_range(head, k):
    rejects("k", head.top_k, HIDDEN, k)


@pytest.mark.parametrize("value", [0, -3, 2.5, True, "10", None])
def test_num_sampled(value):
    rejects("num_sampled", SampledSoftmax, N, "uniform", value)
    rejects("num_sampled", NoiseContrastive, N, "uniform", num_sampled=value)


@pytest.mark.parametrize("value", [0, -3, 2.5, "10", None])
def test_units(value):
    rejects("units", FullSoftmax, value)


def test_units_may_be_a_numpy_integer():
    """`labels.max() + 1` is one."""
    assert FullSoftmax(LABELS.max() + 1).units == 3


@pytest.mark.parametrize("value", [0, -0.1, float("nan"), float("inf"), "1", None])
def test_temperature(value):
    rejects("temperature", FullSoftmax, N, temperature=value)


@pytest.mark.parametrize("value", [0, -1, 2.5])
def test_class_chunk(value):
    rejects("class_chunk", FullSoftmax, N, class_chunk=value)


def test_row_optimizer_of_the_full_softmax():
    rejects("table", FullSoftmax, table=ClassTable(N, row_optimizer=RowAdagrad(0.1)))


@pytest.mark.parametrize(
    ("units", "given", "sizes"), [(37, None, (6, 3)), (37, 5, (6, 5)), (9, None, (6, 1))]
)
def test_draws_for_the_regularizer(units, given, sizes):
    """As many as said; else a tenth of the classes, and one at least."""
    options = {"regularization": 0.1, "regularization_samples": given}
    head = built(NoiseContrastive(units, "uniform", num_sampled=6, **options))
    draws = head.draw(keras.ops.zeros((2, D)), Targets(keras.ops.zeros((2,), "int32")))
    assert tuple(draw.ids.shape[-1] for (draw,) in draws) == sizes


def test_noise_contrastive_options():
    rejects("objective", NoiseContrastive, N, "uniform", objective="bianry")
    rejects("regularization", NoiseContrastive, N, "uniform", regularization=-1.0)
    rejects("regularization", FullSoftmax, N, regularization=-1.0)
    rejects("regularization_samples", NoiseContrastive, N, "uniform", regularization_samples=0)
    options = {"objective": "ranking", "learn_log_partition": True}
    rejects("learn_log_partition", NoiseContrastive, N, "uniform", **options)
    rejects("sampler", NoiseContrastive, N)  # unigram, without its counts
    rejects("counts", NoiseContrastive, N)
    rejects("objective", NoiseContrastive, N, objective="bianry")


@pytest.mark.parametrize("name", ["full", "full chunked", "sampled", "nce binary"])
def test_labels_out_of_range_are_nan_in_a_compiled_step(name):
    """Their values cannot be looked at there; a wrong loss must not pass for a right one."""
    own = built(HEADS[name]())
    labels = np.array([0, N, -1], "int32")

    def both(hidden, labels):
        return own(hidden, labels, training=True), own(hidden, labels)

    for losses in compiled(both, own)(HIDDEN + 1, labels):
        np.testing.assert_array_equal(np.isnan(to_numpy(losses)), [False, True, True])


def test_labels_out_of_range_give_a_nan_loss_in_fit():
    head = HEADS["sampled rows"]()
    model, *_ = models(head)
    model.compile("sgd")
    x, y = data(8)
    y[3] = N
    assert np.isnan(model.fit([x, y], batch_size=8, verbose=0).history["loss"][0])
    assert np.all(np.isfinite(to_numpy(head.table.kernel)))


# The same for data sets that yield (x, y).


def make_classifier(**options):
    encoder = keras.Sequential([keras.Input((WIDTH,)), keras.layers.Dense(D)])
    return Classifier(encoder, HEADS["sampled rows"](), **options)


@pytest.mark.parametrize("weighted", [False, True])
def test_classifier(weighted, tmp_path):
    """Loss, perplexity and precision@k against NumPy, before and after saving."""
    model = make_classifier()
    model.compile(keras.optimizers.Adagrad(0.3))
    x, y = data(100)
    before = model.evaluate(x, y, verbose=0, return_dict=True)
    history = model.fit(x, y, batch_size=25, epochs=6, verbose=0).history
    assert np.all(np.isfinite(history["loss"]))
    x, y = data(30, seed=1)
    weight = np.random.default_rng(1).integers(0, 3, 30).astype("float32") if weighted else None
    results = model.evaluate(x, y, batch_size=8, sample_weight=weight, verbose=0, return_dict=True)
    assert results["loss"] < before["loss"]
    hidden = to_numpy(model.encoder(x))
    nll = numpy_nll(model.head, hidden, y)
    w = np.ones(30) if weight is None else weight
    mean = (w * nll).sum() / w.sum()
    np.testing.assert_allclose(results["loss"], mean, rtol=1e-4)
    np.testing.assert_allclose(results["perplexity"], np.exp(mean), rtol=1e-4)
    ids = reference.top_k(numpy_scores(model.head, hidden), 5)[1]
    for k in (1, 3, 5):
        hits = (ids[:, :k] == y[:, None]).any(-1) / k
        expected = (w * hits).sum() / w.sum()
        np.testing.assert_allclose(results[f"precision_at_{k}"], expected, rtol=1e-5)
    scores = model.predict(x, verbose=0)
    np.testing.assert_allclose(scores, numpy_scores(model.head, hidden), rtol=1e-4, atol=1e-4)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded.predict(x, verbose=0), scores)


def test_classifier_checks_its_labels():
    model = make_classifier()
    model.compile("sgd")
    x, y = data(8)
    rejects("labels", model.fit, x, y + N, verbose=0)
    rejects("labels", model.fit, x, y.astype("float32"), verbose=0)
    rejects("labels", model.evaluate, x, y - N, verbose=0)
    rejects("y", model.fit, x, verbose=0)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "mixed_bfloat16"])
def test_streamed_full_softmax_in_half_precision(dtype):
    """Scores are float32 whatever the table is: its biases too are added as float32."""
    head = built(FullSoftmax(N, class_chunk=4, dtype=dtype))
    rng = np.random.default_rng(3)
    hidden, labels = rng.normal(size=(5, D)).astype("float32"), rng.integers(0, N, 5)
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

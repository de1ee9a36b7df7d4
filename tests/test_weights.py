"""Weights of examples: one of weight 0 is not there."""

import contextlib

import keras
import numpy as np
import pytest
import reference
from conftest import BACKEND, compiled, count_traces, rejects, slow_but, thorough_but, to_numpy
from head_zoo import HEADS, WIDTH, D, N, built, numpy_nll, takes_inputs
from small import assert_all_close, classifier, spec, training, values

from softbench import (
    AugmentReduce,
    Classifier,
    NegativeSampling,
    RowAdam,
    SampledSoftmax,
    metrics,
)
from softbench.targets import Targets

RNG = np.random.default_rng(6)
HIDDEN = RNG.normal(size=(6, D)).astype("float32")
FEATURES = RNG.normal(size=(6, WIDTH)).astype("float32")
LABELS = np.array([3, 7, 1, 0, 5, 9], "int32")
WEIGHT = np.array([1, 0, 2, 1, 0, 0], "float32")
ABSENT = WEIGHT == 0
MORE = ("full", "nce ranking rows", "augment reduce rows", "hinge rows")
QUICK = ("full chunked", "sampled", "sampled rows", "negative conditional", "adaptive counts")
NEVER = spec("unigram", counts=[0] + [1] * (N - 1))


def model_of(head):
    """A model of hidden vectors, labels, weights, features and ids, compiled to train."""
    hidden, weight, features = keras.Input((D,)), keras.Input(()), keras.Input((WIDTH,))
    labels, ids = keras.Input((), dtype="int32"), keras.Input((), dtype="int32")
    side = {"sampler_inputs": features} if takes_inputs(head) else {}
    if isinstance(head, AugmentReduce):
        side["example_ids"] = ids
    inputs = [hidden, labels, weight, features, ids]
    model = keras.Model(inputs, head(hidden, labels, sample_weight=weight, **side))
    model.compile(keras.optimizers.SGD(0.1))
    return model


@pytest.mark.parametrize("name", slow_but(HEADS, *QUICK, thorough=MORE))
def test_what_an_example_of_weight_0_holds_changes_nothing(name):
    """Its label out of range, its id one of the others', its vectors NaN: the same step.

    It is compiled once, by XLA; TensorFlow leaves out what updates rows in place.
    """
    model = model_of(built(HEADS[name]()))
    in_place = "rows" in name or name in ("negative conditional", "augment reduce")
    left_out = BACKEND == "tensorflow" and in_place
    with pytest.warns(match="support `jit_compile") if left_out else contextlib.nullcontext():
        model.compile(keras.optimizers.SGD(0.1), jit_compile=True)
    assert model.jit_compile != left_out
    traces = count_traces(model)
    start, after = values(model.variables), []
    ids = np.arange(6, dtype="int32")
    for bad in (False, True):
        for variable, value in zip(model.variables, start, strict=True):
            variable.assign(value)
        column = ABSENT[:, None] & bad
        batch = [
            np.where(column, np.nan, HIDDEN).astype("float32"),
            np.where(ABSENT & bad, -1, LABELS),
            WEIGHT,
            np.where(column, np.nan, FEATURES).astype("float32"),
            np.where(ABSENT & bad, 0, ids),
        ]
        loss = model.train_on_batch(batch)
        after.append([loss, *values(model.variables)])
    assert len(traces) == 1
    assert all(np.all(np.isfinite(a)) for a in after[1])
    assert_all_close(*after, 1e-6, 1e-7)


def test_an_example_of_weight_0_moves_no_row_of_lazy_adam():
    head = built(SampledSoftmax(N, "uniform", 2, row_optimizer=RowAdam(0.3), seed=1))
    train = training(head)
    train(RNG.normal(size=(N, D)).astype("float32"), np.arange(N, dtype="int32"), np.ones(N, "f"))
    before = to_numpy(head.table.kernel)
    weight = np.array([0, 0, 1, 0, 0, 0], "float32")
    train(HIDDEN, LABELS, weight)
    moved = np.any(to_numpy(head.table.kernel) != before, axis=1)
    assert moved[LABELS[2]] and moved.sum() <= 3  # its label and two draws


@pytest.mark.parametrize("training", [False, True])
def test_labels_of_weight_0_may_be_anything_eagerly_too(training):
    head = built(SampledSoftmax(N, "uniform", 2))
    labels = np.where(ABSENT, -1, LABELS)
    losses = to_numpy(head(HIDDEN, labels, sample_weight=WEIGHT, training=training))
    np.testing.assert_array_equal(losses == 0, ABSENT)
    added = float(to_numpy(head.losses[-1]))
    assert added == pytest.approx(losses.sum() / WEIGHT.sum(), rel=1e-5)
    if not training:
        expected = numpy_nll(head, HIDDEN, LABELS) * WEIGHT
        np.testing.assert_allclose(losses, expected, rtol=1e-5)
    head(HIDDEN, labels, sample_weight=0 * WEIGHT, training=training)
    assert float(to_numpy(head.losses[-1])) == 0.0
    ones = np.ones(6, "float32")
    rejects("labels", head, HIDDEN, labels, sample_weight=ones, training=training)


def test_evaluate_leaves_out_an_infinite_loss_of_weight_0():
    """The noise never draws class 0, which has probability 0."""
    head = NegativeSampling(N, NEVER)
    model = classifier(head, D, top_k=(1,))
    labels = np.where(ABSENT, 0, LABELS + 1).astype("int32")
    options = {"sample_weight": WEIGHT, "verbose": 0, "return_dict": True}
    results = model.evaluate(HIDDEN, labels, **options)
    scores = reference.scores(HIDDEN, to_numpy(head.table.kernel))
    with np.errstate(divide="ignore"):
        scores = scores + np.log(np.arange(N) > 0)
    nll = reference.negative_log_likelihood(scores[~ABSENT], labels[~ABSENT])
    expected = np.average(nll, weights=WEIGHT[~ABSENT])
    assert results["loss"] == pytest.approx(expected, rel=1e-5)
    assert results["perplexity"] == pytest.approx(np.exp(expected), rel=1e-5)


def test_fit_takes_padding_without_labels():
    model = classifier(SampledSoftmax(N, "uniform", 2), D, D)
    labels = np.where(ABSENT, -1, LABELS)
    loss = model.fit(HIDDEN, labels, sample_weight=WEIGHT, verbose=0).history["loss"][0]
    assert np.isfinite(loss)
    results = model.evaluate(HIDDEN, labels, sample_weight=WEIGHT, verbose=0, return_dict=True)
    assert np.all(np.isfinite(list(results.values())))


def test_augment_reduce_padding_with_the_id_of_an_example():
    """The padded examples' id is that of a real one, whose eta stays."""
    ids = np.array([0, 1, 0, 0], "int32")
    weight = np.array([1, 1, 0, 0], "float32")
    head = built(AugmentReduce(N, num_sampled=N, num_examples=8, seed=1))
    rows = HIDDEN[:4], LABELS[:4], weight

    def train(hidden, labels, weight, ids):
        return head(hidden, labels, sample_weight=weight, example_ids=ids, training=True)

    losses = to_numpy(compiled(train, head)(*rows, ids))
    # At a first visit eta is the estimate itself, where the loss is log eta.
    np.testing.assert_allclose(to_numpy(head.log_eta)[:2], losses[:2], rtol=1e-5)
    np.testing.assert_array_equal(to_numpy(head.visits), [1, 1, 0, 0, 0, 0, 0, 0])
    before = to_numpy(head.log_eta)
    compiled(train, head)(*rows[:2], 0 * weight, ids)  # none is there
    np.testing.assert_array_equal(to_numpy(head.log_eta), before)


SHARED = spec("uniform", share_draws=True)
MIXED = spec("mixed", first="in_batch", second=SHARED)


@pytest.mark.parametrize("counts", [None, list(range(1, N + 1))])
def test_in_batch_negatives_are_of_the_examples_that_are_there(counts):
    """With m >= B all are chosen: the losses are those of the batch without the others."""
    sampler = spec("in_batch", counts=counts)
    there = ~ABSENT
    results = []
    for rows in (slice(None), there):
        head = built(SampledSoftmax(N, sampler, 8))
        train = training(head)
        results.append(to_numpy(train(HIDDEN[rows], LABELS[rows], WEIGHT[rows])))
        if counts is None:
            seen = to_numpy(head.sampler.seen)
            np.testing.assert_array_equal(seen, np.bincount(LABELS[there], minlength=N))
            assert int(to_numpy(head.sampler.seen_total)) == there.sum()
    np.testing.assert_allclose(results[0][there], results[1], rtol=1e-5)
    np.testing.assert_array_equal(results[0][ABSENT], 0)


def present_batch():
    arrays = HIDDEN, LABELS.astype("int32"), (~ABSENT).astype("float32")
    hidden, labels, weight = map(keras.ops.convert_to_tensor, arrays)
    return hidden, Targets(labels, weight)


def test_in_batch_chooses_those_that_are_there_first():
    head = built(SampledSoftmax(N, "in_batch", 2))
    for _ in range(5):
        ((draw,),) = head.draw(*present_batch())
        assert set(to_numpy(draw.ids)[0]) <= set(LABELS[~ABSENT])
        assert np.all(np.isfinite(to_numpy(draw.log_expected_count)))


def test_a_mixture_with_in_batch_negatives():
    head = built(SampledSoftmax(N, MIXED, 12))
    hidden, targets = present_batch()
    head.sampler.observe(head.table, targets)
    ((draw,),) = head.draw(hidden, targets)
    count, ids = to_numpy(draw.log_expected_count)[0], to_numpy(draw.ids)[0]
    seen = np.bincount(LABELS[~ABSENT], minlength=N)
    p = (seen + 1) / (seen.sum() + N)
    expected = np.log(3 * 2 / 3 * p + 6 / N)[ids]  # all 3 that are there, 2 of them others
    expected[3:6] = -np.inf
    np.testing.assert_allclose(count, expected, rtol=1e-5)
    np.testing.assert_array_equal(to_numpy(head.sampler.first.seen), seen)


@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf])
def test_weights_must_be_finite_and_not_negative(bad):
    weight = np.array([1, bad, 1, 1, 1, 1], "float32")
    head = built(SampledSoftmax(N, "uniform", 2))
    model, scores = classifier(head, D, D), np.zeros((6, N), "float32")
    calls = [
        lambda: head(HIDDEN, LABELS, sample_weight=weight),
        lambda: head(HIDDEN, LABELS, sample_weight=weight, training=True),
        lambda: model.fit(HIDDEN, LABELS, sample_weight=weight, verbose=0),
        lambda: model.evaluate(HIDDEN, LABELS, sample_weight=weight, verbose=0),
        lambda: metrics.ScorePerplexity().update_state(LABELS, scores, weight),
        lambda: metrics.PrecisionAtK(1).update_state(LABELS, scores, weight),
        lambda: metrics.Perplexity().update_state(np.ones(6, "float32"), weight),
    ]
    for call in calls:
        assert "must be finite and not negative" in rejects("sample_weight", call)


@pytest.mark.parametrize("shape", [(5,), (1,), (6, 1)])
def test_weights_must_have_the_shape_of_labels(shape):
    head = built(SampledSoftmax(N, "uniform", 2))
    rejects("sample_weight", head, HIDDEN, LABELS, sample_weight=np.ones(shape, "float32"))


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("compile_it", [False, True])
def test_a_score_that_is_nan_is_never_a_hit(dense, compile_it):
    """Of row 0 one wrong score, of row 1 the label's own, of row 2 all."""
    scores = np.array([[0, 3, 2, 1], [0, 3, 2, 1], [0, 3, 2, 1]], "float32")
    scores[0, 0], scores[1, 1], scores[2] = np.nan, np.nan, np.nan
    labels = np.array([1, 1, 0], "int32")
    y_true = np.eye(4, dtype="float32")[labels] if dense else labels
    for k, expected in ((1, 1 / 3), (2, 1 / 6), (4, 1 / 12)):  # row 0 alone has a hit
        metric = metrics.PrecisionAtK(k, dense)
        update = compiled(metric.update_state, metric) if compile_it else metric.update_state
        update(y_true, scores)
        assert float(metric.result()) == pytest.approx(expected, abs=1e-6)


def test_a_score_that_is_nan_makes_the_perplexity_nan():
    scores = np.zeros((2, 4), "float32")
    for entry in ((0, 1), (0, 3)):  # the label's own, another
        broken = scores.copy()
        broken[entry] = np.nan
        for weight, expected in ((None, np.nan), (np.array([0, 1], "float32"), 4.0)):
            metric = metrics.ScorePerplexity()
            metric.update_state(np.array([1, 2]), broken, weight)
            metric.update_state(np.array([1, 2]), scores)
            np.testing.assert_allclose(float(metric.result()), expected, rtol=1e-5)


# Keras' masks of sequences.

IDS = np.array([[3, 1, 0, 2], [2, 0, 0, 0]], "int32")  # 0 is padding
STEPS = np.array([[3, 7, -1, 0], [5, N, -1, 40]], "int32")  # labels; anything where padded


def sequence_model(name, how):
    """ids, labels, weights (B, T) -> losses; with Keras' mask of the padding, or said otherwise."""
    ids, labels = (keras.Input((4,), dtype="int32") for _ in range(2))
    weight = keras.Input((4,))
    table = np.random.default_rng(3).normal(size=(4, D))
    embedding = keras.layers.Embedding(
        4, D, mask_zero=how == "mask", embeddings_initializer=lambda shape, dtype: table
    )
    head = HEADS[name](**({"ignore_index": -1} if how == "label" else {}))
    side = {"sample_weight": weight} if how == "weight" else {}
    model = keras.Model([ids, labels, weight], head(embedding(ids), labels, **side))
    model.compile(keras.optimizers.SGD(0.1))
    return model


@pytest.mark.parametrize(
    "name",
    thorough_but(
        ["full", "sampled rows", "nce ranking rows", "hierarchical"], "sampled rows", "hierarchical"
    ),
)
def test_a_step_that_is_not_there_is_of_weight_0(name):
    """By Keras' mask, or by `ignore_index`: the same loss and the same update."""
    after = []
    for how in ("weight", "mask", "label"):
        keras.utils.set_random_seed(4)
        model = sequence_model(name, how)
        labels = np.where(IDS == 0, -1, STEPS) if how == "label" else STEPS
        batch = [IDS, labels, (IDS != 0).astype("float32")]
        loss = model.train_on_batch(batch)
        after.append([loss, model.evaluate(batch, verbose=0), *values(model.variables)])
    assert all(np.all(np.isfinite(a)) for a in after[0])
    for other in after[1:]:
        assert_all_close(other, after[0], 1e-6, 1e-7)


def test_eager_calls_take_the_mask_too():
    hidden = keras.layers.Embedding(4, D, mask_zero=True)(IDS)
    head = HEADS["full"]()
    losses = to_numpy(head(hidden, STEPS))
    assert np.all(losses[IDS == 0] == 0) and np.all(losses[IDS != 0] > 0)
    weight = np.full(IDS.shape, 2.0, "float32")
    twice = to_numpy(head(hidden, STEPS, sample_weight=weight))
    np.testing.assert_allclose(twice, 2 * losses, rtol=1e-6)
    labels = np.where(IDS != 0, STEPS, 0)
    given = to_numpy(head(keras.ops.copy(hidden), labels, hidden_mask=IDS != 0))
    np.testing.assert_allclose(given, losses, rtol=1e-6)
    rejects("labels", head, keras.ops.copy(hidden), labels, hidden_mask=IDS[:, :2] != 0)


def test_metrics_of_a_classifier_leave_masked_steps_out():
    encoder = keras.Sequential([keras.layers.Embedding(4, D, mask_zero=True)])
    model = Classifier(encoder, HEADS["full"](), top_k=(3,))
    model.compile("sgd")
    found = model.evaluate(IDS, np.where(IDS != 0, STEPS, 0), return_dict=True, verbose=0)
    there = IDS != 0
    scores, labels = model.predict(IDS, verbose=0)[there].astype(float), STEPS[there]
    nll = reference.negative_log_likelihood(scores, labels)
    hits = [label in np.argsort(-row)[:3] for row, label in zip(scores, labels, strict=True)]
    np.testing.assert_allclose(found["perplexity"], np.exp(nll.mean()), rtol=1e-5)
    np.testing.assert_allclose(found["precision_at_3"], np.mean(hits) / 3, rtol=1e-6)

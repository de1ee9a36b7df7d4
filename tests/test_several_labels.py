"""Several labels for each example: losses, weights, updates and metrics, against NumPy."""

import keras
import numpy as np
import pytest
import reference
from conftest import FixedSampler, compiled, head_gradients, mean_loss_gradients, rejects, to_numpy
from head_zoo import COUNTS, D, N, built, numpy_nll, numpy_scores, of
from loss_cases import OBJECTIVES
from small import assert_all_close, classifier, saved_and_loaded, spec, training

from softbench import (
    FullSoftmax,
    NegativeSampling,
    NoiseContrastive,
    OneVsEach,
    RowAdam,
    RowSGD,
    SampledHinge,
    SampledSoftmax,
)
from softbench.samplers import Samples

RNG = np.random.default_rng(2)
HIDDEN = RNG.normal(size=(5, D)).astype("float32")
LABELS = np.array([[3, 7, -1], [0, -1, -1], [5, 2, 9], [-1, -1, -1], [4, 4, 10]], "int32")
WEIGHT = np.array([[1, 2, 5], [0.5, 1, 1], [0, 3, 1], [1, 1, 1], [1, 1, 2]], "float32")
# Every class is drawn once: the losses are not random.
ALL = spec("unigram", counts=[1] * N, unique=True)


def every_class_once(name):
    """An objective's loss of one label and the others (1, k), each drawn once: noise of 1 / k."""

    def loss(true, others):
        size = others.shape[-1]
        return OBJECTIVES[name].expected(
            true, others, np.full(1, 1 / size), np.full(size, 1 / size)
        )

    return loss


softmax = every_class_once("sampled_softmax")
# Head, its objective, and whether the labels are among the noise too.
HEADS = {
    "full": (of(FullSoftmax), "sampled_softmax", False),
    "full chunked": (of(FullSoftmax, class_chunk=4), "sampled_softmax", False),
    "sampled": (of(SampledSoftmax, ALL, N), "sampled_softmax", False),
    "corrected": (
        of(SampledSoftmax, ALL, N, correct_true_logit=True),
        "sampled_softmax corrected",
        False,
    ),
    "one vs each": (of(OneVsEach, ALL, N), "one_vs_each", False),
    "hinge": (of(SampledHinge, ALL, N, margin=0.25), "hinge margin", False),
    "nce binary": (of(NoiseContrastive, ALL, N, objective="binary"), "nce_binary", True),
    "nce ranking": (of(NoiseContrastive, ALL, N, objective="ranking"), "nce_ranking", True),
    "negative": (
        of(NegativeSampling, ALL, N, regularization=0.1),
        "negative_sampling regularised",
        True,
    ),
}
# A label that is given twice counts twice in the mean, and once among the classes.


def table_scores(head):
    return reference.scores(HIDDEN, *(to_numpy(v) for v in (head.table.kernel, head.table.bias)))


@pytest.mark.parametrize("name", HEADS)
def test_losses_of_several_labels(name):
    """Mean and sum, with weights and without, compiled and not; without labels it is 0."""
    make, objective, noise = HEADS[name]
    loss = every_class_once(objective)
    for reduction, weight in (("mean", WEIGHT), ("sum", None)):
        head = built(make(multi_label=reduction))
        scores = table_scores(head)
        expected = reference.of_several(
            loss, scores, LABELS, weight, total=reduction == "sum", noise=noise
        )
        given = [] if weight is None else [weight]
        run = lambda *a, head=head: head(*a, training=True)  # noqa: E731
        run = compiled(run, head) if given else run
        found = to_numpy(run(HIDDEN, LABELS, *given))
        np.testing.assert_allclose(found, expected, rtol=2e-4, atol=1e-5)
        assert found[3] == 0.0


def test_the_exact_likelihood_is_the_mean_over_the_labels():
    for head in (SampledSoftmax(N, ALL, N, multi_label="sum"), FullSoftmax(N, multi_label="mean")):
        head = built(head)
        every = [numpy_nll(head, HIDDEN, np.full(5, y)) for y in range(N)]
        expected = [
            np.mean([every[y][b] for y in row if y >= 0]) if row.max() >= 0 else 0.0
            for b, row in enumerate(LABELS)
        ]
        np.testing.assert_allclose(to_numpy(head(HIDDEN, LABELS)), expected, rtol=1e-5)
        mean = np.sum(expected) / 4
        assert float(to_numpy(head.losses[-1])) == pytest.approx(mean, rel=1e-5)


def test_weights_of_examples_multiply_the_losses():
    head = built(FullSoftmax(N, multi_label="mean"))
    weight = np.array([2, 0, 1, 1, 0.5], "float32")
    plain = to_numpy(head(HIDDEN, LABELS, training=True))
    labels = LABELS.copy()
    labels[1] = N + 5  # of weight 0: anything
    found = to_numpy(head(HIDDEN, labels, sample_weight=weight, training=True))
    np.testing.assert_allclose(found, plain * weight, rtol=1e-5)
    total = 2 + 1 + 0.5  # example 3 has no label
    assert float(to_numpy(head.losses[-1])) == pytest.approx(found.sum() / total, rel=1e-5)
    mask = np.array([True, False, True, True, True])
    masked = to_numpy(head(HIDDEN, labels, training=True, hidden_mask=mask))
    np.testing.assert_allclose(masked, np.where(mask, plain, 0), rtol=1e-5)


def test_sampled_classes_and_counts():
    """Draws that hit a label of their example do not count, whichever label it is."""
    ids = RNG.integers(0, N, (5, 6)).astype("int32")
    ids[:, 0], ids[0, 1], ids[2, 2] = LABELS[:, 0] % N, 7, 9
    count = RNG.uniform(0.2, 3, (5, 6)).astype("float32")
    tensors = [keras.ops.convert_to_tensor(x) for x in (ids, np.log(count))]
    head = built(SampledSoftmax(N, FixedSampler(Samples(*tensors, None)), 6, multi_label="mean"))
    scores = table_scores(head)
    expected = np.zeros(5)
    for b in (0, 1, 2, 4):
        own = LABELS[b][LABELS[b] >= 0]
        sampled = np.where(np.isin(ids[b], own), -np.inf, scores[b, ids[b]])[None]
        losses = [reference.sampled_softmax(scores[b, [y]], sampled, None, count[b]) for y in own]
        expected[b] = np.mean(losses)
    found = to_numpy(head(HIDDEN, LABELS, training=True))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("share", [True, False])
def test_every_label_is_corrected_by_its_own_count(share):
    """Binary NCE with noise of unequal frequencies."""
    noise = spec("unigram", counts=COUNTS, share_draws=share)
    head = built(NoiseContrastive(N, noise, 4, multi_label="mean", seed=5))
    seed = head.sampler.seed_generator.state
    before = to_numpy(seed)
    ids = to_numpy(head.sampler.sample(head.table, HIDDEN, 4).ids)
    seed.assign(before)
    scores, q = table_scores(head), reference.unigram_distribution(COUNTS, 1.0)
    ids = np.broadcast_to(ids, (5, 4))
    expected = [
        np.mean(
            [
                reference.nce_binary(scores[b, [y]], scores[b, ids[b]][None], q[[y]], q[ids[b]])
                for y in LABELS[b]
                if y >= 0
            ]
            or [0.0]
        )
        for b in range(5)
    ]
    found = to_numpy(head(HIDDEN, LABELS, training=True))
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_gradients():
    """Of hidden by differences in float64; of the rows, what a row optimizer subtracts."""
    full, dense = (
        built(make(multi_label="mean")) for make, *_ in (HEADS["full"], HEADS["sampled"])
    )
    rows = built(SampledSoftmax(N, ALL, N, multi_label="mean", row_optimizer=RowSGD(0.5)))
    kernel, bias = (to_numpy(v).astype(float) for v in (full.table.kernel, full.table.bias))

    def mean(hidden):
        scores = reference.scores(hidden, kernel, bias)
        return reference.of_several(softmax, scores, LABELS).sum() / 4

    step = 1e-5 * np.eye(HIDDEN.size).reshape(-1, *HIDDEN.shape)
    expected = [(mean(HIDDEN + s) - mean(HIDDEN - s)) / 2e-5 for s in step]
    own = head_gradients(full, HIDDEN, LABELS)[1]
    np.testing.assert_allclose(5 / 4 * own[0].ravel(), expected, rtol=1e-3, atol=1e-5)
    other = head_gradients(dense, HIDDEN, LABELS)[1]
    assert_all_close(own, other, 1e-3, 1e-6)
    rows(HIDDEN, LABELS, training=True)  # the mean of four losses
    moved = (kernel - to_numpy(rows.table.kernel)) / 0.5
    np.testing.assert_allclose(moved, 5 / 4 * own[1], rtol=1e-3, atol=1e-5)


# Labels that hold nearly all of the mass.

CHUNKS = pytest.mark.parametrize("chunk", [None, 4])


@CHUNKS
def test_a_label_far_above_all_classes_hides_no_other(chunk):
    """Once, twice, and with padding: the loss and gradient of label 1, the worst of all classes."""
    labels = np.array([[0, 1, -1], [1, 0, 0], [1, 5, 0]], "int32")
    head = FullSoftmax(N, multi_label="mean", class_chunk=chunk)
    head.build((None, N))
    head.table.kernel.assign(np.eye(N))
    function = mean_loss_gradients(head)
    for gap in (2, 8, 14, 17, 25):
        scores = np.tile(np.linspace(-1, 1, N).astype("float32"), (3, 1))
        scores[:, 0] += gap + 2
        loss, (to_hidden, to_kernel, to_bias) = function(scores, labels)
        scores = scores.astype(float)
        mean = reference.of_several(softmax, scores, labels).mean()
        assert float(loss) == pytest.approx(mean, 1e-5)
        expected = reference.of_several_gradient(scores, labels) / 3
        np.testing.assert_allclose(to_hidden, expected, rtol=2e-5, atol=1e-14)
        np.testing.assert_allclose(to_kernel, expected.T @ scores, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(to_bias, expected.sum(0), rtol=1e-4, atol=1e-6)


@CHUNKS
def test_log_partition_of_several_labels_counts_each_class_once(chunk):
    """The term of `regularization`, with a label that is given twice."""
    plain, own = (
        built(FullSoftmax(N, multi_label="mean", class_chunk=chunk, regularization=alpha))
        for alpha in (0.0, 0.1)
    )
    found, without = (to_numpy(head(HIDDEN, LABELS, training=True)) for head in (own, plain))
    expected = 0.1 * reference.logsumexp(table_scores(own)) ** 2
    np.testing.assert_allclose((found - without)[LABELS[:, 0] >= 0], expected[[0, 1, 2, 4]], 1e-4)


@CHUNKS
def test_labels_that_are_all_classes_have_no_loss(chunk):
    head = FullSoftmax(5, multi_label="sum", class_chunk=chunk)
    head.build((None, D))
    labels = np.tile(np.arange(5, dtype="int32"), (5, 1))
    loss, gradients = head_gradients(head, HIDDEN, labels)
    assert float(loss) == 0
    for gradient in gradients:
        np.testing.assert_array_equal(gradient, np.zeros_like(gradient))


def half(x):
    """Rounded to bfloat16, float64."""
    return to_numpy(keras.ops.cast(keras.ops.cast(x, "bfloat16"), "float32")).astype(float)


@pytest.mark.parametrize(("mass", "chunk"), [(0.85, 256), (0.99, None)])
def test_gradient_in_half_precision_with_labels_that_hold_most_of_the_mass(mass, chunk):
    """n = 1000; the three labels of an example have as much of the mass each."""
    rng, n, batch, dim = np.random.default_rng(0), 1000, 8, 16
    hidden, kernel = half(rng.normal(size=(batch, dim))), rng.normal(size=(n, dim))
    labels = np.arange(3 * batch, dtype="int32").reshape(batch, 3)
    for h, own in zip(hidden, labels, strict=True):
        others = reference.logsumexp(h @ np.delete(kernel, own, axis=0).T)
        wanted = others + np.log(mass / (1 - mass) / 3)
        kernel[own] += np.outer(wanted - kernel[own] @ h, h) / (h @ h)
    kernel = half(kernel)
    scores = hidden @ kernel.T
    held = np.take_along_axis(reference.softmax(scores), labels, axis=-1).sum(-1)
    np.testing.assert_allclose(held, mass, atol=0.05)
    head = FullSoftmax(
        n, use_bias=False, multi_label="mean", class_chunk=chunk, dtype="mixed_bfloat16"
    )
    head.build((None, dim))
    head.table.kernel.assign(kernel)
    loss, (to_hidden, to_kernel) = head_gradients(head, hidden.astype("float32"), labels)
    to_scores = reference.of_several_gradient(scores, labels) / batch
    expected = reference.of_several(softmax, scores, labels).mean()
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    for found, own in ((to_hidden, to_scores @ kernel), (to_kernel, to_scores.T @ hidden)):
        assert np.linalg.norm(found - own) < 0.01 * np.linalg.norm(own)


def test_padding_moves_no_row():
    head = built(SampledSoftmax(N, "uniform", 1, multi_label="mean", row_optimizer=RowAdam(0.3)))
    train = training(head)
    for start in (0, 5, 6):  # all rows have moments
        train(HIDDEN, np.stack([np.arange(start, start + 5)] * 3, 1).astype("int32"))
    before = to_numpy(head.table.kernel)
    labels = np.full((5, 3), -1, "int32")
    labels[2, 1:] = 6, 8
    train(HIDDEN, labels)
    moved = np.any(to_numpy(head.table.kernel) != before, axis=1)
    assert moved[[6, 8]].all() and moved.sum() <= 3


def test_a_label_out_of_range_is_nan_in_a_compiled_step():
    head = built(SampledSoftmax(N, ALL, N, multi_label="mean", row_optimizer=RowSGD(0.1)))
    labels = LABELS.copy()
    labels[0, 1] = N
    rejects("labels", head, HIDDEN, labels)
    losses = to_numpy(training(head)(HIDDEN, labels))
    np.testing.assert_array_equal(np.isnan(losses), [True, False, False, False, False])
    assert np.all(np.isfinite(to_numpy(head.table.kernel)))


def test_in_batch_draws_one_label_of_each_example():
    head = built(SampledSoftmax(N, "in_batch", 5, multi_label="mean"))
    losses = to_numpy(training(head)(HIDDEN, LABELS))
    assert np.all(np.isfinite(losses)) and losses[3] == 0
    seen = to_numpy(head.sampler.seen)
    assert seen.sum() == 4 and set(np.flatnonzero(seen)) <= set(LABELS[LABELS >= 0])


def test_classifier_of_several_labels(tmp_path):
    """Perplexity and precision over all labels; saved and loaded."""
    head = SampledSoftmax(N, ALL, N, multi_label="mean")
    model = classifier(head, D, D, "adam", top_k=(2,))
    model.fit(HIDDEN, LABELS, verbose=0)
    labels = np.where(LABELS == 4, [4, -1, 10], LABELS)  # each label once
    found = model.evaluate(HIDDEN, labels, verbose=0, return_dict=True)
    scores = numpy_scores(model.head, to_numpy(model.encoder(HIDDEN)))
    nll = -np.log(reference.softmax(scores))
    own = [nll[b, y[y >= 0]].mean() for b, y in enumerate(labels) if y.max() >= 0]
    assert found["perplexity"] == pytest.approx(np.exp(np.mean(own)), rel=1e-4)
    top = reference.top_k(scores, 2)[1]
    hits = [np.isin(top[b], y[y >= 0]).mean() for b, y in enumerate(labels) if y.max() >= 0]
    assert found["precision_at_2"] == pytest.approx(np.mean(hits), abs=1e-6)
    loaded = saved_and_loaded(model, tmp_path)
    assert loaded.head.multi_label == "mean"
    again = loaded.evaluate(HIDDEN, labels, verbose=0, return_dict=True)
    assert again == pytest.approx(found, rel=1e-6)


def test_errors():
    head = built(FullSoftmax(N, multi_label="mean"))
    for labels in (LABELS[:, 0], LABELS[:4], LABELS.astype("float32"), LABELS[:, None]):
        rejects("labels", head, HIDDEN, labels)
    rejects("labels", head, keras.Input((D,)), keras.Input((), dtype="int32"))
    rejects("sample_weight", head, HIDDEN, LABELS, sample_weight=np.ones((5, 2), "float32"))

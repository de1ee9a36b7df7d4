"""gBCE and SCE, the losses of recommenders, against NumPy float64."""

import numpy as np
import pytest
import reference
from conftest import compiled, head_gradients, rejects, to_numpy
from head_zoo import built
from keras import ops

import softbench
from softbench import BucketedSoftmax, FullSoftmax, NegativeSampling, losses
from softbench.targets import Targets

N, D, B = 13, 4, 6


def test_gbce(rng):
    true, sampled = rng.normal(size=B), rng.normal(size=(B, 9))
    sampled[1, 3] = -np.inf
    for t in (0.0, 0.75, 1.0):
        beta = losses.gbce_beta(41, 9, t)
        arguments = [ops.convert_to_tensor(a.astype("float32")) for a in (true, sampled)]
        found = to_numpy(losses.gbce(*arguments, None, ops.zeros((9,)), beta))
        np.testing.assert_allclose(found, reference.gbce(true, sampled, 41, t), rtol=1e-5)
    assert losses.gbce_beta(41, 9, 0.0) == 1.0
    assert losses.gbce_beta(41, 9, 1.0) == pytest.approx(9 / 40)
    assert losses.gbce_beta(11, 25, 0.75) == 1.0  # more draws than classes


def test_calibrated_gbce_has_its_minimum_at_the_probability():
    """t = 1, draws from the others: at sigmoid(s_i) = p_i the expected gradient is 0, by hand."""
    p, m = np.array([0.6, 0.25, 0.1, 0.05]), 2
    n, beta = len(p), losses.gbce_beta(4, m, 1.0)
    to_true = -beta * (1 - p)  # of -beta log sigmoid(s_i), and below of -log(1 - sigmoid(s_i))
    np.testing.assert_allclose(p * to_true + (1 - p) * m / (n - 1) * p, 0.0, atol=1e-12)


def test_gbce_head(rng):
    head = built(NegativeSampling(N, "uniform", num_sampled=5, objective="gbce", t=0.5))
    again = NegativeSampling.from_config(head.get_config())
    assert (again.objective_name, again.t, again.num_sampled) == ("gbce", 0.5, 5)
    hidden, labels = rng.normal(size=(B, D)).astype("float32"), rng.integers(0, N, B)
    targets = Targets(ops.cast(ops.convert_to_tensor(labels), "int32"))
    ((draw,),) = head.draw(ops.convert_to_tensor(hidden), targets)
    head.draw = lambda *_: [[draw]]
    kernel, bias = to_numpy(head.table.kernel), to_numpy(head.table.bias)
    scores = reference.scores(hidden, kernel, bias)
    ids = np.broadcast_to(to_numpy(draw.ids), (B, 5))
    sampled = np.take_along_axis(scores, ids, axis=1)
    expected = reference.gbce(scores[np.arange(B), labels], sampled, N, 0.5)
    np.testing.assert_allclose(to_numpy(head(hidden, labels, training=True)), expected, rtol=1e-4)
    rejects("objective", NegativeSampling, N, "uniform", objective="bce")
    rejects("t", NegativeSampling, N, "uniform", objective="gbce", t=1.5)
    rejects("regularization", NegativeSampling, N, "uniform", regularization=0.1, objective="gbce")


@pytest.mark.parametrize("num_buckets", [3])
def test_buckets_that_hold_everything_are_the_full_softmax(num_buckets, rng):
    """Loss and gradients, whichever of the equal losses of the buckets counts."""
    options = dict(num_buckets=num_buckets, bucket_examples=B + 5, bucket_classes=N + 5)
    head, full = built(BucketedSoftmax(N, **options)), built(FullSoftmax(N))
    hidden, labels = rng.normal(size=(B, D)).astype("float32"), rng.integers(0, N, B)
    expected, gradients = head_gradients(full, hidden, labels)
    found, own = head_gradients(head, hidden, labels)
    assert found == pytest.approx(expected, rel=1e-5)
    for a, b in zip(own, gradients, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    weight = np.array([1, 0, 1, 1, 0, 1], "float32")
    nll = to_numpy(full(hidden, labels, sample_weight=weight))
    found = to_numpy(head(hidden, labels, sample_weight=weight, training=True))
    np.testing.assert_allclose(found, nll, rtol=1e-5, atol=1e-6)


def test_losses_of_buckets(rng):
    """Given buckets: the largest of an example's losses, 0 where it has none, B / covered."""
    examples = np.array([[0, 2], [2, 3]], "int32")
    classes = np.array([[1, 4, 5], [0, 2, 7]], "int32")
    head = built(BucketedSoftmax(N))
    head._buckets = lambda *_: (ops.convert_to_tensor(examples), ops.convert_to_tensor(classes))
    hidden, labels = rng.normal(size=(5, D)).astype("float32"), np.array([4, 3, 2, 9, 1])
    scores = reference.scores(hidden, to_numpy(head.table.kernel), to_numpy(head.table.bias))
    expected = np.zeros(5)
    for own, ids in zip(examples, classes, strict=True):
        for example in own:
            compared = [labels[example], *(i for i in ids if i != labels[example])]
            loss = reference.logsumexp(scores[example, compared]) - scores[example, compared[0]]
            expected[example] = max(expected[example], loss)
    found = to_numpy(head(hidden, labels, training=True))
    np.testing.assert_allclose(found, expected * 5 / 3, rtol=1e-4, atol=1e-6)


def test_buckets_are_of_large_scores_and_differ_by_step(rng):
    """With one direction and d = 1, the examples and classes are those of an end of the line."""
    sizes = {"num_buckets": 1, "bucket_examples": 2, "bucket_classes": 3}
    head = built(BucketedSoftmax(N, **sizes, use_bias=False), width=1)
    kernel = to_numpy(head.table.kernel)[:, 0]
    hidden = rng.normal(size=(B, 1)).astype("float32")
    ends = set()
    for _ in range(8):
        found = head._buckets(ops.convert_to_tensor(hidden), None)
        examples, classes = (set(to_numpy(part)[0].tolist()) for part in found)
        signs = [s for s in (1, -1) if examples == set(np.argsort(-s * hidden[:, 0])[:2].tolist())]
        assert len(signs) == 1
        assert classes == set(np.argsort(-signs[0] * kernel, kind="stable")[:3].tolist())
        ends.add(signs[0])
    assert ends == {1, -1}


def test_buckets_with_row_updates(rng):
    """One step of row SGD is the step on the gradient of the full softmax."""
    rows = softbench.RowSGD(0.5)
    options = dict(num_buckets=2, bucket_examples=B, bucket_classes=N, row_optimizer=rows)
    head, full = built(BucketedSoftmax(N, **options)), built(FullSoftmax(N))
    hidden, labels = rng.normal(size=(B, D)).astype("float32"), rng.integers(0, N, B)
    _, (_, kernel, bias) = head_gradients(full, hidden, labels)
    expected = to_numpy(head.table.kernel) - 0.5 * kernel, to_numpy(head.table.bias) - 0.5 * bias
    compiled(lambda h, y: head(h, y, training=True), head)(hidden, labels)
    for variable, value in zip((head.table.kernel, head.table.bias), expected, strict=True):
        np.testing.assert_allclose(to_numpy(variable), value, rtol=1e-4, atol=1e-5)

"""Scalable cross-entropy, a loss over buckets, against NumPy float64."""

import numpy as np
import pytest
import reference
from conftest import head_gradients, to_numpy
from head_zoo import built
from keras import ops
from small import assert_all_close, training

import softbench
from softbench import BucketedSoftmax, FullSoftmax

N, D, B = 13, 4, 6


def test_buckets_that_hold_everything_are_the_full_softmax(rng):
    """Loss and gradients, whichever of the equal losses of the buckets counts."""
    options = dict(num_buckets=3, bucket_examples=B + 5, bucket_classes=N + 5)
    head, full = built(BucketedSoftmax(N, **options)), built(FullSoftmax(N))
    hidden, labels = rng.normal(size=(B, D)).astype("float32"), rng.integers(0, N, B)
    expected, gradients = head_gradients(full, hidden, labels)
    found, own = head_gradients(head, hidden, labels)
    assert found == pytest.approx(expected, rel=1e-5)
    assert_all_close(own, gradients, 1e-4, 1e-6)
    weight = np.array([1, 0, 1, 1, 0, 1], "float32")
    nll = to_numpy(full(hidden, labels, sample_weight=weight))
    found = to_numpy(training(head)(hidden, labels, weight))
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
    training(head)(hidden, labels)
    assert_all_close(head.table.class_variables, expected, 1e-4)

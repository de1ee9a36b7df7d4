"""Passes over all classes in chunks: the best k of scores of every kind, and the log-partition."""

import numpy as np
import pytest
import reference
from conftest import compiled, to_numpy
from keras import ops

from softbench import partition

NAN, INF = float("nan"), float("inf")
N = 13
ROWS = np.array(
    [
        [-INF] * N,
        [NAN] * N,
        [-INF, -INF, 3.0, 1.0, -INF, 3.0] + [-INF] * (N - 6),
        [0.0, NAN, -INF, INF, NAN, 2.0, 2.0] + [-INF] * (N - 8) + [INF],
        [-0.0, 0.0] * 6 + [-0.0],
        [1.0] * N,
    ],
    "float32",
)


@pytest.mark.parametrize("k", [1, 5, N])
@pytest.mark.parametrize("chunk", [1, 4, N])
@pytest.mark.parametrize("eager", [True, False])
def test_the_best_classes_are_distinct_whatever_the_scores_are(chunk, k, eager, monkeypatch):
    """n = 13 is no multiple of 4: the last chunk repeats classes. NaN counts as infinity."""
    monkeypatch.setattr(partition, "class_chunk", lambda *_: chunk)

    def best(scores):
        return partition.top_k(lambda ids: ops.take(scores, ids, axis=1), scores, N, k)

    found, ids = (best if eager else compiled(best))(ops.convert_to_tensor(ROWS))
    expected = reference.top_k(np.where(np.isnan(ROWS), INF, ROWS), k)[1]
    np.testing.assert_array_equal(to_numpy(ids), expected)
    np.testing.assert_array_equal(to_numpy(found), np.take_along_axis(ROWS, expected, axis=-1))


@pytest.mark.parametrize("chunk", [1, 4, N])
def test_the_log_partition_of_a_part_and_the_scores_of_labels(chunk, monkeypatch):
    """Of 13 classes from the second on. The first and the last of 15 are none of them."""
    monkeypatch.setattr(partition, "class_chunk", lambda *_: chunk)
    scores = np.random.default_rng(0).normal(size=(3, N + 2)).astype("float32")
    scores[1, 4:] = -INF
    labels = np.array([[1, 13], [0, 4], [14, 9]], "int32")

    def losses(scores, labels):
        own = ops.take(scores, np.arange(N + 2), axis=1)
        return partition.log_partition(lambda i: ops.take(own, i, axis=1), scores, labels, N, 1)

    tensors = ops.convert_to_tensor(scores), ops.convert_to_tensor(labels)
    log_z, true = map(to_numpy, compiled(losses)(*tensors))
    inside = scores[:, 1 : N + 1].astype("float64")
    np.testing.assert_allclose(log_z[:, 0], np.log(np.exp(inside).sum(-1)), rtol=1e-6)
    expected = np.take_along_axis(scores, labels, axis=-1)
    np.testing.assert_array_equal(true, np.where((labels > 0) & (labels <= N), expected, -INF))


@pytest.mark.parametrize(
    ("on_cpu", "n", "batch", "chunk"),
    [
        (True, 1_000, 512, 1_000),
        (True, 41_334, 512, 3_776),  # 2^21 / 512 = 4,096: 11 chunks of 3,758, rounded up to 64
        (True, 12_101, 56, 12_101),
        (True, 10**6, 4_096, 1_024),  # the least, though it is twice as many scores; 977 chunks
        (True, 10**6, None, 2_048),  # as of 1,024 examples
        (False, 41_334, 1_024, 41_334),
        (False, 10**6, 1_024, 62_528),  # 16 chunks of 62,500
    ],
)
def test_a_chunk_of_scores_stays_in_the_caches(on_cpu, n, batch, chunk, monkeypatch):
    monkeypatch.setattr(partition, "on_cpu", lambda: on_cpu)
    assert partition.class_chunk(n, batch) == chunk

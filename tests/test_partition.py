"""Passes over all classes in chunks: the best k of scores of every kind."""

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
def test_the_best_classes_are_distinct_whatever_the_scores_are(chunk, k, eager):
    """n = 13 is no multiple of 4: the last chunk repeats classes. NaN counts as infinity."""

    def best(scores):
        return partition.top_k(lambda ids: ops.take(scores, ids, axis=1), scores, N, chunk, k)

    found, ids = (best if eager else compiled(best))(ops.convert_to_tensor(ROWS))
    expected = reference.top_k(np.where(np.isnan(ROWS), INF, ROWS), k)[1]
    np.testing.assert_array_equal(to_numpy(ids), expected)
    np.testing.assert_array_equal(to_numpy(found), np.take_along_axis(ROWS, expected, axis=-1))

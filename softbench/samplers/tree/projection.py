"""Principal components of dense or sparse features (NumPy and SciPy only).

Shape letters: N points, v features, k components.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, eigsh

# Up to this many features the covariance is held and decomposed exactly.
DENSE_FEATURES = 2048
_CHUNK = 2**14
Features = Any  # a NumPy array or a SciPy-sparse matrix


class Projection(NamedTuple):
    """x -> (x - mean) components.

    Attributes:
        mean: float64 (v,).
        components: float64 (v, k).
    """

    mean: np.ndarray
    components: np.ndarray


def principal_components(
    features: Features, num_components: int, seed: int | None = None
) -> Projection:
    """The k leading principal components, k = min(`num_components`, v).

    They are those of the centred features, sparse ones too: without centring, the first component
    of non-negative features is their mean, which tells no label from another. Sparse features
    are never made dense: the mean is taken off inside each product. All components are divided by
    one number, the standard deviation along the first, so that the strength of a ridge does not
    depend on the features' unit.

    Args:
        features: (N, v), NumPy or SciPy-sparse.
        num_components: the most components to keep.
        seed: of the Lanczos iteration's first vector, used above `DENSE_FEATURES` features.
    """
    mean = np.asarray(features.mean(axis=0), np.float64).ravel()
    size, width = len(mean), min(num_components, len(mean))
    if size <= max(DENSE_FEATURES, width + 1):
        first = max(size - width, 0)
        values, vectors = scipy.linalg.eigh(
            _covariance(features, mean), subset_by_index=[first, size - 1]
        )
    else:
        start = np.random.default_rng(seed).normal(size=size)
        values, vectors = eigsh(_operator(features, mean), width, v0=start, tol=1e-6)
    order = np.argsort(-values, kind="stable")
    vectors = largest_positive(vectors[:, order].T).T
    deviation = np.sqrt(max(values[order[0]], 0.0))
    return Projection(mean, vectors / (deviation if deviation > 0 else 1.0))


def largest_positive(vectors: np.ndarray) -> np.ndarray:
    """Vectors (V, k), each with the sign that makes its largest entry positive."""
    largest = np.abs(vectors).argmax(axis=1)[:, None]
    return vectors * np.where(np.take_along_axis(vectors, largest, axis=1) < 0, -1.0, 1.0)


def project(features: Features, projection: Projection) -> np.ndarray:
    """(x - mean) components, float64 (N, k)."""
    moved = projection.mean @ projection.components
    if sp.issparse(features):
        return np.asarray(features @ projection.components) - moved
    result = np.empty((len(features), len(moved)))
    for start in range(0, len(features), _CHUNK):
        part = np.asarray(features[start : start + _CHUNK], np.float64)
        result[start : start + _CHUNK] = part @ projection.components - moved
    return result


def _covariance(features: Features, mean: np.ndarray) -> np.ndarray:
    """Covariance (v, v) in float64, from chunks of rows."""
    total = np.zeros((len(mean), len(mean)))
    for start in range(0, features.shape[0], _CHUNK):
        part = features[start : start + _CHUNK]
        part = (part.toarray() if sp.issparse(part) else np.asarray(part)).astype(np.float64)
        part -= mean
        total += part.T @ part
    return total / features.shape[0]


def _operator(features: Features, mean: np.ndarray) -> LinearOperator:
    """The covariance (v, v) as products with the features."""
    transposed = features.T.tocsr() if sp.issparse(features) else features.T

    def product(vector: np.ndarray) -> np.ndarray:
        scores = features @ vector - mean @ vector
        return (transposed @ scores - mean * scores.sum()) / features.shape[0]

    return LinearOperator((len(mean), len(mean)), matvec=product, dtype=np.float64)

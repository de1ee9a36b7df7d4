"""Checks of a tree's training points, and the choice of its ridge (NumPy and SciPy only).

Shape letters: N points, v features, k components, n classes.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from softbench.common import check_positive


def check_points(
    features: Any, labels: Any, num_classes: int
) -> tuple[np.ndarray | sp.csr_matrix, np.ndarray]:
    """Features (N, v), NumPy or csr, and int64 labels (N,), or a ValueError."""
    check_positive(num_classes=num_classes)
    features = check_features(features)
    labels = np.asarray(labels)
    if labels.shape != features.shape[:1] or not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(
            f"`labels` must be integers, one for each of the {features.shape[0]} rows of "
            f"`features`. Received: shape {labels.shape}, dtype {labels.dtype}"
        )
    if labels.min() < 0 or labels.max() >= num_classes:
        raise ValueError(
            f"`labels` must be in [0, {num_classes}). "
            f"Received values from {labels.min()} to {labels.max()}"
        )
    return features, labels.astype(np.int64)


def check_features(features: Any) -> np.ndarray | sp.csr_matrix:
    """Features (N, v), NumPy or csr, of N, v >= 1 and without infinities."""
    features = sp.csr_matrix(features) if sp.issparse(features) else np.asarray(features)
    if features.ndim != 2 or 0 in features.shape:
        raise ValueError(
            "`features` must have one row for each point and one column or more. "
            f"Received shape: {features.shape}"
        )
    values = features.data if sp.issparse(features) else features
    if not np.isfinite(values.sum()) and not np.all(np.isfinite(values)):
        raise ValueError(
            "`features` must be finite. Received "
            f"{int((~np.isfinite(values)).sum())} values that are not"
        )
    return features


def held_out_scores(
    fit_and_score: Callable[[float, np.ndarray, np.ndarray], float],
    size: int,
    regularizations: tuple[float, ...],
    folds: int,
    seed: int | None,
) -> dict[float, float]:
    """Mean held-out score of each regularization over `folds` random parts of `size` points.

    Args:
        fit_and_score: of a regularization, the rows to fit and the rows held out.
    """
    if not regularizations:
        raise ValueError(f"`regularizations` must not be empty. Received: {regularizations}")
    check_positive(folds=folds)
    if not 2 <= folds <= size:
        raise ValueError(
            f"`folds` must be from 2 to the number of points, {size}. Received: {folds}"
        )
    parts = np.array_split(np.random.default_rng(seed).permutation(size), folds)
    totals = dict.fromkeys(regularizations, 0.0)
    for index, held_out in enumerate(parts):
        fitted = np.concatenate([part for i, part in enumerate(parts) if i != index])
        for strength in regularizations:
            totals[strength] += len(held_out) * fit_and_score(strength, fitted, held_out)
    return {strength: total / size for strength, total in totals.items()}

"""Precision@k, nDCG@k and propensity-scored precision on NumPy arrays and csr truth, in float64.

Conventions of the Extreme Classification Repository: the denominator of precision@k is always k; an
example without labels counts as missed; propensity-scored precision is divided by the best value
possible, a ratio of two means over examples. Its scripts leave the order of equal scores to their
sort; here equal scores are ranked by lower class id first, as `head.top_k` does.

Shape letters: N examples, n classes, K ranked ids per example.
"""

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from softbench.common import check_positive


def hits(top_ids: np.ndarray, labels: sp.csr_matrix, ks: Sequence[int]) -> np.ndarray:
    """Whether each ranked id is a label of its row: bool `(N, K)`.

    Raises:
        ValueError: for a depth below 1, or ids of the wrong shape or range.
    """
    top_ids = np.asarray(top_ids)
    for k in ks:
        check_positive(ks=k)
    deepest = max(ks)
    if top_ids.ndim != 2 or top_ids.shape[0] != labels.shape[0] or top_ids.shape[1] < deepest:
        raise ValueError(
            f"`top_ids` must have shape ({labels.shape[0]}, at least {deepest}). "
            f"Received: shape={top_ids.shape}"
        )
    n = labels.shape[1]
    if top_ids.size and not 0 <= top_ids.min() <= top_ids.max() < n:
        raise ValueError(
            f"`top_ids` must be in [0, {n}). Received: {top_ids.min()} to {top_ids.max()}"
        )
    rows = np.arange(labels.shape[0])[:, None]
    truth = np.repeat(rows.ravel(), np.diff(labels.indptr)) * n + labels.indices
    return np.isin(rows * n + top_ids, truth[labels.data != 0])


def precision_at_k(
    top_ids: np.ndarray, labels: sp.csr_matrix, ks: Sequence[int] = (1, 3, 5)
) -> dict[int, float]:
    """Mean over examples of `(number of labels among the first k ids) / k`.

    Args:
        top_ids: int `(N, K)`, distinct ids by decreasing score, K >= max(ks).
        labels: csr `(N, n)`, non-zero where the class is a label.
        ks: depths.

    Returns:
        `{k: precision@k}`.

    Raises:
        ValueError: for a depth below 1, or ids of the wrong shape or range.
    """
    found = hits(top_ids, labels, ks)
    return {int(k): float(found[:, :k].mean()) for k in ks}


def discounted_gains(found: np.ndarray, sizes: np.ndarray, k: int) -> np.ndarray:
    """nDCG@k of each row `(N,)`; see `ndcg_at_k`.

    Args:
        found: bool `(N, K)`, of `hits`.
        sizes: `(N,)` labels of each row.
        k: depth.
    """
    discount = 1.0 / np.log2(np.arange(2, k + 2))
    ideal = np.append(0.0, np.cumsum(discount))[np.minimum(sizes, k)]
    gain = found[:, :k] @ discount
    return np.divide(gain, ideal, out=np.zeros(len(found)), where=ideal > 0)


def ndcg_at_k(
    top_ids: np.ndarray, labels: sp.csr_matrix, ks: Sequence[int] = (1, 3, 5)
) -> dict[int, float]:
    """Mean over examples of DCG@k over the best DCG@k possible.

    DCG@k = sum over ranks r <= k that hold a label of 1 / log2(r + 1); an example without labels
    counts 0.

    Args:
        top_ids: int `(N, K)`, distinct ids by decreasing score, K >= max(ks).
        labels: csr `(N, n)`, non-zero where the class is a label.
        ks: depths.

    Returns:
        `{k: nDCG@k}`.

    Raises:
        ValueError: for a depth below 1, or ids of the wrong shape or range.
    """
    found = hits(top_ids, labels, ks)
    rows = np.repeat(np.arange(labels.shape[0]), np.diff(labels.indptr))
    sizes = np.bincount(rows[labels.data != 0], minlength=labels.shape[0])
    return {int(k): float(discounted_gains(found, sizes, k).mean()) for k in ks}


def inverse_propensities(
    counts: np.ndarray, num_examples: int, a: float = 0.55, b: float = 1.5
) -> np.ndarray:
    """Inverse label propensities `1 + C (N_l + b) ** -a`, `C = (log N - 1) (b + 1) ** a`.

    Args:
        counts: `(n,)` training examples N_l that have each label.
        num_examples: N, number of training examples.
        a: A of the paper; 0.5 for its Wikipedia and 0.6 for its Amazon data.
        b: B of the paper; 0.4 for its Wikipedia and 2.6 for its Amazon data.

    Returns:
        float64 `(n,)`.

    Reference: Jain et al. (2016), section 4.
    """
    check_positive(num_examples=num_examples)
    scale = (np.log(num_examples) - 1.0) * (b + 1.0) ** a
    return 1.0 + scale * (np.asarray(counts, np.float64) + b) ** -a


def propensity_scored_precision_at_k(
    top_ids: np.ndarray,
    labels: sp.csr_matrix,
    inverse_propensity: np.ndarray,
    ks: Sequence[int] = (1, 3, 5),
) -> dict[int, float]:
    """Precision@k with every hit weighted by `1 / p_l`, over the best possible value.

    Args:
        top_ids: int `(N, K)`, distinct ids by decreasing score.
        labels: csr `(N, n)`, non-zero where the class is a label.
        inverse_propensity: `(n,)`, of `inverse_propensities` on the training labels.
        ks: depths.

    Returns:
        `{k: value}`; 0 where no example has a label.
    """
    weight = np.asarray(inverse_propensity, np.float64)
    if weight.shape != (labels.shape[1],):
        raise ValueError(
            f"`inverse_propensity` must have shape ({labels.shape[1]},). "
            f"Received: shape={weight.shape}"
        )
    found = hits(top_ids, labels, ks)
    gain, best = propensity_gains(found, np.asarray(top_ids), labels, weight, ks)
    return {int(k): float(g / b) if b > 0 else 0.0 for k, g, b in zip(ks, gain, best, strict=True)}


def propensity_gains(
    found: np.ndarray,
    top_ids: np.ndarray,
    labels: sp.csr_matrix,
    weight: np.ndarray,
    ks: Sequence[int],
) -> np.ndarray:
    """Weighted hits and the most that was possible, at each depth, summed over the rows.

    Args:
        found: bool `(N, K)`, of `hits`.
        top_ids: int `(N, K)`.
        labels: csr `(N, n)`.
        weight: float64 `(n,)`, 1 / p_l.
        ks: depths.
    """
    gain = found * weight[top_ids]
    rows = np.repeat(np.arange(labels.shape[0]), np.diff(labels.indptr))[labels.data != 0]
    own = weight[labels.indices[labels.data != 0]]
    order = np.lexsort((-own, rows))
    starts = np.searchsorted(rows, np.arange(labels.shape[0]))
    rank = np.arange(len(order)) - starts[rows]
    sums = [(gain[:, :k].sum(), own[order][rank < k].sum()) for k in ks]
    return np.array(sums).T.reshape(2, len(ks))

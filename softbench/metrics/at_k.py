"""Precision@k, nDCG@k and propensity-scored precision on NumPy arrays and csr truth, in float64.

Conventions of the Extreme Classification Repository: the denominator of precision@k is always k; an
example without labels counts as missed; propensity-scored precision is divided by the best value
possible, a ratio of two means over examples. Its scripts leave the order of equal scores to their
sort; here equal scores are ranked by lower class id first, as `head.top_k` does.

Shape letters: N examples, n classes, K ranked ids per example, T labels of all examples.
"""

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from softbench.common import check_positive
from softbench.metrics.calibration import expected_calibration_error

BUCKETS = ("head", "torso", "tail")  # classes with a third of the labels each


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
    rows, ids = labels.nonzero()
    first = np.arange(labels.shape[0]) * n
    return np.isin(first[:, None] + top_ids, first[rows] + ids)


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


def ndcg(is_hit: np.ndarray, sizes: np.ndarray, k: int) -> np.ndarray:
    """nDCG@k of each row `(N,)`, from `hits` and the number of labels of each row `(N,)`."""
    discount = 1.0 / np.log2(np.arange(2, k + 2))
    ideal = np.append(0.0, np.cumsum(discount))[np.minimum(sizes, k)]
    gain = is_hit[:, :k] @ discount
    return np.divide(gain, ideal, out=np.zeros(len(is_hit)), where=ideal > 0)


def _propensity_gains(
    is_hit: np.ndarray,
    top_ids: np.ndarray,
    labels: sp.csr_matrix,
    weight: np.ndarray,
    ks: Sequence[int],
) -> np.ndarray:
    """Weighted `hits`, and the most that was possible, at each depth, summed: `(2, len(ks))`."""
    if weight.shape != (labels.shape[1],):
        raise ValueError(
            f"`inverse_propensity` must have shape ({labels.shape[1]},). "
            f"Received: shape={weight.shape}"
        )
    gain = is_hit * weight[top_ids]
    rows, ids = labels.nonzero()
    label_weight = weight[ids]
    order = np.lexsort((-label_weight, rows))
    rank = np.arange(len(order)) - np.searchsorted(rows, np.arange(labels.shape[0]))[rows]
    sums = [(gain[:, :k].sum(), label_weight[order][rank < k].sum()) for k in ks]
    return np.array(sums).T.reshape(2, len(ks))


def class_buckets(counts: np.ndarray) -> np.ndarray:
    """Bucket of each class by its frequency: 0 head, 1 torso, 2 tail, int8 `(n,)`.

    In order of decreasing count (ties: lower id first), a class belongs to the third of all
    training labels in which the labels of the classes before it end. So the head is the few
    classes that hold about a third of the labels; classes never seen are tail.

    Args:
        counts: `(n,)` occurrences of each class in the training data.
    """
    counts = np.asarray(counts, np.int64)
    order = np.argsort(-counts, kind="stable")
    before = np.cumsum(counts[order]) - counts[order]
    third = np.minimum(3 * before // max(int(counts.sum()), 1), 2)
    buckets = np.empty(len(counts), np.int8)
    buckets[order] = np.where(counts[order] > 0, third, 2)
    return buckets


class LikelihoodTotals:
    """Log-likelihood and calibration, added up by batches.

    The likelihood of an example is the mean over its labels, as training draws one uniformly; `nll`
    is the mean over the examples with labels, and `nll_<bucket>` over all labels of a bucket of
    `class_buckets`. `ece` is the `expected_calibration_error` of the first class, over the examples
    with labels: where these are several, it is right to the share 1 / their number if it is among
    them. Memory grows by two numbers a row if confidences are given, and else not.

    Args:
        counts: `(n,)` training labels of each class; None leaves the buckets out.
    """

    def __init__(self, counts: np.ndarray | None) -> None:
        self._buckets = None if counts is None else class_buckets(counts)
        self._labelled, self._nll = 0, 0.0
        self._of_bucket = np.zeros((2, len(BUCKETS)))  # nll, labels
        self._confidence: list[np.ndarray] = []  # of each batch
        self._correct: list[np.ndarray] = []

    def update(
        self,
        labels: sp.csr_matrix,
        is_right: np.ndarray,
        nll: np.ndarray | None,
        confidence: np.ndarray | None,
    ) -> None:
        """Adds a batch: whether the first class (N,) is a label; else as `RankingTotals.update`."""
        sizes = np.diff(labels.indptr)
        if confidence is not None:
            kept = sizes > 0
            self._confidence.append(np.asarray(confidence)[kept])
            self._correct.append(is_right[kept] / sizes[kept])
        if nll is not None:
            nll = np.asarray(nll, np.float64)
            self._labelled += int((sizes > 0).sum())
            self._nll += float((nll / np.repeat(sizes, sizes)).sum())
            if self._buckets is not None:
                bucket = self._buckets[labels.indices]
                sums = (np.bincount(bucket, w, len(BUCKETS)) for w in (nll, np.ones(len(nll))))
                self._of_bucket += list(sums)

    def result(self) -> dict[str, float]:
        """The metrics of all batches; those of a bucket without labels are left out."""
        scores: dict[str, float] = {}
        if self._labelled:
            nll = self._nll / self._labelled
            scores |= {"nll": nll, "perplexity": float(np.exp(nll))}
        if any(map(len, self._confidence)):
            pair = np.concatenate(self._confidence), np.concatenate(self._correct)
            scores["ece"] = expected_calibration_error(*pair)
        of_bucket = zip(BUCKETS, *self._of_bucket, strict=True)
        return scores | {f"nll_{name}": float(nll / n) for name, nll, n in of_bucket if n}


class RankingTotals:
    """Precision@k, nDCG@k, their propensity-scored form, and log-likelihood, added up by batches.

    Precision@k is the number of labels among the first k ids over k; nDCG@k the sum over ranks
    r <= k that hold a label of 1 / log2(r + 1), over the largest possible; both are means over
    examples, 0 of one without labels. `ps_precision_at_k` weights every hit by 1 / p_l.
    `recall_at_k_<bucket>` is the share of all labels of a bucket of `class_buckets` (`head`,
    `torso`, `tail`) that are among the first k. `LikelihoodTotals` has the likelihood.

    Args:
        ks: depths.
        counts: `(n,)` training labels of each class; None leaves the buckets out.
        inverse_propensity: `(n,)`, of `inverse_propensities`; None leaves its metric out.
    """

    def __init__(
        self,
        ks: Sequence[int] = (1, 3, 5),
        counts: np.ndarray | None = None,
        inverse_propensity: np.ndarray | None = None,
    ) -> None:
        self.ks = tuple(ks)
        weight = None if inverse_propensity is None else np.asarray(inverse_propensity, float)
        self.inverse_propensity = weight
        self.buckets = None if counts is None else class_buckets(counts)
        self._likelihood = LikelihoodTotals(counts)
        self._rows = 0
        # At each depth: precision, nDCG, weighted hits, the most of them that was possible.
        self._sums = np.zeros((4, len(self.ks)))
        self._of_bucket = np.zeros((1 + len(self.ks), len(BUCKETS)))  # labels, hits by depth

    def update(
        self,
        top_ids: np.ndarray,
        labels: sp.csr_matrix,
        nll: np.ndarray | None = None,
        confidence: np.ndarray | None = None,
    ) -> None:
        """Adds a batch.

        Args:
            top_ids: int `(N, K)`, distinct ids by decreasing score, K >= max(ks).
            labels: csr `(N, n)` of ones.
            nll: `(T,)`, -log p of each label, in the order of `labels.indices`; None leaves the
                likelihood out.
            confidence: `(N,)`, the probability of the first of the ranked ids; None leaves the
                calibration out.
        """
        top_ids, sizes = np.asarray(top_ids), np.diff(labels.indptr)
        is_hit = hits(top_ids, labels, self.ks)
        self._rows += labels.shape[0]
        self._likelihood.update(labels, is_hit[:, 0], nll, confidence)
        self._sums[0] += [is_hit[:, :k].sum() / k for k in self.ks]
        self._sums[1] += [ndcg(is_hit, sizes, k).sum() for k in self.ks]
        weight = self.inverse_propensity
        if weight is not None:
            self._sums[2:] += _propensity_gains(is_hit, top_ids, labels, weight, self.ks)
        if self.buckets is not None:
            ids = labels.indices, *(top_ids[:, :k][is_hit[:, :k]] for k in self.ks)
            of_bucket = [np.bincount(self.buckets[i], minlength=len(BUCKETS)) for i in ids]
            self._of_bucket += of_bucket

    def result(self) -> dict[str, float]:
        """The metrics of all batches; those of a bucket without labels are left out."""
        rows = max(self._rows, 1)
        scores = self._likelihood.result()
        for k, (precision, total, gain, best) in zip(self.ks, self._sums.T, strict=True):
            scores[f"precision_at_{k}"] = float(precision / rows)
            scores[f"ndcg_at_{k}"] = float(total / rows)
            if self.inverse_propensity is not None:
                scores[f"ps_precision_at_{k}"] = float(gain / best) if best > 0 else 0.0
        for name, (count, *ranked) in zip(BUCKETS, self._of_bucket.T, strict=True):
            if count:
                for k, value in zip(self.ks, ranked, strict=True):
                    scores[f"recall_at_{k}_{name}"] = float(value / count)
        return scores


def medians_by_frequency(values: np.ndarray, counts: np.ndarray) -> dict[str, float]:
    """The median of values (n,) that are numbers in each of `BUCKETS` that has any."""
    is_number, buckets = ~np.isnan(values), class_buckets(counts)
    by_bucket = {name: values[is_number & (buckets == i)] for i, name in enumerate(BUCKETS)}
    return {name: float(np.median(bucket)) for name, bucket in by_bucket.items() if len(bucket)}

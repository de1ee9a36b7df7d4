"""Ranking metrics added up batch by batch, so that memory does not grow with the test rows.

Shape letters: B batch, n classes, K ranked ids per example, T labels of the batch.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from softbench.metrics.ranking import discounted_gains, hits, propensity_gains

BUCKETS = ("head", "torso", "tail")


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


class RankingTotals:
    """Precision@k, nDCG@k, their propensity-scored form, and log-likelihood, streamed.

    Conventions as in `softbench.metrics.ranking`. The likelihood of an example is the mean over
    its labels, as training draws one uniformly; `nll` is the mean over the examples with labels.
    By bucket of the class (`head`, `torso`, `tail`): `nll_<bucket>`, the mean over all labels of
    the bucket, and `recall_at_k_<bucket>`, the part of them that are among the first k.

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
        self.inverse_propensity = inverse_propensity
        self.buckets: Any = None if counts is None else class_buckets(counts)
        self._rows = self._labelled = 0
        size = len(self.ks)
        self._precision, self._ndcg = np.zeros(size), np.zeros(size)
        self._gain, self._best = np.zeros(size), np.zeros(size)
        self._nll = 0.0
        self._of_bucket = np.zeros((2 + size, len(BUCKETS)))  # labels, nll, hits at each depth

    def update(
        self, top_ids: np.ndarray, labels: sp.csr_matrix, nll: np.ndarray | None = None
    ) -> None:
        """Adds a batch.

        Args:
            top_ids: int `(B, K)`, distinct ids by decreasing score, K >= max(ks).
            labels: csr `(B, n)` of ones.
            nll: `(T,)`, -log p of each label, in the order of `labels.indices`; None leaves the
                likelihood out.
        """
        found = hits(top_ids, labels, self.ks)
        self._rows += labels.shape[0]
        sizes = np.diff(labels.indptr)
        for i, k in enumerate(self.ks):
            self._precision[i] += found[:, :k].sum() / k
            self._ndcg[i] += discounted_gains(found, sizes, k).sum()
        if self.inverse_propensity is not None:
            gain, best = propensity_gains(found, top_ids, labels, self.inverse_propensity, self.ks)
            self._gain += gain
            self._best += best
        if nll is not None:
            self._labelled += int((sizes > 0).sum())
            nll = np.asarray(nll, np.float64)
            self._nll += float((nll / np.repeat(sizes, sizes)).sum())
        if self.buckets is not None:
            self._update_buckets(found, top_ids, labels, nll)

    def _update_buckets(
        self, found: np.ndarray, top_ids: np.ndarray, labels: sp.csr_matrix, nll: np.ndarray | None
    ) -> None:
        own = self.buckets[labels.indices]
        size = len(BUCKETS)
        self._of_bucket[0] += np.bincount(own, minlength=size)
        if nll is not None:
            self._of_bucket[1] += np.bincount(own, nll, size)
        of_ranked = self.buckets[top_ids]
        for i, k in enumerate(self.ks):
            ranked = of_ranked[:, :k][found[:, :k]]
            self._of_bucket[2 + i] += np.bincount(ranked, minlength=size)

    def result(self) -> dict[str, float]:
        """The metrics of all batches; those of a bucket without labels are left out."""
        rows = max(self._rows, 1)
        scores: dict[str, float] = {}
        if self._labelled:
            nll = self._nll / self._labelled
            scores |= {"nll": nll, "perplexity": float(np.exp(nll))}
        for i, k in enumerate(self.ks):
            scores[f"precision_at_{k}"] = float(self._precision[i] / rows)
            scores[f"ndcg_at_{k}"] = float(self._ndcg[i] / rows)
            if self.inverse_propensity is not None:
                ratio = self._gain[i] / self._best[i] if self._best[i] > 0 else 0.0
                scores[f"ps_precision_at_{k}"] = float(ratio)
        for column, name in enumerate(BUCKETS):
            count, nll, *ranked = self._of_bucket[:, column]
            if count:
                if self._labelled:
                    scores[f"nll_{name}"] = float(nll / count)
                for k, value in zip(self.ks, ranked, strict=True):
                    scores[f"recall_at_{k}_{name}"] = float(value / count)
        return scores

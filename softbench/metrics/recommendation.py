"""Recall@k, MRR@k and catalogue coverage@k in addition to nDCG@k, for rankings of unseen items.

Shape letters: N users, n items, K ranked ids.
"""

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from softbench.metrics.at_k import RankingTotals, hits


class RecommendationTotals(RankingTotals):
    """The metrics of recommenders, added up by batches: those of `RankingTotals`, and

    recall_at_k: mean over users of (labels among the first k) / (labels of the user);
    mrr_at_k: mean over users of 1 / (rank of the first label), 0 if it is beyond k;
    coverage_at_k: share of the n items that are among the first k of any user.

    With one label for each user recall@k is the hit rate. Users without labels are not counted.

    Args:
        ks: depths.
        counts: `(n,)` training interactions of each item.

    Example:
        >>> import scipy.sparse as sp
        >>> labels = sp.csr_matrix([[1, 0, 0, 1], [0, 0, 0, 1]])
        >>> totals = softbench.metrics.RecommendationTotals((2,), np.array([9, 3, 3, 1]))
        >>> totals.update(np.array([[1, 0], [0, 2]]), labels)
        >>> scores = totals.result()
        >>> [scores[name] for name in ("recall_at_2", "mrr_at_2", "coverage_at_2")]
        [0.25, 0.25, 0.75]
    """

    def __init__(self, ks: Sequence[int], counts: np.ndarray) -> None:
        super().__init__(ks, counts)
        self._user_sums = np.zeros((2, len(self.ks)))  # recall, reciprocal rank
        self._shown = np.zeros((len(self.ks), len(counts)), bool)

    def update(
        self,
        top_ids: np.ndarray,
        labels: sp.csr_matrix,
        nll: np.ndarray | None = None,
        confidence: np.ndarray | None = None,
    ) -> None:
        """Adds a batch; arguments of `RankingTotals.update`."""
        labels = sp.csr_matrix(labels)
        kept = np.diff(labels.indptr) > 0
        top_ids, labels = np.asarray(top_ids)[kept], labels[kept]
        if confidence is not None:
            confidence = np.asarray(confidence)[kept]
        super().update(top_ids, labels, nll, confidence)
        is_hit, sizes = hits(top_ids, labels, self.ks), np.diff(labels.indptr)
        for i, k in enumerate(self.ks):
            first = is_hit[:, :k].argmax(axis=1)
            self._user_sums[0, i] += (is_hit[:, :k].sum(axis=1) / sizes).sum()
            self._user_sums[1, i] += (is_hit[:, :k].any(axis=1) / (first + 1.0)).sum()
            self._shown[i, top_ids[:, :k]] = True

    def result(self) -> dict[str, float]:
        """The metrics of all batches."""
        scores, rows = super().result(), max(self._rows, 1)
        for k, (recall, rank), shown in zip(self.ks, self._user_sums.T, self._shown, strict=True):
            scores[f"recall_at_{k}"] = float(recall / rows)
            scores[f"mrr_at_{k}"] = float(rank / rows)
            scores[f"coverage_at_{k}"] = float(shown.mean())
        return scores

"""Metrics for many classes: perplexity, log-likelihood, precision@k and its propensity-scored form.

Two forms of the ranking metrics: functions on NumPy arrays and csr truth (exact, float64, what the
benchmark reports), and `keras.metrics.Metric` classes on padded or dense truth.

Conventions of the Extreme Classification Repository: the denominator of precision@k is always k; an
example without labels counts as missed; propensity-scored precision is divided by the best value
possible, a ratio of two means over examples. Its scripts leave the order of equal scores to their
sort; here equal scores are ranked by lower class id first, as `head.top_k` does.

Shape letters: B batch, N examples, n classes, K ranked ids per example, R label slots per example.
"""

from collections.abc import Sequence

import keras
import numpy as np
import scipy.sparse as sp
from keras import ops


def _check_k(k: int, argument: str = "k") -> int:
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1:
        raise ValueError(f"`{argument}` must be an integer >= 1. Received: {k!r}")
    return int(k)


def _hits(top_ids: np.ndarray, labels: sp.csr_matrix, ks: Sequence[int]) -> np.ndarray:
    """Whether each ranked id is a label of its row: bool `(N, K)`."""
    top_ids = np.asarray(top_ids)
    deepest = max(_check_k(k, "ks") for k in ks)
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
    hits = _hits(top_ids, labels, ks)
    return {int(k): float(hits[:, :k].mean()) for k in ks}


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
    _check_k(num_examples, "num_examples")
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
    gain = _hits(top_ids, labels, ks) * weight[np.asarray(top_ids)]
    rows = np.repeat(np.arange(labels.shape[0]), np.diff(labels.indptr))[labels.data != 0]
    own = weight[labels.indices[labels.data != 0]]
    order = np.lexsort((-own, rows))
    starts = np.searchsorted(rows, np.arange(labels.shape[0]))
    rank = np.arange(len(order)) - starts[rows]
    result = {}
    for k in ks:
        best = own[order][rank < k].sum()
        result[int(k)] = float(gain[:, :k].sum() / best) if best > 0 else 0.0
    return result


class _WeightedMean(keras.metrics.Metric):
    """Weighted mean whose sums keep their rounding errors (Knuth's two-sum).

    A float32 sum of a million batches loses the small terms; the pair (sum, error) does not.
    """

    def __init__(self, name: str, dtype: object = None) -> None:
        super().__init__(name=name, dtype=dtype)
        names = ("total", "total_error", "weight", "weight_error")
        self._sums = [self.add_variable(shape=(), initializer="zeros", name=part) for part in names]

    def _add(self, slot: int, value: object) -> None:
        total, error = self._sums[slot], self._sums[slot + 1]
        old = ops.convert_to_tensor(total)
        new = old + value
        back = new - old
        error.assign(error + ((old - (new - back)) + (value - back)))
        total.assign(new)

    def _update_mean(self, values: object, sample_weight: object = None) -> None:
        """Adds values of any shape; entries of weight 0 count nothing, not even when NaN."""
        values = ops.cast(values, self.dtype)
        if sample_weight is None:
            weight = ops.ones_like(values)
        else:
            weight = ops.cast(ops.convert_to_tensor(sample_weight), self.dtype)
            while len(weight.shape) < len(values.shape):
                weight = ops.expand_dims(weight, -1)
            weight = ops.broadcast_to(weight, ops.shape(values))
        self._add(0, ops.sum(ops.where(weight > 0, values, 0.0) * weight))
        self._add(2, ops.sum(weight))

    def result(self) -> object:
        total = self._sums[0] + self._sums[1]
        weight = self._sums[2] + self._sums[3]
        return ops.where(weight > 0, total / ops.where(weight > 0, weight, 1.0), 0.0)


@keras.saving.register_keras_serializable("softbench")
class PredictiveLogLikelihood(_WeightedMean):
    """Mean of log p(y|x), from negative log-likelihoods (what `head(h, labels)` returns).

    `update_state(nll, sample_weight=None)`: `nll` of any shape, weights of the same shape or of
    its leading dimensions (0 for padding).
    """

    def __init__(self, name: str = "log_likelihood", dtype: object = None) -> None:
        super().__init__(name, dtype)

    def update_state(self, nll: object, sample_weight: object = None) -> None:
        self._update_mean(-ops.cast(nll, self.dtype), sample_weight)


@keras.saving.register_keras_serializable("softbench")
class Perplexity(_WeightedMean):
    """`exp` of the mean negative log-likelihood.

    Like `keras.metrics.Mean`, it takes values, not (y_true, y_pred): a head returns the exact
    negative log-likelihood without ever holding (B, n) scores. For `compile(metrics=[...])` on a
    model that outputs scores, use `ScorePerplexity`.

    `update_state(nll, sample_weight=None)`: as in `PredictiveLogLikelihood`.
    """

    def __init__(self, name: str = "perplexity", dtype: object = None) -> None:
        super().__init__(name, dtype)

    def update_state(self, nll: object, sample_weight: object = None) -> None:
        self._update_mean(nll, sample_weight)

    def result(self) -> object:
        return ops.where(self._sums[2] > 0, ops.exp(super().result()), 0.0)


@keras.saving.register_keras_serializable("softbench")
class ScorePerplexity(Perplexity):
    """Perplexity of integer labels `(...)` under `log_softmax` of scores `(..., n)`.

    `update_state(y_true, y_pred, sample_weight=None)`, so it works in `compile(metrics=[...])`.
    """

    def update_state(self, y_true: object, y_pred: object, sample_weight: object = None) -> None:
        scores = ops.cast(y_pred, self.dtype)
        labels = ops.reshape(ops.cast(y_true, "int32"), ops.shape(scores)[:-1])
        own = ops.take_along_axis(scores, labels[..., None], axis=-1)[..., 0]
        self._update_mean(ops.logsumexp(scores, axis=-1) - own, sample_weight)


@keras.saving.register_keras_serializable("softbench")
class PrecisionAtK(_WeightedMean):
    """Precision@k, `(labels among the first k) / k`, averaged over examples.

    `update_state(y_true, y_pred, sample_weight=None)`:
        y_true: int `(B,)` one label each, or int `(B, R)` label ids padded with -1; with
            `dense_labels=True`, `(B, n)` non-zero where the class is a label.
        y_pred: int `(B, K)` ranked ids, K >= k (from `head.top_k`), or float `(B, n)` scores.
        sample_weight: `(B,)`.

    Raises:
        ValueError: if `k` is not an integer of at least 1, or `y_pred` has fewer than k columns.
    """

    def __init__(
        self,
        k: int = 1,
        dense_labels: bool = False,
        name: str | None = None,
        dtype: object = None,
    ) -> None:
        self.k, self.dense_labels = _check_k(k), dense_labels
        super().__init__(name or f"precision_at_{k}", dtype)

    def _ranked_hits(self, y_true: object, y_pred: object) -> tuple[object, object]:
        """Returns the first k ids `(B, k)` and whether each is a label `(B, k)`."""
        y_true, y_pred = ops.convert_to_tensor(y_true), ops.convert_to_tensor(y_pred)
        if len(y_pred.shape) != 2 or y_pred.shape[1] < self.k:
            raise ValueError(
                f"`y_pred` must have shape (batch, at least {self.k}). "
                f"Received: shape={tuple(y_pred.shape)}"
            )
        if "int" in keras.backend.standardize_dtype(y_pred.dtype):
            ids = y_pred[:, : self.k]
        else:
            ids = ops.top_k(y_pred, self.k)[1]
        if self.dense_labels:
            return ids, ops.take_along_axis(y_true, ids, axis=1) != 0
        if len(y_true.shape) == 1:
            y_true = y_true[:, None]
        matches = ops.cast(y_true, ids.dtype)[:, None, :] == ids[:, :, None]
        return ids, ops.any(matches, axis=-1)

    def update_state(self, y_true: object, y_pred: object, sample_weight: object = None) -> None:
        _, hits = self._ranked_hits(y_true, y_pred)
        self._update_mean(ops.mean(ops.cast(hits, self.dtype), axis=-1), sample_weight)

    def get_config(self) -> dict:
        return {**super().get_config(), "k": self.k, "dense_labels": self.dense_labels}


@keras.saving.register_keras_serializable("softbench")
class PropensityScoredPrecisionAtK(PrecisionAtK):
    """Propensity-scored precision@k over the best possible value (Jain et al., 2016).

    Args:
        inverse_propensity: `(n,)`, of `inverse_propensities`; held in the config.
        k: depth.
        dense_labels: as in `PrecisionAtK`, whose `update_state` it shares.
    """

    def __init__(
        self,
        inverse_propensity: Sequence[float],
        k: int = 1,
        dense_labels: bool = False,
        name: str | None = None,
        dtype: object = None,
    ) -> None:
        self.inverse_propensity = np.asarray(inverse_propensity, np.float32)
        if self.inverse_propensity.ndim != 1:
            raise ValueError(
                "`inverse_propensity` must have shape (n,). "
                f"Received: shape={self.inverse_propensity.shape}"
            )
        super().__init__(k, dense_labels, name or f"ps_precision_at_{k}", dtype)

    def update_state(self, y_true: object, y_pred: object, sample_weight: object = None) -> None:
        ids, hits = self._ranked_hits(y_true, y_pred)
        weight = ops.cast(ops.convert_to_tensor(self.inverse_propensity), self.dtype)
        gain = ops.sum(ops.where(hits, ops.take(weight, ids), 0.0), axis=-1)
        labels = ops.convert_to_tensor(y_true)
        if self.dense_labels:
            own = ops.where(labels != 0, weight[None, :], 0.0)
        else:
            labels = labels[:, None] if len(labels.shape) == 1 else labels
            own = ops.where(labels >= 0, ops.take(weight, ops.maximum(labels, 0)), 0.0)
        best = ops.sum(ops.top_k(own, min(self.k, own.shape[-1]))[0], axis=-1)
        sample = 1.0 if sample_weight is None else ops.cast(sample_weight, self.dtype)
        self._add(0, ops.sum(gain * sample))
        self._add(2, ops.sum(best * sample))

    def get_config(self) -> dict:
        return {**super().get_config(), "inverse_propensity": self.inverse_propensity.tolist()}

"""Precision@k and its propensity-scored form as Keras metrics, on padded or dense truth.

Conventions as in `softbench.metrics.ranking`.

Shape letters: B batch, n classes, K ranked ids per example, R label slots per example.
"""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from softbench.common import PACKAGE, Tensor, check_positive
from softbench.metrics.likelihood import WeightedMean


@keras.saving.register_keras_serializable(PACKAGE)
class PrecisionAtK(WeightedMean):
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
        dtype: Any = None,
    ) -> None:
        check_positive(k=k)
        self.k, self.dense_labels = int(k), dense_labels
        super().__init__(name or f"precision_at_{k}", dtype)

    def _ranked_hits(self, y_true: Tensor, y_pred: Tensor) -> tuple[Tensor, Tensor]:
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
            return ids, ops.not_equal(ops.take_along_axis(y_true, ids, axis=1), 0)
        if len(y_true.shape) == 1:
            y_true = y_true[:, None]
        matches = ops.equal(ops.cast(y_true, ids.dtype)[:, None, :], ids[:, :, None])
        return ids, ops.any(matches, axis=-1)

    def update_state(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> None:
        _, hits = self._ranked_hits(y_true, y_pred)
        self._update_mean(ops.mean(ops.cast(hits, self.dtype), axis=-1), sample_weight)

    def get_config(self) -> dict:
        return {**super().get_config(), "k": self.k, "dense_labels": self.dense_labels}


@keras.saving.register_keras_serializable(PACKAGE)
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
        dtype: Any = None,
    ) -> None:
        self.inverse_propensity = np.asarray(inverse_propensity, np.float32)
        if self.inverse_propensity.ndim != 1:
            raise ValueError(
                "`inverse_propensity` must have shape (n,). "
                f"Received: shape={self.inverse_propensity.shape}"
            )
        super().__init__(k, dense_labels, name or f"ps_precision_at_{k}", dtype)

    def update_state(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> None:
        ids, hits = self._ranked_hits(y_true, y_pred)
        weight = ops.cast(ops.convert_to_tensor(self.inverse_propensity), self.dtype)
        gain = ops.sum(ops.where(hits, ops.take(weight, ids), 0.0), axis=-1)
        labels = ops.convert_to_tensor(y_true)
        if self.dense_labels:
            own = ops.where(ops.not_equal(labels, 0), weight[None, :], 0.0)
        else:
            labels = labels[:, None] if len(labels.shape) == 1 else labels
            own = ops.where(labels >= 0, ops.take(weight, ops.maximum(labels, 0)), 0.0)
        best = ops.sum(ops.top_k(own, min(self.k, own.shape[-1]))[0], axis=-1)
        sample = 1.0 if sample_weight is None else ops.cast(sample_weight, self.dtype)
        self._add(0, ops.sum(gain * sample))
        self._add(2, ops.sum(best * sample))

    def get_config(self) -> dict:
        return {**super().get_config(), "inverse_propensity": self.inverse_propensity.tolist()}

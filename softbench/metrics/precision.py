"""Precision@k as a Keras metric, on padded or dense truth.

Conventions as in `softbench.metrics.at_k`.

Shape letters: B batch, n classes, K ranked ids per example, R label slots per example.
"""

from typing import Any

import keras
import numpy as np
from keras import ops

from softbench.common import PACKAGE, Tensor, check_positive
from softbench.labels import check_values, safe_ids
from softbench.metrics.likelihood import WeightedMean
from softbench.ops import is_concrete


@keras.saving.register_keras_serializable(PACKAGE)
class PrecisionAtK(WeightedMean):
    """Precision@k, `(labels among the first k) / k`, averaged over examples.

    `update_state(y_true, y_pred, sample_weight=None)`:
        y_true: integers `(B,)`, one label each, or `(B, R)`, label ids padded with -1; with
            `dense_labels=True`, `(B, n)` non-zero where the class is a label. In a compiled step an
            id out of range makes the result NaN.
        y_pred: int `(B, K)` ranked ids, K >= k (from `head.top_k`), or float `(B, n)` scores. A
            score that is NaN ranks last and is never a hit.
        sample_weight: `(B,)`.

    Raises:
        ValueError: if `k` is not an integer of at least 1, `y_pred` has fewer than k columns, or
            `y_true` is not as above.

    Example:
        >>> metric = softbench.metrics.PrecisionAtK(k=2)
        >>> metric.update_state(np.array([3, 0]), np.array([[3, 1], [2, 1]]))
        >>> float(metric.result())
        0.25
    """

    _direction = "up"  # Keras' callbacks read it for mode="auto"

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

    def update_state(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> None:
        y_pred = ops.convert_to_tensor(y_pred)
        if len(y_pred.shape) != 2 or y_pred.shape[1] < self.k:
            raise ValueError(
                f"`y_pred` must have shape (batch, at least {self.k}). "
                f"Received: shape={tuple(y_pred.shape)}"
            )
        size = None
        if "int" in keras.backend.standardize_dtype(y_pred.dtype):
            ids = ops.cast(y_pred[:, : self.k], "int32")
            valid_score = ops.ones_like(ids, dtype="bool")
        else:
            size, is_nan = y_pred.shape[1], ops.isnan(y_pred)
            ids = ops.top_k(ops.where(is_nan, -float("inf"), y_pred), self.k)[1]
            valid_score = ops.logical_not(ops.take_along_axis(is_nan, ids, axis=1))
        if self.dense_labels:
            labels, valid = _dense_labels(y_true, size), ops.ones_like(ids[:, 0], dtype="bool")
            hits = ops.not_equal(ops.take_along_axis(labels, ids, axis=1), 0)
        else:
            # An example is not valid if one of its labels is out of range.
            labels, valid = _label_ids(y_true, size, sample_weight)
            hits = ops.any(ops.equal(labels[:, None, :], ids[:, :, None]), axis=-1)
        hits = ops.cast(ops.logical_and(hits, valid_score), self.dtype)
        precision = ops.where(valid, ops.mean(hits, axis=-1), float("nan"))
        self._update_mean(precision, sample_weight)

    def get_config(self) -> dict:
        return {**super().get_config(), "k": self.k, "dense_labels": self.dense_labels}


def _label_ids(
    y_true: Tensor, size: int | None, sample_weight: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Label ids int32 `(B, R)`, -1 for padding, and whether those of an example are in range."""
    shape = tuple(y_true.shape if hasattr(y_true, "shape") else np.shape(y_true))
    first = -1 if len(shape) == 2 else 0
    if len(shape) not in (1, 2) or (shape[1:] != (1,) and shape[1:] == (size,)):
        raise ValueError(
            "`y_true` must be label ids, (batch,) or (batch, labels), or with dense_labels=True "
            f"one-hot or multi-hot vectors (batch, classes). Received: shape={shape}"
        )
    check_values("y_true", y_true, size, sample_weight, first)
    if len(shape) == 2 and is_concrete(y_true):
        ordered = np.sort(ops.convert_to_numpy(y_true), axis=-1)
        if np.any((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)):
            raise ValueError(
                "`y_true` must be distinct label ids padded with -1; one-hot or multi-hot vectors "
                "need dense_labels=True. Received: a row that has an id twice"
            )
    ids, valid = safe_ids(y_true, size, first)
    return (ids, ops.all(valid, axis=-1)) if len(shape) == 2 else (ids[:, None], valid)


def _dense_labels(y_true: Tensor, size: int | None) -> Tensor:
    """`y_true` `(B, n)`, or a ValueError if it is not of that shape."""
    y_true = ops.convert_to_tensor(y_true)
    if len(y_true.shape) != 2 or (size is not None and y_true.shape[1] != size):
        raise ValueError(
            f"`y_true` must have shape (batch, {size or 'classes'}) with dense_labels=True. "
            f"Received: shape={tuple(y_true.shape)}"
        )
    return y_true

"""Perplexity as a Keras metric, and the mean under every metric."""

from typing import Any

import keras
import numpy as np
from keras import ops

from softbench.common import PACKAGE, Tensor
from softbench.labels import check_values, check_weights, fits, safe_ids


class WeightedMean(keras.metrics.Metric):
    """Weighted mean whose sums keep their rounding errors (Knuth's two-sum).

    A float32 sum of a million batches loses the small terms; the pair (sum, error) does not.
    """

    def __init__(self, name: str, dtype: Any = None) -> None:
        super().__init__(name=name, dtype=dtype)
        names = ("total", "total_error", "weight", "weight_error")
        self._sums = [self.add_variable(shape=(), initializer="zeros", name=slot) for slot in names]

    def _add(self, slot: int, value: Tensor) -> None:
        total, error = self._sums[slot], self._sums[slot + 1]
        old = ops.convert_to_tensor(total)
        new = old + value
        back = new - old
        error.assign(error + ((old - (new - back)) + (value - back)))
        total.assign(new)

    def _update_mean(self, values: Tensor, sample_weight: Tensor | None = None) -> None:
        """Adds values of any shape; entries of weight 0 count nothing, not even when NaN.

        Weights must be finite and not negative: a ValueError where they can be seen.
        """
        check_weights(sample_weight)
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

    def mean_and_weight(self) -> tuple[Tensor, Tensor]:
        """The mean of all values, 0 without any, and the sum of their weights."""
        total = self._sums[0] + self._sums[1]
        weight = self._sums[2] + self._sums[3]
        mean = ops.where(weight > 0, total / ops.where(weight > 0, weight, 1.0), 0.0)
        return mean, weight

    def result(self) -> Tensor:
        return self.mean_and_weight()[0]


@keras.saving.register_keras_serializable(PACKAGE)
class Perplexity(WeightedMean):
    """`exp` of the mean negative log-likelihood.

    Like `keras.metrics.Mean`, it takes values, not (y_true, y_pred): a head returns the exact
    negative log-likelihood without ever holding (B, n) scores. For `compile(metrics=[...])` on a
    model that outputs scores, use `ScorePerplexity`.

    `update_state(nll, sample_weight=None)`: `nll` of any shape, weights of the same shape or of
    its leading dimensions (0 for padding).
    """

    _direction = "down"  # Keras' callbacks read it for mode="auto"

    def __init__(self, name: str = "perplexity", dtype: Any = None) -> None:
        super().__init__(name, dtype)

    def update_state(self, nll: Tensor, sample_weight: Tensor | None = None) -> None:
        self._update_mean(nll, sample_weight)

    def result(self) -> Tensor:
        mean, weight = self.mean_and_weight()
        return ops.where(weight > 0, ops.exp(mean), 0.0)


@keras.saving.register_keras_serializable(PACKAGE)
class ScorePerplexity(Perplexity):
    """Perplexity of integer labels `(...)` under `log_softmax` of scores `(..., n)`.

    `update_state(y_true, y_pred, sample_weight=None)`, so it works in `compile(metrics=[...])`.
    In a compiled step a label out of range makes the result NaN, as a score that is NaN does.

    Raises:
        ValueError: if `y_true` are not integers of that shape (or (..., 1)) or, where they can be
            seen, not in [0, n).
    """

    def update_state(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> None:
        scores = ops.cast(y_pred, self.dtype)
        expected = tuple(scores.shape[:-1])
        received = tuple(y_true.shape) if hasattr(y_true, "shape") else np.shape(y_true)
        if not (fits(received, expected) or fits(received, (*expected, 1))):
            raise ValueError(
                f"`y_true` must be one class id for each row of scores, of shape {expected} (no "
                f"one-hot vectors). Received shape: {received}"
            )
        check_values("y_true", y_true, scores.shape[-1], sample_weight)
        labels, valid = safe_ids(y_true, scores.shape[-1])
        labels, valid = (ops.reshape(x, ops.shape(scores)[:-1]) for x in (labels, valid))
        label_score = ops.take_along_axis(scores, labels[..., None], axis=-1)[..., 0]
        nll = ops.where(valid, ops.logsumexp(scores, axis=-1) - label_score, float("nan"))
        self._update_mean(nll, sample_weight)

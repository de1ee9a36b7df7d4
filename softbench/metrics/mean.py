"""The weighted mean under every metric here."""

from typing import Any

import keras
from keras import ops


class WeightedMean(keras.metrics.Metric):
    """Weighted mean whose sums keep their rounding errors (Knuth's two-sum).

    A float32 sum of a million batches loses the small terms; the pair (sum, error) does not.
    """

    def __init__(self, name: str, dtype: Any = None) -> None:
        super().__init__(name=name, dtype=dtype)
        names = ("total", "total_error", "weight", "weight_error")
        self._sums = [self.add_variable(shape=(), initializer="zeros", name=part) for part in names]

    def _add(self, slot: int, value: Any) -> None:
        total, error = self._sums[slot], self._sums[slot + 1]
        old = ops.convert_to_tensor(total)
        new = old + value
        back = new - old
        error.assign(error + ((old - (new - back)) + (value - back)))
        total.assign(new)

    def _update_mean(self, values: Any, sample_weight: Any = None) -> None:
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

    def result(self) -> Any:
        total = self._sums[0] + self._sums[1]
        weight = self._sums[2] + self._sums[3]
        return ops.where(weight > 0, total / ops.where(weight > 0, weight, 1.0), 0.0)

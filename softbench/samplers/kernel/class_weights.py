"""The weight of a class in a kernel sampler besides its kernel: prior and bias."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from softbench.common import Tensor
from softbench.ops import gather_rows
from softbench.state import add_constant, add_state

LARGEST_BIAS = 40.0


class ClassWeights(keras.layers.Layer):
    """w_i = prior_i e^(b_i), b the table's bias, both left out where there is none.

    Args:
        units: n.
        prior: float64 (n,), or None for 1.

    Attributes:
        applied: the variable (n,) of the weights that the sums were made with; None if there is no
            bias, as they then never change.
    """

    def __init__(self, units: int, prior: np.ndarray | None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.units, self.prior_values = units, prior
        self.constant = self.applied = None

    def build(self, live: Callable[[], Tensor] | None) -> None:
        """`live` gives the weights (n,) by the bias of now; None where there is no bias."""
        if self.prior_values is not None:
            self.constant = add_constant(self, "prior", self.prior_values, per_class=True)
        if live is not None:
            start = lambda shape, dtype=None: live()  # noqa: E731
            self.applied = add_state(self, "applied", (self.units,), start, per_class=True)

    def prior(self, ids: Tensor) -> Tensor:
        """Prior weight of any ids, 0 for those of n or more."""
        if self.constant is None:
            return ops.cast(ids < self.units, "float32")
        return self._or_zero(self.constant, ids)

    def stored(self, ids: Tensor) -> Tensor:
        """Weight that the sums have of any ids, 0 for those of n or more."""
        return self.prior(ids) if self.applied is None else self._or_zero(self.applied, ids)

    def live(self, table: Any, ids: Tensor | None = None) -> Tensor:
        """Weight by the table of now, of any ids or (None) of all classes."""
        if ids is None:
            ids = ops.arange(self.units, dtype="int32")
        if not table.use_bias:
            return self.prior(ids)
        bias = table.biases(ops.minimum(ids, self.units - 1))
        bias = ops.clip(ops.cast(bias, "float32"), -LARGEST_BIAS, LARGEST_BIAS)
        return self.prior(ids) * ops.exp(bias)

    def _or_zero(self, variable: keras.Variable, ids: Tensor) -> Tensor:
        weight = gather_rows(variable, ops.minimum(ids, self.units - 1))
        return ops.where(ids < self.units, weight, 0.0)

"""The uniform proposal."""

from typing import Any

import keras
import numpy as np

from softbench.common import PACKAGE, Tensor
from softbench.samplers.base import Sampler
from softbench.samplers.static import LARGEST_TOTAL, StaticSampler


@keras.saving.register_keras_serializable(PACKAGE)
class Uniform(StaticSampler):
    """q(i) = 1 / n; see `StaticSampler` for the arguments.

    Draws with replacement need no table: class i owns [i w, (i + 1) w), w = floor((2^31 - 1) / n).
    """

    def class_weights(self, units: int) -> np.ndarray:
        return np.ones(units)

    def build(self, table_shape: tuple, num_sampled: int | None = None, table: Any = None) -> None:
        if self.unique:
            super().build(table_shape, num_sampled, table)
            return
        Sampler.build(self, table_shape, num_sampled, table)
        self.each = LARGEST_TOTAL // self.units
        self.total = self.each * self.units

    def start(self, ids: Tensor) -> Tensor:
        return super().start(ids) if self.unique else ids * self.each

    def width(self, ids: Tensor) -> Tensor:
        return super().width(ids) if self.unique else 0 * ids + self.each

    def locate(self, points: Tensor) -> Tensor:
        return super().locate(points) if self.unique else points // self.each

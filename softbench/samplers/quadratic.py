"""The quadratic kernel as proposal."""

from typing import Any

import keras

from softbench.rows import PACKAGE
from softbench.samplers.features import FeatureMap, Quadratic
from softbench.samplers.kernel import KernelSampler


@keras.saving.register_keras_serializable(PACKAGE)
class QuadraticKernel(KernelSampler):
    """q(i | h) proportional to alpha <h, c_i>^2 + 1 (Blanc & Rendle 2018; Rawat et al. eq. 15).

    <h, c_i> is that of normalised vectors if the table normalises. It resembles exp(|<h, c_i>|), so
    the papers train the absolute softmax with it (`absolute=True` on the head). See
    `KernelSampler` for the other arguments.

    Args:
        alpha: 100 in both papers.
    """

    def __init__(self, alpha: float = 100.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.alpha = alpha
        self.make_features(1.0)  # checks alpha

    def make_features(self, temperature: float) -> FeatureMap:
        return Quadratic(self.alpha)

    def get_config(self) -> dict:
        return {**super().get_config(), "alpha": self.alpha}

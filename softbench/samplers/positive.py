"""Positive random features as proposal."""

from typing import Any

import keras

from softbench.rows import PACKAGE
from softbench.samplers.exponential_kernel import ExponentialKernelSampler
from softbench.samplers.features import FeatureMap, PositiveRandom


@keras.saving.register_keras_serializable(PACKAGE)
class PositiveKernel(ExponentialKernelSampler):
    """q(i | h) proportional to phi(h).phi(c_i) with positive features (Choromanski et al. 2021).

    No estimate is negative, so the law is the features' own. See `ExponentialKernelSampler` and
    `KernelSampler` for the other arguments.

    Args:
        orthogonal: draw orthogonal directions.
    """

    def __init__(self, num_features: int = 1024, orthogonal: bool = True, **kwargs: Any) -> None:
        super().__init__(num_features, **kwargs)
        self.orthogonal = orthogonal

    def make_features(self, temperature: float) -> FeatureMap:
        nu = self.kernel_nu(temperature)
        return PositiveRandom(self.num_features, nu, self.orthogonal, seed=self.seed)

    def get_config(self) -> dict:
        return {**super().get_config(), "orthogonal": self.orthogonal}

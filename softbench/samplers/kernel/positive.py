"""Positive random features as proposal; shape letters as in `features`."""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from softbench.common import PACKAGE, Tensor
from softbench.ops import read
from softbench.samplers.kernel.exponential import (
    LARGEST_EXPONENT,
    ExponentialKernelSampler,
    ExponentialMap,
)
from softbench.samplers.kernel.features import FeatureMap
from softbench.state import add_constant


class PositiveRandom(ExponentialMap):
    """Positive random features (FAVOR+; Choromanski et al. 2021): no estimate is negative.

    phi_j(x) = exp(<w_j, x> - nu |x|^2 / 2) / sqrt(D), w_j ~ N(0, nu I): dim = D.

    Args:
        orthogonal: draw the directions orthogonal in groups of d, with the norms of Gaussian ones:
            still unbiased, and of lower variance.
    """

    def __init__(self, num_features: int, nu: float, orthogonal: bool = True, **kwargs: Any):
        super().__init__(num_features, nu, **kwargs)
        self.orthogonal = orthogonal

    def build(self, x_shape: tuple) -> None:
        self.dim = self.num_features
        rng = np.random.default_rng(self.seed)
        draws = rng.normal(size=(x_shape[-1], self.num_features))
        if self.orthogonal:
            draws = _orthogonal(rng, draws)
        self.directions = add_constant(self, "directions", math.sqrt(self.nu) * draws)

    def noise(self, seed: keras.random.SeedGenerator) -> Tensor:
        size, columns = self.directions.shape
        groups = -(-columns // size) if self.orthogonal else 0
        return keras.random.normal((size, columns + groups * size), seed=seed)

    def fresh(self, noise: Tensor) -> Tensor:
        size, columns = self.directions.shape
        draws = noise[:, :columns]
        if self.orthogonal:
            groups = ops.transpose(ops.reshape(noise[:, columns:], (size, -1, size)), (1, 0, 2))
            q, r = ops.qr(groups)
            signs = ops.where(ops.diagonal(r, axis1=-2, axis2=-1) < 0, -1.0, 1.0)
            q = ops.reshape(ops.transpose(q * signs[:, None, :], (1, 0, 2)), (size, -1))
            draws = q[:, :columns] * ops.sqrt(ops.sum(ops.square(draws), axis=0))
        return math.sqrt(self.nu) * draws

    def _exponents(self, x: Tensor) -> Tensor:
        return ops.matmul(x, read(self.directions)) - self._half_square(x)

    def features(self, x: Tensor) -> Tensor:
        exponents = ops.minimum(self._exponents(x), LARGEST_EXPONENT)
        return ops.exp(exponents) / math.sqrt(self.num_features)

    def queries(self, hidden: Tensor) -> Tensor:
        exponents = self._exponents(hidden)
        return ops.exp(exponents - ops.max(exponents, axis=-1, keepdims=True))


def _orthogonal(rng: np.random.Generator, draws: np.ndarray) -> np.ndarray:
    """Columns (d, D), orthogonal within groups of d, with the norms of the columns of `draws`."""
    size, columns = draws.shape
    groups = []
    for _ in range(-(-columns // size)):
        q, r = np.linalg.qr(rng.normal(size=(size, size)))
        # Without the signs q is not uniform over rotations (Mezzadri 2007), and phi is biased.
        groups.append(q * np.where(np.diag(r) < 0, -1.0, 1.0))
    return np.concatenate(groups, axis=1)[:, :columns] * np.linalg.norm(draws, axis=0)


@keras.saving.register_keras_serializable(PACKAGE)
class PositiveKernel(ExponentialKernelSampler):
    """q(i | h) proportional to phi(h).phi(c_i) with positive features (Choromanski et al. 2021).

    No estimate is negative, so the distribution is that of the features. See
    `ExponentialKernelSampler` and `KernelSampler` for the other arguments.

    Args:
        orthogonal: draw orthogonal directions.
    """

    arguments = ("orthogonal",)
    feature_map = PositiveRandom

    def __init__(self, num_features: int = 1024, orthogonal: bool = True, **kwargs: Any) -> None:
        super().__init__(num_features, **kwargs)
        self.orthogonal = orthogonal

    def make_features(self, temperature: float, **options: Any) -> FeatureMap:
        return super().make_features(temperature, orthogonal=self.orthogonal)

"""Random Fourier features as proposal: RF-softmax; shape letters as in `features`."""

import math

import keras
import numpy as np
from keras import ops

from softbench.common import PACKAGE, Tensor
from softbench.ops import cosine, mean_cosine, read
from softbench.samplers.kernel.exponential import (
    LARGEST_EXPONENT,
    ExponentialKernelSampler,
    ExponentialMap,
)
from softbench.state import add_constant


class RandomFourier(ExponentialMap):
    """Random Fourier features (Rahimi & Recht 2007; Rawat et al. 2019, eq. 17).

    phi(x) = exp(nu |x|^2 / 2) / sqrt(D) [cos(w_j.x), sin(w_j.x)]_j, w_j ~ N(0, nu I): dim = 2 D.
    (The main text of the paper has N(0, I / nu); its appendix, and the kernel, have nu I.) The
    factor exp(nu |x|^2 / 2) turns the Gaussian kernel exp(-nu |h - c|^2 / 2) into exp(nu <h, c>);
    among normalised rows it is a constant.
    """

    signed = True

    def build(self, x_shape: tuple) -> None:
        self.dim = 2 * self.num_features
        draws = np.random.default_rng(self.seed).normal(size=(x_shape[-1], self.num_features))
        self.directions = add_constant(self, "directions", math.sqrt(self.nu) * draws)

    def fresh(self, noise: Tensor) -> Tensor:
        return math.sqrt(self.nu) * noise

    def project(self, x: Tensor) -> Tensor:
        """w_j.x (N, D)."""
        return ops.matmul(x, read(self.directions))

    def queries(self, hidden: Tensor) -> Tensor:
        angles = self.project(hidden)
        waves = ops.concatenate([cosine(angles), cosine(angles - math.pi / 2)], axis=-1)
        return waves / math.sqrt(self.num_features)

    def features(self, x: Tensor) -> Tensor:
        return self.queries(x) * self._factor(x)

    def _factor(self, x: Tensor) -> Tensor:
        return ops.exp(ops.minimum(self._half_square(x), LARGEST_EXPONENT))

    def products(self, queries: Tensor, rows: Tensor, hidden: Tensor | None = None) -> Tensor:
        if hidden is None or len(rows.shape) == 2:
            return super().products(queries, rows, hidden)
        # cos a cos b + sin a sin b = cos(a - b): half the waves
        gaps = ops.reshape(rows - ops.expand_dims(hidden, 1), (-1, rows.shape[-1]))
        means = ops.reshape(mean_cosine(self.project(gaps)), ops.shape(rows)[:-1])
        return means * self._factor(rows)[..., 0]


@keras.saving.register_keras_serializable(PACKAGE)
class RandomFourierKernel(ExponentialKernelSampler):
    """q(i | h) proportional to phi(h).phi(c_i) with random Fourier features (Rawat et al. eq. 19).

    Meant for `normalize=True`. An estimate can be negative; see `floor`. The arguments are those of
    `ExponentialKernelSampler` and `KernelSampler`.
    """

    feature_map = RandomFourier

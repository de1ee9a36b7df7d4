"""Structured orthogonal random features as proposal; shape letters as in `features`."""

import math

import keras
import numpy as np
from keras import ops
from scipy.linalg import hadamard

from softbench.common import PACKAGE, Tensor
from softbench.ops import read
from softbench.samplers.kernel.exponential import ExponentialKernelSampler
from softbench.samplers.kernel.rff import RandomFourier
from softbench.state import add_constant


class StructuredFourier(RandomFourier):
    """Structured orthogonal random features (SORF; Yu et al. 2016), projected in O(D log d).

    As `RandomFourier`, with the directions sqrt(nu p) H D_1 H D_2 H D_3: H the orthonormal
    Walsh-Hadamard transform of size p (d padded to a power of two), D_i random signs; stacked until
    there are D of them. All have the norm sqrt(nu p), so the estimate has a bias of order 1 / p.
    """

    def build(self, x_shape: tuple) -> None:
        self.dim = 2 * self.num_features
        self.size = 1 << max(x_shape[-1] - 1, 0).bit_length()
        stacks = -(-self.num_features // self.size)
        rng = np.random.default_rng(self.seed)
        self.signs = add_constant(self, "signs", rng.choice([-1.0, 1.0], (3, stacks, self.size)))

    @property
    def drawn(self) -> keras.Variable:
        return self.signs

    def fresh(self, noise: Tensor) -> Tensor:
        return ops.where(noise > 0, 1.0, -1.0)

    def project(self, x: Tensor) -> Tensor:
        padded = ops.pad(x, ((0, 0), (0, self.size - x.shape[-1])))
        signs = read(self.signs)
        turned = ops.expand_dims(padded, 1)
        for turn in (2, 1, 0):
            turned = _walsh_hadamard(turned * signs[turn], self.size)
        scale = math.sqrt(self.nu * self.size)
        flat = ops.reshape(turned, (-1, signs.shape[1] * self.size))
        return flat[:, : self.num_features] * scale


def _walsh_hadamard(x: Tensor, size: int) -> Tensor:
    """The orthonormal Walsh-Hadamard transform of the last axis (..., size), `size` = 2^k.

    In steps of 16 points, each one product with a 16 x 16 matrix: O(size log size).
    """
    shape, done = ops.shape(x), 1
    while done < size:
        step = min(16, size // done)
        x = ops.reshape(x, (-1, size // (done * step), step, done))
        x = ops.matmul(hadamard(step).astype("float32"), x)
        done *= step
    return ops.reshape(x, shape) / math.sqrt(size)


@keras.saving.register_keras_serializable(PACKAGE)
class StructuredFourierKernel(ExponentialKernelSampler):
    """As `rff` with structured directions: features in O(D log d), of lower error (Yu et al. 2016).

    The arguments are those of `ExponentialKernelSampler` and `KernelSampler`.
    """

    feature_map = StructuredFourier

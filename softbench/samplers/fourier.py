"""Random Fourier feature maps, with independent and with structured directions.

Shape letters: B batch, N rows, d features of a row, D random features, K rows compared.
"""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from softbench.constants import add_constant
from softbench.ops import cosine, read
from softbench.samplers.features import LARGEST_EXPONENT, ExponentialMap

Tensor = Any


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
        turns = self.project(hidden) / (2 * math.pi)
        waves = ops.concatenate([cosine(turns), cosine(turns - 0.25)], axis=-1)
        return waves / math.sqrt(self.num_features)

    def features(self, x: Tensor) -> Tensor:
        return self.queries(x) * self._factor(x)

    def _factor(self, x: Tensor) -> Tensor:
        return ops.exp(ops.minimum(self._half_square(x), LARGEST_EXPONENT))

    def products(self, queries: Tensor, rows: Tensor, hidden: Tensor | None = None) -> Tensor:
        if hidden is None or len(rows.shape) == 2:
            return super().products(queries, rows, hidden)
        # cos a cos b + sin a sin b = cos(a - b): half the waves
        turns = self.project(ops.reshape(rows, (-1, rows.shape[-1]))) / (2 * math.pi)
        turns = ops.reshape(turns, (*ops.shape(rows)[:-1], self.num_features))
        own = ops.expand_dims(self.project(hidden) / (2 * math.pi), 1)
        return ops.mean(cosine(turns - own), axis=-1) * self._factor(rows)[..., 0]


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
        found = ops.expand_dims(padded, 1)
        for turn in (2, 1, 0):
            found = _walsh_hadamard(found * signs[turn], self.size)
        scale = math.sqrt(self.nu * self.size)
        flat = ops.reshape(found, (-1, signs.shape[1] * self.size))
        return flat[:, : self.num_features] * scale


def _walsh_hadamard(x: Tensor, size: int) -> Tensor:
    """The orthonormal Walsh-Hadamard transform of the last axis (..., size), `size` = 2^k.

    In steps of 16 points, each one product with a 16 x 16 matrix: O(size log size).
    """
    shape, done = ops.shape(x), 1
    while done < size:
        step = min(16, size // done)
        matrix = np.ones((1, 1), "float32")
        while matrix.shape[0] < step:
            matrix = np.block([[matrix, matrix], [matrix, -matrix]]).astype("float32")
        x = ops.reshape(x, (-1, size // (done * step), step, done))
        x = ops.matmul(matrix, x)
        done *= step
    return ops.reshape(x, shape) / math.sqrt(size)

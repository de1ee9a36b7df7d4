"""The quadratic kernel as proposal; shape letters as in `features`."""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from softbench.common import PACKAGE, Tensor, check_number
from softbench.samplers.kernel.features import FeatureMap
from softbench.samplers.kernel.sampler import KernelSampler


class Quadratic(FeatureMap):
    """K(h, c) = alpha <h, c>^2 + 1 (Blanc & Rendle 2018; Rawat et al. 2019, eq. 15).

    The sum over classes of alpha c c^T is a symmetric d x d form. Its upper triangle is kept, with
    the entries off the diagonal times sqrt(2), and a 1: dim = d (d + 1) / 2 + 1.
    """

    exact = True

    def __init__(self, alpha: float = 100.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.alpha = alpha

    def build(self, x_shape: tuple) -> None:
        size = x_shape[-1]
        first, second = np.triu_indices(size)
        self.dim = len(first) + 1
        self.positions = (first * size + second).astype("int32")
        scale = math.sqrt(self.alpha) * np.where(first == second, 1.0, math.sqrt(2.0))
        self.scale = scale.astype("float32")
        # packed -> full: where entry (i, j) of the form is in the triangle, and what undoes `scale`
        index_in_triangle = np.zeros((size, size), "int32")
        index_in_triangle[first, second] = index_in_triangle[second, first] = np.arange(len(first))
        self.index_in_triangle = index_in_triangle.ravel()
        unscale = np.where(np.eye(size), 1.0, 1 / math.sqrt(2.0)) * math.sqrt(self.alpha)
        self.unscale = unscale.astype("float32")

    def features(self, x: Tensor) -> Tensor:
        outer = ops.expand_dims(x, -1) * ops.expand_dims(x, -2)
        flat = ops.reshape(outer, (-1, x.shape[-1] ** 2))
        form = ops.take(flat, self.positions, axis=1) * self.scale
        return ops.concatenate([form, ops.ones_like(form[:, :1])], axis=-1)

    def products(self, queries: Tensor, rows: Tensor, hidden: Tensor | None = None) -> Tensor:
        if hidden is not None:
            if len(rows.shape) == 2:
                inner = ops.matmul(hidden, ops.transpose(rows))
            else:
                inner = ops.squeeze(ops.matmul(rows, ops.expand_dims(hidden, -1)), -1)
            return self.alpha * ops.square(inner) + 1.0
        size = rows.shape[-1]
        form = ops.take(queries[:, :-1], self.index_in_triangle, axis=1)
        form = ops.reshape(form, (-1, size, size)) * self.unscale
        if len(rows.shape) == 2:
            rows = ops.expand_dims(rows, 0)
        return ops.sum(ops.matmul(rows, form) * rows, axis=-1) + queries[:, -1:]


@keras.saving.register_keras_serializable(PACKAGE)
class QuadraticKernel(KernelSampler):
    """q(i | h) proportional to alpha <h, c_i>^2 + 1 (Blanc & Rendle 2018; Rawat et al. eq. 15).

    <h, c_i> is that of normalised vectors if the table normalises. It resembles exp(|<h, c_i>|), so
    the papers train the absolute softmax with it (`absolute=True` on the head). See
    `KernelSampler` for the other arguments.

    Args:
        alpha: 100 in both papers.
    """

    arguments = ("alpha",)

    def __init__(self, alpha: float = 100.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_number(0, exclusive=True, alpha=alpha)
        self.alpha = alpha

    def make_features(self, temperature: float) -> FeatureMap:
        return Quadratic(self.alpha)

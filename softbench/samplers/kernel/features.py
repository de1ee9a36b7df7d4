"""Feature maps phi whose inner products are, or estimate, the kernels of the kernel samplers.

phi(h).phi(c) is linear in phi(c), so the mass of any set of classes is one inner product with the
sum of its feature vectors (Rawat et al. 2019, section 3.1). The random maps here all estimate
exp(nu <h, c>), all but SORF without bias; they differ in cost, in variance, and in whether an
estimate can be negative. Shape letters: B batch, N rows, d features of a row, D random features,
K rows compared.
"""

import keras
from keras import ops

from softbench.common import Tensor


class FeatureMap(keras.layers.Layer):
    """Base class: `features`, whose inner products are or estimate the kernel, and `dim`.

    Attributes:
        dim: length of a feature vector, once built.
        signed: whether an inner product can be negative.
        exact: whether the inner product is the kernel itself rather than an estimate of it.
    """

    signed = False
    exact = False

    def features(self, x: Tensor) -> Tensor:
        """phi of rows (N, d): float32 (N, dim)."""
        raise NotImplementedError

    def queries(self, hidden: Tensor) -> Tensor:
        """phi of hidden (B, d), each row up to a positive factor, which no proposal depends on."""
        return self.features(hidden)

    def products(self, queries: Tensor, rows: Tensor, hidden: Tensor | None = None) -> Tensor:
        """Inner products of queries with phi(rows).

        Args:
            queries: (B, dim).
            rows: (K, d), compared with every query, or (B, K, d).
            hidden: (B, d) that the queries are features of, if they are those of single vectors.

        Returns:
            float32 (B, K), in the scale of `queries`.
        """
        features = self.features(ops.reshape(rows, (-1, rows.shape[-1])))
        if len(rows.shape) == 2:
            return ops.matmul(queries, ops.transpose(features))
        features = ops.reshape(features, (*ops.shape(rows)[:-1], self.dim))
        return ops.squeeze(ops.matmul(features, ops.expand_dims(queries, -1)), -1)

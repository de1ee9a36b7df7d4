"""Encoders of rows of features: sparse, a weighted sum of embeddings; dense, a linear layer.

Shape letters: B batch, L features of a bag, v features, d units.
"""

from typing import Any

import keras
from keras import layers, ops

from softbench.common import PACKAGE, Tensor, check_positive
from softbench.models.embedding import embedding
from softbench.rows import RowOptimizer, get_row_optimizer


@keras.saving.register_keras_serializable(PACKAGE)
class WeightedBag(layers.Layer):
    """`sum_j w_j E[id_j]` of bags padded with weight 0; the (B, v) matrix is never built.

    Args:
        num_features: v.
        dim: d.
        normalize: divide by the l2 norm of the sum (a zero sum stays zero).
        embeddings_initializer: of E `(v, d)`; None is normal with deviation d ** -0.5, so that a
            bag whose weights have l2 norm 1 has length near 1.
        row_optimizer: None, or what updates the touched rows of E (see `RowEmbedding`); B and L
            must then be fixed.
        **kwargs: of `keras.layers.Layer`.

    Call: `(ids (B, L) int, weights (B, L))` -> `(B, d)`.
    """

    def __init__(
        self,
        num_features: int,
        dim: int,
        normalize: bool = False,
        embeddings_initializer: Any = None,
        row_optimizer: RowOptimizer | dict | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_positive(num_features=num_features, dim=dim)
        self.num_features, self.dim, self.normalize = num_features, dim, normalize
        if embeddings_initializer is None:
            embeddings_initializer = keras.initializers.RandomNormal(stddev=dim**-0.5)
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)
        self.row_optimizer = row_optimizer = get_row_optimizer(row_optimizer)
        self.embedding = embedding(num_features, dim, row_optimizer, self.embeddings_initializer)
        self.supports_jit = self.embedding.supports_jit

    def build(self, inputs_shape: list) -> None:
        self.embedding.build(inputs_shape[0])

    def call(self, inputs: list[Tensor], training: bool | None = None) -> Tensor:
        ids, weights = inputs
        options = {} if self.row_optimizer is None else {"training": training}
        rows = self.embedding(ids, **options)
        hidden = ops.einsum("bl,bld->bd", ops.cast(weights, rows.dtype), rows)
        if not self.normalize:
            return hidden
        square = ops.sum(ops.square(hidden), axis=-1, keepdims=True)
        return hidden * ops.rsqrt(ops.where(square > 0, square, 1.0))

    def compute_output_shape(self, inputs_shape: list) -> tuple:
        return (inputs_shape[0][0], self.dim)

    def get_config(self) -> dict:
        return {
            **super().get_config(),
            "num_features": self.num_features,
            "dim": self.dim,
            "normalize": self.normalize,
            "embeddings_initializer": keras.initializers.serialize(self.embeddings_initializer),
            "row_optimizer": self.row_optimizer
            and keras.saving.serialize_keras_object(self.row_optimizer),
        }


def sparse_bag_encoder(
    num_features: int,
    dim: int,
    normalize: bool = False,
    row_optimizer: RowOptimizer | None = None,
    batch_shape: tuple[int | None, int | None] = (None, None),
) -> keras.Model:
    """Functional model `[ids (B, L), weights (B, L)]` -> `(B, dim)`.

    Args:
        num_features, dim, normalize: of `WeightedBag`.
        row_optimizer: None, or of the `(v, d)` table, which needs `batch_shape`.
        batch_shape: (B, L), None where it may change.
    """
    ids = keras.Input(batch_shape=batch_shape, dtype="int32", name="ids")
    weights = keras.Input(batch_shape=batch_shape, name="weights")
    bag = WeightedBag(num_features, dim, normalize, row_optimizer=row_optimizer)
    return keras.Model([ids, weights], bag([ids, weights]), name="sparse_bag_encoder")


def linear_encoder(
    num_features: int, dim: int | None = None, activation: str | None = None
) -> keras.Model:
    """Functional model of dense features `(B, num_features)`: a Dense layer, or the identity.

    Args:
        num_features: width of the input.
        dim: width of the output; None passes the features on as they are.
        activation: of the Dense layer.
    """
    check_positive(num_features=num_features, **({} if dim is None else {"dim": dim}))
    features = keras.Input((num_features,), name="features")
    layer = layers.Identity() if dim is None else layers.Dense(dim, activation=activation)
    return keras.Model(features, layer(features), name="linear_encoder")

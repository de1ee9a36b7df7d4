"""Encoder of sparse examples: a weighted sum of embeddings.

Shape letters: B batch, L features of a bag, v features, d units.
"""

import keras
from keras import layers, ops

from softbench.checks import check_positive


@keras.saving.register_keras_serializable("softbench")
class WeightedBag(layers.Layer):
    """`sum_j w_j E[id_j]` of bags padded with weight 0; the (B, v) matrix is never built.

    Args:
        num_features: v.
        dim: d.
        normalize: divide by the l2 norm of the sum (a zero sum stays zero).
        embeddings_initializer: of E `(v, d)`; None is normal with deviation d ** -0.5, so that a
            bag whose weights have l2 norm 1 has length near 1.
        **kwargs: of `keras.layers.Layer`.

    Call: `(ids (B, L) int, weights (B, L))` -> `(B, d)`.
    """

    def __init__(
        self,
        num_features: int,
        dim: int,
        normalize: bool = False,
        embeddings_initializer: object = None,
        **kwargs: object,
    ) -> None:
        super().__init__(**kwargs)
        check_positive(num_features=num_features, dim=dim)
        self.num_features, self.dim, self.normalize = num_features, dim, normalize
        if embeddings_initializer is None:
            embeddings_initializer = keras.initializers.RandomNormal(stddev=dim**-0.5)
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)
        self.embedding = layers.Embedding(
            num_features, dim, embeddings_initializer=self.embeddings_initializer
        )

    def build(self, inputs_shape: list) -> None:
        self.embedding.build(inputs_shape[0])

    def call(self, inputs: list) -> object:
        ids, weights = inputs
        rows = self.embedding(ids)
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
        }


def sparse_bag_encoder(num_features: int, dim: int, normalize: bool = False) -> keras.Model:
    """Functional model `[ids (B, L), weights (B, L)]` -> `(B, dim)`; see `WeightedBag`."""
    ids = keras.Input((None,), dtype="int32", name="ids")
    weights = keras.Input((None,), name="weights")
    bag = WeightedBag(num_features, dim, normalize)
    return keras.Model([ids, weights], bag([ids, weights]), name="sparse_bag_encoder")

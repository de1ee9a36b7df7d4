"""Encoder of sessions: the items that somebody has seen, in order.

Shape letters: B batch, T items, d units.
"""

import keras
from keras import layers, ops

from softbench.common import PACKAGE, Tensor, check_positive
from softbench.models.embedding import embedding
from softbench.rows import RowOptimizer

POOLINGS = ("mean", "gru")


@keras.saving.register_keras_serializable(PACKAGE)
class MaskedMean(layers.Layer):
    """Mean over T of rows `(B, T, d)` where `mask (B, T)` is true; zero where it never is."""

    def call(self, rows: Tensor, mask: Tensor) -> Tensor:
        weight = ops.cast(mask, rows.dtype)[..., None]
        count = ops.sum(weight, axis=1)
        return ops.sum(rows * weight, axis=1) / ops.maximum(count, 1.0)

    def compute_output_shape(self, rows_shape: tuple, mask_shape: tuple | None = None) -> tuple:
        return (rows_shape[0], rows_shape[-1])


def session_encoder(
    num_items: int,
    dim: int,
    pooling: str = "mean",
    row_optimizer: RowOptimizer | None = None,
    batch_shape: tuple[int | None, int | None] = (None, None),
    seed: int | None = None,
) -> keras.Model:
    """Functional model of sessions `(B, T)`, item ids padded with -1 -> `(B, dim)`.

    Args:
        num_items: number of items.
        dim: d, of the embedding and of the output.
        pooling: "mean" of the items' embeddings, or "gru": the state after the last item. A
            session without items is the zero vector.
        row_optimizer: None, or of the item table, which needs `batch_shape`.
        batch_shape: (B, T), None where it may change.
        seed: of the GRU's weights.

    Raises:
        ValueError: for a size below 1 or an unknown pooling.
    """
    check_positive(num_items=num_items, dim=dim)
    if pooling not in POOLINGS:
        raise ValueError(f"`pooling` must be mean or gru. Received: {pooling!r}")
    items = keras.Input(batch_shape=batch_shape, dtype="int32", name="items")
    mask = ops.greater_equal(items, 0)
    scale = keras.initializers.RandomNormal(stddev=dim**-0.5)
    rows = embedding(num_items, dim, row_optimizer, scale)(ops.maximum(items, 0))
    if pooling == "mean":
        hidden = MaskedMean()(rows, mask)
    else:
        kernels = {
            "kernel_initializer": keras.initializers.GlorotUniform(seed),
            "recurrent_initializer": keras.initializers.Orthogonal(seed=seed),
        }
        # Not cuDNN: its kernels need the padding on the right, and a session may be empty.
        hidden = layers.GRU(dim, use_cudnn=False, **kernels)(rows, mask=mask)
    return keras.Model(items, hidden, name="session_encoder")

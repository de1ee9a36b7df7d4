"""Self-attention over the items that somebody has had, in order (SASRec).

Shape letters: B batch, T items, d units.
"""

from typing import Any

import keras
from keras import layers, ops

from softbench.common import PACKAGE, Tensor, check_number, check_positive

_STDDEV = 0.02  # of initial embeddings


@keras.saving.register_keras_serializable(PACKAGE)
class HistoryMask(layers.Layer):
    """positions (B, T) -> bool (B, T, T): whether a step may look at another.

    It may look at itself and at what comes before it in the same history. Positions go up by one
    within a history; where they do not, another begins, so that a row can hold several.
    """

    def call(self, positions: Tensor) -> Tensor:
        begins = ops.not_equal(positions[:, 1:], positions[:, :-1] + 1)
        history = ops.cumsum(ops.pad(ops.cast(begins, "int32"), ((0, 0), (1, 0))), axis=1)
        step = ops.arange(positions.shape[1], dtype="int32")
        same = ops.equal(history[:, :, None], history[:, None, :])
        return ops.logical_and(same, step[:, None] >= step[None, :])

    def compute_output_spec(self, positions: Tensor) -> keras.KerasTensor:
        return keras.KerasTensor((*positions.shape, positions.shape[1]), "bool")


def sasrec(
    num_items: int,
    dim: int = 64,
    length: int = 50,
    num_blocks: int = 1,
    num_heads: int = 1,
    dropout: float = 0.2,
    hidden_units: int | None = None,
    item_embedding: Any = None,
    batch_size: int | None = None,
) -> keras.Model:
    """Functional model `[items (B, T), positions (B, T)]` -> `(B, T, d)`, causal.

    x = sqrt(d) E[item] + P[position], then blocks of x += attention(norm(x)) and
    x += W2 relu(W1 norm(x) + b1) + b2, and a last norm; dropout after the embedding, in the
    attention and after each sublayer. Step t knows the items up to t of its history,
    see `HistoryMask`: train it on all steps at once, with the item that follows as the label. The
    paper's positions are counted from the end: a history ends at T - 1.

    Args:
        num_items: rows of E.
        dim: d.
        length: T; positions are in [0, T).
        num_blocks, num_heads: of the attention; d is a multiple of the heads.
        dropout: rate.
        hidden_units: rows of W1; None takes d, as the paper does.
        item_embedding: None, a new table E; or a layer, ids (B, T) -> (B, T, d), to
            tie it to the rows of a head, say.
        batch_size: B, or None where it may change.

    Raises:
        ValueError: for a size below 1, a rate outside [0, 1), or heads that d is no multiple of.

    Reference: Kang & McAuley (2018).

    Example:
        >>> model = softbench.models.sasrec(100, dim=8, length=4)
        >>> items, positions = np.array([[5, 7, 7, 3]]), np.array([[1, 2, 3, 3]])
        >>> tuple(model([items, positions]).shape)  # 3 is a separate history
        (1, 4, 8)
    """
    check_positive(num_items=num_items, dim=dim, length=length, num_blocks=num_blocks)
    check_positive(num_heads=num_heads)
    check_number(0, dropout=dropout)
    if dropout >= 1:
        raise ValueError(f"`dropout` must be below 1. Received: {dropout}")
    if dim % num_heads:
        raise ValueError(f"`num_heads` must divide dim={dim}. Received: {num_heads}")
    shape = {"batch_shape": (batch_size, length), "dtype": "int32"}
    items, positions = keras.Input(name="items", **shape), keras.Input(name="positions", **shape)
    embed = item_embedding or layers.Embedding(num_items, dim, _normal(), name="item_embedding")
    position_vectors = layers.Embedding(length, dim, _normal(), name="position_embedding")(
        positions
    )
    x = layers.Rescaling(dim**0.5)(embed(items)) + position_vectors
    x, mask = layers.Dropout(dropout)(x), HistoryMask()(positions)
    for _ in range(num_blocks):
        x = _block(x, mask, num_heads, dropout, hidden_units or dim)
    return keras.Model([items, positions], _norm()(x), name="sasrec")


def _normal() -> keras.initializers.Initializer:
    return keras.initializers.RandomNormal(stddev=_STDDEV)


def _norm() -> layers.Layer:
    return layers.LayerNormalization(epsilon=1e-6)


def _block(x: Any, mask: Any, num_heads: int, dropout: float, hidden_units: int) -> Any:
    dim = x.shape[-1]
    normed = _norm()(x)
    attention = layers.MultiHeadAttention(num_heads, dim // num_heads, dropout=dropout)
    x = x + layers.Dropout(dropout)(attention(normed, normed, attention_mask=mask))
    inner = layers.Dense(hidden_units, activation="relu")(_norm()(x))
    inner = layers.Dense(dim)(layers.Dropout(dropout)(inner))
    return x + layers.Dropout(dropout)(inner)

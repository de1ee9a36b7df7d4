"""Encoder of (head, relation) pairs of a knowledge graph.

Shape letters: B batch, d units.
"""

import keras
from keras import layers

from softbench.common import check_positive
from softbench.models.embedding import embedding
from softbench.rows import RowOptimizer


def pair_encoder(
    num_entities: int,
    num_relations: int,
    dim: int,
    hidden_units: int | None = None,
    dropout: float = 0.0,
    row_optimizer: RowOptimizer | None = None,
    batch_size: int | None = None,
) -> keras.Model:
    """Functional model `[heads (B,), relations (B,)]` -> `(B, dim)`.

    h = E[head] + R[relation], or with `hidden_units` W2 relu(W1 [E[head]; R[relation]] + b1) + b2.

    Args:
        num_entities: rows of E.
        num_relations: rows of R.
        dim: d, of both tables and of the output.
        hidden_units: width of the hidden layer; None adds the two embeddings up.
        dropout: rate on the result.
        row_optimizer: None, or what updates the touched rows of E, which needs `batch_size`.
        batch_size: B, or None where it may change.

    Raises:
        ValueError: for a size below 1.
    """
    check_positive(num_entities=num_entities, num_relations=num_relations, dim=dim)
    heads = keras.Input(batch_shape=(batch_size,), dtype="int32", name="heads")
    relations = keras.Input(batch_shape=(batch_size,), dtype="int32", name="relations")
    scale = keras.initializers.RandomNormal(stddev=dim**-0.5)
    head = embedding(num_entities, dim, row_optimizer, scale)(heads)
    relation = layers.Embedding(num_relations, dim, embeddings_initializer=scale.clone())(relations)
    if hidden_units is None:
        hidden = layers.Add()([head, relation])
    else:
        check_positive(hidden_units=hidden_units)
        hidden = layers.Concatenate()([head, relation])
        hidden = layers.Dense(dim)(layers.Dense(hidden_units, activation="relu")(hidden))
    if dropout:
        hidden = layers.Dropout(dropout)(hidden)
    return keras.Model([heads, relations], hidden, name="pair_encoder")

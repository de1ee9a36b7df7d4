"""Users as vectors: the other factor is the class table of the head.

Shape letters: B batch, d units.
"""

import keras

from softbench.common import check_positive
from softbench.models.embedding import embedding
from softbench.rows import RowOptimizer


def matrix_factorisation(
    num_users: int,
    dim: int,
    row_optimizer: RowOptimizer | None = None,
    batch_size: int | None = None,
) -> keras.Model:
    """Functional model `users (B,)` -> `(B, d)`: the rows U[user] of a table.

    Args:
        num_users: rows of U.
        dim: d.
        row_optimizer: None, or what updates the touched rows of U, which needs `batch_size`.
        batch_size: B, or None where it may change.

    Raises:
        ValueError: for a size below 1.
    """
    check_positive(num_users=num_users, dim=dim)
    users = keras.Input(batch_shape=(batch_size,), dtype="int32", name="users")
    scale = keras.initializers.RandomNormal(stddev=dim**-0.5)
    hidden = embedding(num_users, dim, row_optimizer, scale)(users)
    return keras.Model(users, hidden, name="matrix_factorisation")

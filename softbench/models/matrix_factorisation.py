"""Users as vectors: the other factor is the class table of the head.

Shape letters: U users, n items, N interactions, B batch, d units.
"""

import keras
import numpy as np

from softbench.common import check_positive
from softbench.models.embedding import embedding
from softbench.rows import RowOptimizer


def matrix_factorisation(
    num_users: int,
    dim: int,
    row_optimizer: RowOptimizer | None = None,
    batch_size: int | None = None,
    first_rows: np.ndarray | None = None,
) -> keras.Model:
    """Functional model `users (B,)` -> `(B, d)`: the rows U[user] of a table.

    Args:
        num_users: rows of U.
        dim: d.
        row_optimizer: None, or what updates the touched rows of U, which needs `batch_size`.
        batch_size: B, or None where it may change.
        first_rows: (U, d) of the table before training, as of `spectral_rows`; None: normal, of
            norm 1 on average.

    Raises:
        ValueError: for a size below 1.
    """
    check_positive(num_users=num_users, dim=dim)
    users = keras.Input(batch_shape=(batch_size,), dtype="int32", name="users")
    if first_rows is None:
        initializer = keras.initializers.RandomNormal(stddev=dim**-0.5)
    else:
        initializer = keras.initializers.Constant(first_rows)
    hidden = embedding(num_users, dim, row_optimizer, initializer)(users)
    return keras.Model(users, hidden, name="matrix_factorisation")


def spectral_rows(
    users: np.ndarray, items: np.ndarray, num_users: int, num_items: int, dim: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Returns rows of users (U, d) and of items (n, d) to begin with, all of length 1.

    R (U, n) has 1 / sqrt(a b) where a user with `a` interactions has had an item with b of them,
    and 0 elsewhere. Of its d largest singular values s and their vectors, R ~ P diag(s) Q^T, the
    rows are the directions of those of P diag(s)^1/2 and Q diag(s)^1/2. Who has had nothing, and
    what nobody has had, gets a random direction.

    Args:
        users, items: int (N,), the two sides of each interaction.
        num_users, num_items: U and n.
        dim: d, less than both.
        seed: of the first vector of the iteration and of random directions.

    Raises:
        ValueError: for a `dim` that is not below both numbers.
    """
    import scipy.sparse as sp
    from scipy.sparse.linalg import svds

    check_positive(dim=dim)
    if dim >= min(num_users, num_items):
        raise ValueError(
            "`dim` must be less than the numbers of users and of items for spectral rows. "
            f"Received: dim={dim}, num_users={num_users}, num_items={num_items}"
        )
    rng = np.random.default_rng(seed)
    had = sp.csr_array((np.ones(len(users)), (users, items)), (num_users, num_items))
    of_users, of_items = (1 / np.sqrt(np.maximum(had.sum(axis), 1)) for axis in (1, 0))
    scaled = sp.diags_array(of_users) @ had @ sp.diags_array(of_items)
    left, values, right = svds(scaled, dim, v0=rng.normal(size=min(scaled.shape)))
    return tuple(_unit(side * np.sqrt(values), rng) for side in (left, right.T))


def _unit(rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Directions of rows; random ones of rows that are zero but for rounding."""
    is_zero = np.linalg.norm(rows, axis=1) < 1e-12 * np.abs(rows).max()
    rows = np.where(is_zero[:, None], rng.normal(size=rows.shape), rows)
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)

"""Rows of variables in bfloat16, which are rounded at random so that small changes add up.

A bfloat16 has 8 bits: a change of less than 1/512 of a number would always be rounded away. Rounded
up with the probability of what is cut off, the stored number is right on average:
E[rounded(x)] = x.
Shape letters: U distinct row ids.
"""

import warnings
from typing import Any

import keras
from keras import ops

from softbench.common import Tensor
from softbench.ops import copies_bfloat16, gather_rows, random_words, scatter_add, scatter_update

ROUNDED = "bfloat16"
TABLE_DTYPES = (None, "float32", ROUNDED)
LARGE = 2**20  # entries of a variable from which on a copy of it at every step is worth a warning
_STREAM = 0x9E3779B9  # apart from the draws of a sampler with the same seed


def check(dtype: str | None, row_optimizer: Any) -> None:
    """Raise a ValueError unless a table with this `row_optimizer` can be stored in `dtype`."""
    if dtype not in TABLE_DTYPES:
        raise ValueError(
            f"`table_dtype` must be one of {TABLE_DTYPES}. Received: table_dtype={dtype!r}"
        )
    if dtype == ROUNDED and row_optimizer is None:
        raise ValueError(
            "`table_dtype` 'bfloat16' needs a `row_optimizer`, which rounds at random: an ordinary "
            "optimizer's small changes would all be rounded away. Use "
            "`row_optimizer=softbench.RowAdagrad(...)`, or `table_dtype=None`. "
            f"Received: table_dtype={dtype!r}, row_optimizer=None"
        )


def is_rounded(variable: keras.Variable) -> bool:
    """Whether what is written to a variable is rounded at random."""
    return keras.backend.standardize_dtype(variable.dtype) == ROUNDED


def generator(seed: int | None) -> keras.random.SeedGenerator:
    """The random numbers that a table rounds with."""
    return keras.random.SeedGenerator(None if seed is None else (seed + _STREAM) % 2**31)


def warn_of_copies(variable: keras.Variable) -> None:
    """Warn where each update of some rows of a large bfloat16 variable would convert all of it."""
    if variable.shape[0] * variable.shape[1] >= LARGE and copies_bfloat16():
        warnings.warn(
            "XLA on a CPU makes a float32 copy of a bfloat16 table at every update of its rows. "
            "Set XLA_FLAGS=--xla_disable_hlo_passes=float-normalization-bf16 before the start.",
            stacklevel=3,
        )


def rounded(x: Tensor, seed: Tensor) -> Tensor:
    """float32 to one of the two bfloat16 around it: E = x. What is not finite stays.

    A float32 is a bfloat16 and 16 bits more. A random 16-bit number is added to these: it carries
    with the probability of what they stand for.
    """
    entries = ops.expand_dims(x, -1)  # TensorFlow's `view` needs a last axis of known size
    bits = ops.view(entries, "int32") + random_words(ops.shape(entries), seed)
    cut = ops.squeeze(ops.view(ops.bitwise_and(bits, -(2**16)), "float32"), -1)
    return ops.cast(ops.where(ops.isfinite(x), cut, x), ROUNDED)


def read_rows(variable: keras.Variable, ids: Tensor) -> Tensor:
    """Rows `ids` (U,), as float32."""
    return ops.cast(gather_rows(variable, ids), "float32")


def write_rows(
    variable: keras.Variable, ids: Tensor, rows: Tensor, seed: keras.random.SeedGenerator | None
) -> None:
    """Set the distinct rows `ids` (U,) of a variable to `rows` (U, ...), float32."""
    if is_rounded(variable):
        rows = rounded(rows, _needed(seed).next())
    scatter_update(variable, ids, rows)


def add_to_rows(
    variable: keras.Variable, ids: Tensor, change: Tensor, seed: keras.random.SeedGenerator | None
) -> None:
    """Add `change` (U, ...), float32, to the distinct rows `ids` (U,) of a variable."""
    if is_rounded(variable):
        write_rows(variable, ids, read_rows(variable, ids) + change, seed)
    else:
        scatter_add(variable, ids, ops.cast(change, variable.dtype))


def _needed(seed: keras.random.SeedGenerator | None) -> keras.random.SeedGenerator:
    if seed is None:
        raise ValueError(
            "`seed` must be a `keras.random.SeedGenerator` for a variable in bfloat16, whose rows "
            "are rounded at random. Received: seed=None"
        )
    return seed

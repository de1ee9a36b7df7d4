"""The work of a head for the examples that are there alone.

Shape letters: B batch (all leading dims), C capacity.
"""

import math
import numbers
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from softbench.common import Tensor
from softbench.ops import COND_COPIES, cond

_PARTS = 1024  # a share of the batch is counted in these


def check_capacity(max_valid: int | float | None) -> None:
    """Raise a ValueError unless `max_valid` is None, a number of examples or a share of them."""
    if max_valid is None:
        return
    number = isinstance(max_valid, numbers.Real) and not isinstance(max_valid, bool)
    whole = isinstance(max_valid, numbers.Integral)
    if not number or not (max_valid >= 1 if whole else 0 < max_valid <= 1):
        raise ValueError(
            "`max_valid` must be None, a number of positions (an integer >= 1) or a share of them "
            f"(a float in (0, 1]). Received: max_valid={max_valid!r}"
        )


def check_rows(max_valid: int | float | None, row_optimizer: Any) -> None:
    """Raise a ValueError if the choice of how many to compute would copy a table of rows."""
    if COND_COPIES and max_valid is not None and row_optimizer is not None:
        raise ValueError(
            "`max_valid` must be None with a `row_optimizer` on JAX, where choosing between some "
            "and all of the vectors would copy the table at every step. Use `row_optimizer=None`, "
            f"or the TensorFlow backend. Received: max_valid={max_valid}"
        )


def capacity(max_valid: int | float, batch: int | Tensor) -> int | Tensor:
    """C: how many of B examples `max_valid` is."""
    if isinstance(max_valid, numbers.Integral):
        number = int(max_valid)
        return min(number, batch) if isinstance(batch, int) else ops.minimum(number, batch)
    return (batch * math.ceil(max_valid * _PARTS) + _PARTS - 1) // _PARTS


def of_present(
    function: Callable, weight: Tensor, max_valid: int | float, arrays: tuple, variables: list
) -> Tensor:
    """`function(*arrays)` (B,), and 0 where the weight is 0.

    It is computed for C examples if no more than that have another weight, else for all B.

    Args:
        function: arrays with rows (C, ...) -> (C,); it may assign to `variables`.
        weight: (B,).
        max_valid: C, or C / B.
        arrays: structures of arrays (B, ...), or None.
        variables: Keras variables.
    """
    batch = ops.shape(weight)[0]
    rows = capacity(max_valid, batch)
    if isinstance(batch, int) and rows >= batch:
        return function(*arrays)
    present = ops.not_equal(weight, 0)
    chosen = ops.top_k(ops.cast(present, "float32"), rows)[1]

    def of_chosen() -> Tensor:
        take = lambda x: None if x is None else ops.take(x, chosen, axis=0)  # noqa: E731
        losses = function(*keras.tree.map_structure(take, arrays))
        losses = ops.where(ops.take(present, chosen), losses, 0.0)
        return ops.scatter(ops.expand_dims(chosen, -1), losses, (batch,))

    def of_all() -> Tensor:
        return ops.where(present, function(*arrays), 0.0)

    fits = ops.sum(ops.cast(present, "int32")) <= rows
    return cond(fits, of_chosen, of_all, variables)

"""Labels and weights of examples: the one rule for heads, samplers and metrics.

Labels are integers of any width in [0, n). Where their values can be seen, one out of range is a
ValueError; inside a compiled step it is told apart by `safe_ids`, and its loss is NaN. JAX has no
64-bit integers: there a compiled step sees an int64 only after JAX has cut it to 32 bits.
"""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from softbench.common import Tensor
from softbench.ops import is_concrete


def check_integers(name: str, ids: Any) -> None:
    """Raise a ValueError unless ids have an integer type."""
    dtype = keras.backend.standardize_dtype(
        ids.dtype if hasattr(ids, "dtype") else np.asarray(ids).dtype
    )
    if "int" not in dtype:
        raise ValueError(
            f"`{name}` must be integers (a `keras.Input` of {name} needs dtype='int32'). "
            f"Received dtype: {dtype}"
        )


def fits(received: tuple, expected: tuple) -> bool:
    """Whether two shapes are the same as far as they are known."""
    pairs = zip(expected, received, strict=False)
    return len(expected) == len(received) and all(
        a == b for a, b in pairs if a is not None and b is not None
    )


def check_values(name: str, ids: Any, size: int | None, weight: Any = None, first: int = 0) -> None:
    """Raise a ValueError unless ids are integers and, if concrete, in [first, size).

    Args:
        name: of the argument.
        ids: (...), an array, a tensor or a list.
        size: None where it is not known.
        weight: of the shape of ids or of its leading dimensions, or None; ids of weight 0 may be
            anything.
        first: the least valid id.
    """
    check_integers(name, ids)
    if not is_concrete(ids):
        return
    values = ops.convert_to_numpy(ids) if keras.ops.is_tensor(ids) else np.asarray(ids)
    if weight is not None and is_concrete(weight):
        present = np.asarray(ops.convert_to_numpy(weight)) != 0
        if present.shape == values.shape[: present.ndim]:
            values = values[present]
    if values.size and (values.min() < first or (size is not None and values.max() >= size)):
        rule = f"at least {first}" if size is None else f"in [{first}, {size})"
        raise ValueError(
            f"`{name}` must be {rule}. Received values from {values.min()} to {values.max()}"
        )


def check_weights(weight: Any) -> None:
    """Raise a ValueError unless weights of examples are finite and not negative, if concrete.

    A compiled step cannot see them: there a negative weight would enter the sums as it is.
    """
    if weight is None or not is_concrete(weight):
        return
    values = np.asarray(ops.convert_to_numpy(weight), np.float64)
    if not np.all((values >= 0) & (values < np.inf)):
        raise ValueError(
            "`sample_weight` must be finite and not negative (0 leaves an example out). "
            f"Received values from {values.min()} to {values.max()}"
        )


def _signed(ids: Tensor) -> Tensor:
    """Integers as int32, or int64 where they are as wide."""
    ids = ops.convert_to_tensor(ids)
    wide = "int64" in keras.backend.standardize_dtype(ids.dtype)  # or uint64
    return ops.cast(ids, "int64" if wide else "int32")


def is_any_of(ids: Any, values: Sequence[int]) -> Any:
    """Whether each of the ids (...) is one of the values, bool (...)."""
    if isinstance(ids, np.ndarray):  # a backend may cut it to fewer bits
        return np.isin(ids, values)
    ids = _signed(ids)
    found = ops.zeros_like(ids, dtype="bool")
    for value in values:
        found = ops.logical_or(found, ops.equal(ids, value))
    return found


def safe_ids(ids: Tensor, size: int | None, first: int = 0) -> tuple[Tensor, Tensor]:
    """`ids` as int32, 0 where they are not in [first, size), and whether they are, both (...)."""
    ids = _signed(ids)
    size = 2**31 - 1 if size is None else size
    valid = ops.logical_and(ids >= first, ids < size)
    return ops.where(valid, ops.cast(ids, "int32"), 0), valid

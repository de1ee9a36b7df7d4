"""What all modules share: the package's name in saved models, `Tensor`, checks of arguments."""

import math
import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np

PACKAGE = "softbench"  # under which Keras registers the classes
BACKENDS = ("tensorflow", "jax")  # those of Keras that softbench runs on
Tensor = Any  # of either backend


def check_positive(**sizes: Any) -> None:
    """Raises ValueError unless every named size is an integer of at least 1."""
    for name, value in sizes.items():
        if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
            raise ValueError(f"`{name}` must be an integer >= 1. Received: {name}={value!r}")


def check_number(minimum: float, exclusive: bool = False, **values: float) -> None:
    """Raises ValueError unless every named value is finite and at least (or above) `minimum`."""
    for name, value in values.items():
        valid = isinstance(value, numbers.Real) and not isinstance(value, bool)
        valid = valid and math.isfinite(value)
        if not (valid and (value > minimum if exclusive else value >= minimum)):
            relation = ">" if exclusive else ">="
            raise ValueError(
                f"`{name}` must be a finite number {relation} {minimum:g}. "
                f"Received: {name}={value!r}"
            )


def check_counts(counts: Sequence[float], name: str = "counts") -> np.ndarray:
    """Counts as float64 (n,), or a ValueError that names what is wrong with argument `name`."""
    array = np.asarray(counts, np.float64)
    if array.ndim != 1:
        raise ValueError(f"`{name}` must be one number per class. Received shape: {array.shape}")
    if not np.all(np.isfinite(array)) or np.any(array < 0):
        raise ValueError(
            f"`{name}` must be finite and not negative. Received a minimum of {array.min()} and "
            f"{int((~np.isfinite(array)).sum())} values that are not finite"
        )
    if not array.any():
        raise ValueError(
            f"`{name}` must not be all zero. Received {len(array)} counts that sum to 0"
        )
    return array


def check_length(counts: np.ndarray, units: int, name: str = "counts") -> None:
    """Raise a ValueError unless there is one count for each class."""
    if len(counts) != units:
        raise ValueError(
            f"`{name}` must have one entry for each of the {units} classes. "
            f"Received: {len(counts)} entries"
        )


def count_weights(counts: np.ndarray, power: float) -> np.ndarray:
    """counts ** power (n,) up to a factor; 0 where the count is 0, whatever the power.

    A positive count has a positive weight, however small a part of the largest it is.
    """
    seen = counts > 0
    weights = np.where(seen, counts / counts.max(), 1.0) ** power
    return np.where(seen, np.maximum(weights, np.finfo(float).tiny), 0.0)

"""Checks of arguments that several modules share."""

import math
import numbers


def check_positive(**sizes: int) -> None:
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

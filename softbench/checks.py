"""Checks of arguments that several modules share."""

import numpy as np


def check_positive(**sizes: int) -> None:
    """Raises ValueError unless every named size is an integer of at least 1."""
    for name, value in sizes.items():
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
            raise ValueError(f"`{name}` must be an integer >= 1. Received: {name}={value!r}")

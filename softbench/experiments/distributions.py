"""Draws from tables of conditional distributions. NumPy, needs no Keras."""

import numpy as np


def draw(conditional: np.ndarray, rows: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Classes, shaped like `uniform`, from the rows of a table.

    Args:
        conditional: (X, n), each row sums to 1.
        rows: (S,), the row that each sample is drawn from.
        uniform: (S,) or (S, m), uniform numbers in [0, 1).
    """
    steps = np.cumsum(conditional, axis=-1)
    steps[:, -1] = 1.0
    # The rows one after the other, row r on [r, r + 1): one search finds a class of any of them.
    line = (steps + np.arange(len(conditional))[:, None]).ravel()
    rows = rows.reshape(-1, *(1,) * (uniform.ndim - 1))
    found = np.searchsorted(line, rows + uniform, side="right")
    return np.minimum(found - rows * conditional.shape[1], conditional.shape[1] - 1)

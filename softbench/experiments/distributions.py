"""Tables of conditional laws: softmax, draws, and means over the samples. NumPy, needs no Keras."""

from typing import NamedTuple

import numpy as np


class Estimate(NamedTuple):
    """A mean over samples, and its standard error."""

    mean: float
    error: float


def estimate(values: np.ndarray) -> Estimate:
    """The mean of values (S,) and its standard error."""
    return Estimate(float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))))


def softmax(scores: np.ndarray) -> np.ndarray:
    """Softmax of the rows of scores (X, n)."""
    mass = np.exp(scores - scores.max(-1, keepdims=True))
    return mass / mass.sum(-1, keepdims=True)


def draw(law: np.ndarray, rows: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Classes, shaped like `uniform`, from the rows of a table of laws.

    Args:
        law: (X, n), each row sums to 1.
        rows: (S,), the row that each sample is drawn from.
        uniform: (S,) or (S, m), uniform numbers in [0, 1).
    """
    steps = np.cumsum(law, axis=-1)
    steps[:, -1] = 1.0
    # The rows one after the other, row r on [r, r + 1): one search finds a class of any of them.
    line = (steps + np.arange(len(law))[:, None]).ravel()
    rows = rows.reshape(-1, *(1,) * (uniform.ndim - 1))
    found = np.searchsorted(line, rows + uniform, side="right")
    return np.minimum(found - rows * law.shape[1], law.shape[1] - 1)

"""Tables of conditional laws: softmax, draws, and means over the samples. NumPy, needs no Keras."""

from typing import NamedTuple

import numpy as np

from softbench.datasets.draws import draw_rows as draw

__all__ = ["Estimate", "draw", "estimate", "softmax"]


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

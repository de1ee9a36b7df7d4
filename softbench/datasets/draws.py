"""Seeded draws that the generated data sets and the batches share (NumPy only)."""

import numpy as np


def random_generator(*seed: int) -> np.random.Generator:
    """PCG64 generator of a tuple of seeds, the same on every platform."""
    return np.random.Generator(np.random.PCG64(seed))


def zipf(size: int, exponent: float, offset: float) -> np.ndarray:
    """Probabilities proportional to `(rank + 1 + offset) ** -exponent`, ranks from 0."""
    weights = (np.arange(size) + 1.0 + offset) ** -exponent
    return weights / weights.sum()


def draw(generator: np.random.Generator, weights: np.ndarray, size: int) -> np.ndarray:
    """Draws ids by bisection of the float64 cumulative sum."""
    cumulative = np.cumsum(weights)
    ids = np.searchsorted(cumulative, generator.random(size) * cumulative[-1], side="right")
    return np.minimum(ids, len(weights) - 1)

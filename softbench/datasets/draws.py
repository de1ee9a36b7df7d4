"""Seeded draws of ids by bisection of float64 cumulative sums (NumPy only)."""

import numpy as np

SLOTS = np.array([0.5, 0.25, 0.15, 0.1])  # of what may follow, in the generated data sets


def random_generator(*seed: int) -> np.random.Generator:
    """PCG64 generator of a tuple of seeds, the same on every platform."""
    return np.random.Generator(np.random.PCG64(seed))


def zipf(size: int, exponent: float, offset: float) -> np.ndarray:
    """Probabilities proportional to `(rank + 1 + offset) ** -exponent`, ranks from 0."""
    weights = (np.arange(size) + 1.0 + offset) ** -exponent
    return weights / weights.sum()


def draw(
    generator: np.random.Generator, weights: np.ndarray, size: int | tuple[int, ...]
) -> np.ndarray:
    """Ids of shape `size`, each with a probability proportional to its weight; never one of 0.

    Args:
        generator: of the draws, one uniform number each.
        weights: `(n,)`, of any sum.
        size: shape of the result.
    """
    cumulative = np.cumsum(weights)
    ids = np.searchsorted(cumulative, generator.random(size) * cumulative[-1], side="right")
    return np.minimum(ids, np.flatnonzero(weights)[-1])


def draw_rows(table: np.ndarray, rows: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Ids, shaped like `uniform`, from rows of a table of distributions.

    Args:
        table: `(X, n)`, each row sums to 1.
        rows: `(S,)`, the row that each sample is drawn from.
        uniform: `(S,)` or `(S, m)`, uniform numbers in [0, 1).
    """
    steps = np.cumsum(table, axis=-1)
    steps[:, -1] = 1.0
    # The rows one after the other, row r on [r, r + 1): one search finds an id of any of them.
    line = (steps + np.arange(len(table))[:, None]).ravel()
    rows = rows.reshape(-1, *(1,) * (uniform.ndim - 1))
    index = np.searchsorted(line, rows + uniform, side="right")
    return np.minimum(index - rows * table.shape[1], table.shape[1] - 1)

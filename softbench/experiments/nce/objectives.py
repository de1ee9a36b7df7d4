"""Objectives of noise-contrastive estimation over a finite X x Y, in float64 NumPy. Needs no Keras.

A model is a table of scores s(x, y), linear in its parameters. Objectives are minimised, means over
the data points, and give their value and their gradient with respect to the table.

Shape letters: X inputs, Y classes, N data points, K draws of noise for each, P parameters.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import optimize, sparse

from softbench.experiments import distributions as laws

Design = np.ndarray | sparse.spmatrix
Objective = Callable[[np.ndarray], tuple[float, np.ndarray]]

_OPTIONS = {"maxiter": 1000, "maxfun": 2000, "maxcor": 30, "ftol": 1e-15}
# Of the derivatives of a mean over the points: the search stops at the first, then at the second.
_TOLERANCES = (1e-6, 1e-8)
_MOST_CHANGE = 1.0  # in nats, of a score between the two


class Sample(NamedTuple):
    """Data points and their noise: inputs (N,), classes (N,) and noise (N, K), as ids."""

    inputs: np.ndarray
    classes: np.ndarray
    noise: np.ndarray


class Fit(NamedTuple):
    """Where the search ended.

    Attributes:
        parameters: (P,).
        gradient: largest |derivative| there.
        iterations: of L-BFGS.
        converged: whether it is a minimum. Data that the model separates have none: the objective
            falls for ever, its gradient too, and the scores grow by the logarithm of its fall.
    """

    parameters: np.ndarray
    gradient: float
    iterations: int
    converged: bool


def draw(
    law: np.ndarray, noise: np.ndarray, size: int, num_noise: int, rng: np.random.Generator
) -> Sample:
    """Returns `size` points, x uniform and y ~ law[x] (X, Y), each with K draws of noise (Y,)."""
    inputs = rng.integers(len(law), size=size)
    classes = laws.draw(law, inputs, rng.random(size))
    drawn = laws.draw(noise[None], np.zeros(size, int), rng.random((size, num_noise)))
    return Sample(inputs, classes, drawn)


def positives(sample: Sample, shape: tuple[int, int]) -> np.ndarray:
    """Counts (X, Y) of the data points."""
    cells = sample.inputs * shape[1] + sample.classes
    return np.bincount(cells, minlength=shape[0] * shape[1]).reshape(shape).astype(float)


def negatives(sample: Sample, shape: tuple[int, int]) -> np.ndarray:
    """Counts (X, Y) of the draws of noise."""
    cells = (sample.inputs[:, None] * shape[1] + sample.noise).ravel()
    return np.bincount(cells, minlength=shape[0] * shape[1]).reshape(shape).astype(float)


def candidates(sample: Sample, shape: tuple[int, int]) -> sparse.csr_matrix:
    """How often each cell is among the true class and the draws of each point (N, X Y)."""
    size, classes = len(sample.inputs), sample.classes[:, None]
    classes = np.concatenate([classes, sample.noise], axis=-1)
    times = np.ones(classes.size)
    if classes.shape[1] > shape[1]:
        # Fewer classes than draws: a count of each class is the shorter row.
        cells = (np.arange(size)[:, None] * shape[1] + classes).ravel()
        times = np.bincount(cells, minlength=size * shape[1]).astype(float)
        classes = np.broadcast_to(np.arange(shape[1]), (size, shape[1]))
    cells = (sample.inputs[:, None] * shape[1] + classes).ravel()
    ends = np.arange(0, cells.size + 1, classes.shape[1])
    return sparse.csr_matrix((times, cells, ends), shape=(size, shape[0] * shape[1]))


def likelihood(positive: np.ndarray) -> Objective:
    """-1/N sum_i log p(y_i | x_i), p the softmax of the scores.

    Args:
        positive: counts (X, Y) of the data points, or their probabilities.
    """
    size, rows = positive.sum(), positive.sum(-1, keepdims=True)

    def objective(table: np.ndarray) -> tuple[float, np.ndarray]:
        top = table.max(-1, keepdims=True)
        mass = np.exp(table - top)
        total = mass.sum(-1, keepdims=True)
        value = np.sum(rows * (np.log(total) + top)) - np.sum(positive * table)
        return float(value / size), (rows * mass / total - positive) / size

    return objective


def ranking(sample: Sample, log_noise: np.ndarray, shape: tuple[int, int]) -> Objective:
    """-1/N sum_i log exp(s_bar(x_i, y_i)) / sum_k exp(s_bar(x_i, y_ik)), s_bar = s - log p_N.

    The sum is over the true class and the K draws (Ma & Collins 2018, figure 1).

    Args:
        sample: the points and their draws.
        log_noise: log p_N (Y,).
        shape: (X, Y).
    """
    size, sets = len(sample.inputs), candidates(sample, shape)
    back = sets.T.tocsr()
    positive = positives(sample, shape)
    rows = positive.sum(-1, keepdims=True)

    def objective(table: np.ndarray) -> tuple[float, np.ndarray]:
        corrected = table - log_noise
        top = corrected.max(-1, keepdims=True)
        mass = np.exp(corrected - top)
        total = sets @ mass.ravel()
        if not total.all():  # scores 745 nats apart: the search went too far
            return np.inf, np.zeros(shape)
        value = np.log(total).sum() + np.sum(rows * top) - np.sum(positive * corrected)
        gradient = mass * (back @ (1 / total)).reshape(shape) - positive
        return float(value / size), gradient / size

    return objective


def binary(
    positive: np.ndarray, negative: np.ndarray, log_noise: np.ndarray, num_noise: int
) -> Objective:
    """-1/N sum_i [log g(x_i, y_i) + sum_k log(1 - g(x_i, y_ik))], g = sigmoid(s_bar - log K).

    gamma and b_x are parameters of the scores (Ma & Collins 2018, figure 1). The terms of a cell
    are all alike, so that counts are enough.

    Args:
        positive: counts (X, Y) of the data points, or their probabilities p(x, y).
        negative: counts (X, Y) of the draws, or K p(x) p_N(y).
        log_noise: log p_N (Y,).
        num_noise: K.
    """
    size, both = positive.sum(), positive + negative

    def objective(table: np.ndarray) -> tuple[float, np.ndarray]:
        odds = table - log_noise - np.log(num_noise)
        value = np.sum(both * np.logaddexp(0.0, odds)) - np.sum(positive * odds)
        sigmoid = np.exp(-np.logaddexp(0.0, -odds))
        return float(value / size), (both * sigmoid - positive) / size

    return objective


def minimise(
    objective: Objective,
    design: Design,
    shape: tuple[int, int],
    offset: np.ndarray | float = 0.0,
) -> Fit:
    """Minimises over the parameters v of the scores s = design v + offset, from v = 0, by L-BFGS.

    Args:
        objective: of a table (X, Y).
        design: d s / d v, (X Y, P).
        shape: (X, Y).
        offset: (X, Y), or a scalar: the part of the scores without parameters.
    """
    transposed = design.T.tocsr() if sparse.issparse(design) else design.T

    def table(parameters: np.ndarray) -> np.ndarray:
        return (design @ parameters).reshape(shape) + offset

    def function(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = objective(table(parameters))
        return value, transposed @ gradient.ravel()

    parameters, iterations, tables = np.zeros(design.shape[1]), 0, []
    for tolerance in _TOLERANCES:
        options = _OPTIONS | {"gtol": tolerance}
        found = optimize.minimize(
            function, parameters, jac=True, method="L-BFGS-B", options=options
        )
        parameters, iterations = found.x, iterations + int(found.nit)
        tables.append(table(parameters))
    slope = float(np.abs(found.jac).max())
    change = float(np.abs(tables[1] - tables[0]).max())
    converged = slope < _TOLERANCES[0] and change < _MOST_CHANGE
    return Fit(parameters, slope, iterations, bool(converged))


def unnormalised_divergence(law: np.ndarray, scores: np.ndarray) -> float:
    """sum_y p log(p / q) - p + q, q = exp(scores) as it is, in nats, mean over the inputs.

    0 at q = p alone; the KL divergence if q is normalised.
    """
    terms = law * (np.log(law) - scores) - law + np.exp(scores)
    return float(np.mean(np.sum(terms, axis=-1)))


def divergence(law: np.ndarray, scores: np.ndarray) -> float:
    """KL(p || softmax of the scores) in nats, mean over the inputs; both (X, Y)."""
    top = scores.max(-1, keepdims=True)
    log_model = scores - top - np.log(np.exp(scores - top).sum(-1, keepdims=True))
    return float(np.mean(np.sum(law * (np.log(law) - log_model), axis=-1)))

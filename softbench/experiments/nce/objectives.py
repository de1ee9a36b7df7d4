"""Objectives of noise-contrastive estimation over a finite X x Y, in float64 NumPy. Needs no Keras.

A model is a table of scores s(x, y), linear in its parameters. Objectives are minimised, means over
the data points, and give their value and their gradient with respect to the table.

Shape letters: X inputs, Y classes, N data points, K draws of noise for each, P parameters.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
from scipy import optimize, sparse, special

from softbench.datasets import draws

Design = np.ndarray | sparse.spmatrix
Objective = Callable[[np.ndarray], tuple[float, np.ndarray]]

_OPTIONS = {"maxiter": 1000, "maxfun": 2000, "maxcor": 30, "ftol": 1e-15}
# Of the derivatives of a mean over the points: the search stops at the first, then at the second.
_TOLERANCES = (1e-6, 1e-8)
_MOST_CHANGE = 1.0  # in nats, of a score between the two


class Sample(NamedTuple):
    """Data points and their noise: inputs (N,), classes (N,) and noise (N, K), as ids of X, Y."""

    inputs: np.ndarray
    classes: np.ndarray
    noise: np.ndarray
    shape: tuple[int, int]


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
    conditional: np.ndarray, noise: np.ndarray, size: int, num_noise: int, rng: np.random.Generator
) -> Sample:
    """`size` points, x uniform and y ~ conditional[x] (X, Y), each with K draws of noise (Y,)."""
    inputs = rng.integers(len(conditional), size=size)
    classes = draws.draw_rows(conditional, inputs, rng.random(size))
    uniform = rng.random((size, num_noise))
    drawn = draws.draw_rows(noise[None], np.zeros(size, int), uniform)
    return Sample(inputs, classes, drawn, conditional.shape)


def positives(sample: Sample) -> np.ndarray:
    """Counts (X, Y) of the data points."""
    return _counts(sample, sample.classes[:, None])


def negatives(sample: Sample) -> np.ndarray:
    """Counts (X, Y) of the draws of noise."""
    return _counts(sample, sample.noise)


def _counts(sample: Sample, classes: np.ndarray) -> np.ndarray:
    cells = (sample.inputs[:, None] * sample.shape[1] + classes).ravel()
    counts = np.bincount(cells, minlength=sample.shape[0] * sample.shape[1])
    return counts.reshape(sample.shape).astype(float)


def _candidates(sample: Sample) -> sparse.csr_matrix:
    """How often each cell is among the true class and the draws of each point (N, X Y)."""
    size, num_classes = len(sample.inputs), sample.shape[1]
    classes = np.concatenate([sample.classes[:, None], sample.noise], axis=-1)
    times = np.ones(classes.size)
    if classes.shape[1] > num_classes:
        # Fewer classes than draws: a count of each class is the shorter row.
        cells = (np.arange(size)[:, None] * num_classes + classes).ravel()
        times = np.bincount(cells, minlength=size * num_classes).astype(float)
        classes = np.broadcast_to(np.arange(num_classes), (size, num_classes))
    cells = (sample.inputs[:, None] * num_classes + classes).ravel()
    ends = np.arange(0, cells.size + 1, classes.shape[1])
    return sparse.csr_matrix((times, cells, ends), (size, sample.shape[0] * num_classes))


def likelihood(positive: np.ndarray) -> Objective:
    """-1/N sum_i log p(y_i | x_i), p the softmax of the scores.

    `positive` (X, Y) are the counts of the data points, or their probabilities.
    """
    size, rows = positive.sum(), positive.sum(-1, keepdims=True)

    def objective(table: np.ndarray) -> tuple[float, np.ndarray]:
        top = table.max(-1, keepdims=True)
        mass = np.exp(table - top)
        total = mass.sum(-1, keepdims=True)
        value = np.sum(rows * (np.log(total) + top)) - np.sum(positive * table)
        return float(value / size), (rows * mass / total - positive) / size

    return objective


def ranking(sample: Sample, log_noise: np.ndarray) -> Objective:
    """-1/N sum_i log exp(s_bar(x_i, y_i)) / sum_k exp(s_bar(x_i, y_ik)), s_bar = s - log p_N.

    The sum is over the true class and the K draws (Ma & Collins 2018, figure 1); `log_noise` (Y,).
    """
    size, sets, positive = len(sample.inputs), _candidates(sample), positives(sample)
    back, rows = sets.T.tocsr(), positive.sum(-1, keepdims=True)

    def objective(table: np.ndarray) -> tuple[float, np.ndarray]:
        corrected = table - log_noise
        top = corrected.max(-1, keepdims=True)
        mass = np.exp(corrected - top)
        total = sets @ mass.ravel()
        if not total.all():  # scores 745 nats apart: the search went too far
            return np.inf, np.zeros(sample.shape)
        value = np.log(total).sum() + np.sum(rows * top) - np.sum(positive * corrected)
        gradient = mass * (back @ (1 / total)).reshape(sample.shape) - positive
        return float(value / size), gradient / size

    return objective


def binary(
    positive: np.ndarray, negative: np.ndarray, log_noise: np.ndarray, num_noise: int
) -> Objective:
    """-1/N sum_i [log g(x_i, y_i) + sum_k log(1 - g(x_i, y_ik))], g = sigmoid(s_bar - log K).

    gamma and b_x are parameters of the scores (Ma & Collins 2018, figure 1). The terms of a cell
    are all equal, so that counts are enough.

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


def objective(kind: str, sample: Sample, log_noise: np.ndarray) -> Objective:
    """The objective `kind` on data: "likelihood", "ranking" or "binary"; `log_noise` (Y,)."""
    if kind == "likelihood":
        return likelihood(positives(sample))
    if kind == "ranking":
        return ranking(sample, log_noise)
    if kind == "binary":
        return binary(positives(sample), negatives(sample), log_noise, sample.noise.shape[1])
    raise ValueError(f"`objective` must be likelihood, ranking or binary. Received: {kind!r}")


def minimise(objective: Objective, design: Design, offset: np.ndarray) -> Fit:
    """Minimises over the parameters v of the scores s = design v + offset, from v = 0, by L-BFGS.

    Args:
        objective: of a table (X, Y).
        design: d s / d v, (X Y, P).
        offset: (X, Y), the term of the scores without parameters.
    """
    transposed = design.T.tocsr() if sparse.issparse(design) else design.T

    def table(parameters: np.ndarray) -> np.ndarray:
        return (design @ parameters).reshape(offset.shape) + offset

    def function(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = objective(table(parameters))
        return value, transposed @ gradient.ravel()

    parameters, iterations, tables = np.zeros(design.shape[1]), 0, []
    for tolerance in _TOLERANCES:
        options = _OPTIONS | {"gtol": tolerance}
        minimum = optimize.minimize(
            function, parameters, jac=True, method="L-BFGS-B", options=options
        )
        parameters, iterations = minimum.x, iterations + int(minimum.nit)
        tables.append(table(parameters))
    slope = float(np.abs(minimum.jac).max())
    change = float(np.abs(tables[1] - tables[0]).max())
    converged = slope < _TOLERANCES[0] and change < _MOST_CHANGE
    return Fit(parameters, slope, iterations, bool(converged))


def sizes(method: Mapping, negatives: list[int]) -> dict[str, int | None]:
    """{key in a record: K} of the K at which a method is fitted; "-" of maximum likelihood."""
    if method["objective"] == "likelihood":
        return {"-": None}
    return {str(k): k for k in negatives}


def fits(
    methods: Mapping[str, Mapping],
    negatives: list[int],
    sample: Sample,
    noise: np.ndarray,
    designs: Mapping[str, Design],
    offset: np.ndarray,
) -> Iterator[tuple[str, str, Fit]]:
    """Minimises every method's objective at every K: its name, the key of K, and the minimum.

    The first K draws of each point are those of a method; `noise` is p_N (Y,), `designs` are
    {name: d s / d parameters (X Y, P)}, and `offset` (X, Y) is that of `minimise`.
    """
    for name, method in methods.items():
        for key, num_noise in sizes(method, negatives).items():
            subset = sample._replace(noise=sample.noise[:, :num_noise])
            function = objective(method["objective"], subset, np.log(noise))
            yield name, key, minimise(function, designs[name], offset)


def divergence(conditional: np.ndarray, scores: np.ndarray) -> float:
    """KL(p || softmax of the scores) in nats, mean over the inputs; both (X, Y)."""
    log_ratio = np.log(conditional) - special.log_softmax(scores, axis=-1)
    return float(np.mean(np.sum(conditional * log_ratio, axis=-1)))


def unnormalised_divergence(conditional: np.ndarray, scores: np.ndarray) -> float:
    """sum_y p log(p / q) - p + q, q = exp(scores) as it is, in nats, mean over the inputs.

    0 at q = p alone; the KL divergence if q is normalised.
    """
    terms = conditional * (np.log(conditional) - scores) - conditional + np.exp(scores)
    return float(np.mean(np.sum(terms, axis=-1)))

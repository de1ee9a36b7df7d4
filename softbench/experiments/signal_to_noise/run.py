"""The task "signal_to_noise": Bamler & Mandt's Theorem 2, in closed form and by Monte Carlo.

In the nonparametric limit the scores xi (X, n) are the parameters. At the minimum of negative
sampling the signal-to-noise ratio eta = 1 / Tr(Cov[g] H^-1) of its stochastic gradient g depends on
the noise p_n alone, and is largest at p_n = p_D.

Shape letters: X inputs (each one data point, so N = X), n classes, m negatives, S samples.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import softmax

from softbench import losses
from softbench.bench.job import Job
from softbench.datasets import draws
from softbench.experiments import library

_CHUNK = 250_000  # samples whose gradients are held at once
_UNIFORM = 0.2  # the share of uniform draws


class Estimate(NamedTuple):
    """A mean over samples, and its standard error."""

    mean: float
    error: float


def run(job: Job) -> None:
    """Measures every noise distribution of the cell; fills `job.result`."""
    config, result = job.config, job.result
    dataset, options = config["dataset"], job.options
    rng = np.random.default_rng(config["seed"])
    shape = (dataset["num_inputs"], dataset["num_classes"])
    data = softmax(dataset["sharpness"] * rng.normal(size=shape), axis=-1)
    result["num_inputs"], result["num_classes"] = shape
    result["samples"], result["noise"] = options["samples"], {}
    for name, method in config["methods"].items():
        noise = noise_of(method, data)
        measures = {"kl": float(np.sum(data * np.log(data / noise)) / len(data)), "negatives": {}}
        for size in options["negatives"]:
            estimate = monte_carlo(data, noise, size, options["samples"], rng)
            measures["negatives"][str(size)] = {
                "closed_form": closed_form(data, noise, size),
                "monte_carlo": estimate.mean,
                "error": estimate.error,
            }
        result["noise"][name] = measures


def noise_of(method: dict, data: np.ndarray) -> np.ndarray:
    """p_n (X, n) of a method, from p_D (X, n).

    Args:
        method: {"noise": "mixture", "t"} for (1 - t) uniform + t p_D; {"noise": "power", "s"} for
            p_D^s, normalised; {"noise": "frequency"} for the mean of p_D over the inputs.
        data: p_D.
    """
    kind = method["noise"]
    if kind == "mixture":
        return (1 - method["t"]) / data.shape[1] + method["t"] * data
    if kind == "power":
        return softmax(method["s"] * np.log(data), axis=-1)
    if kind == "frequency":
        return np.broadcast_to(data.mean(0), data.shape)
    raise ValueError(f"`noise` must be mixture, power or frequency. Received: {kind!r}")


def closed_form(data: np.ndarray, noise: np.ndarray, num_negatives: int = 1) -> float:
    """1 / eta = N sum_x [n - 2 sum_y alpha_xy], alpha = p_D p_n / (p_D + p_n) (eq. 15, m = 1).

    With the mean over m negatives, the terms of two negatives of one sample enter the covariance
    (the derivation is that of the paper's appendix): 1 / eta =
    N sum_xy [sigma(-xi) + sigma(xi) / m - (1 + 1 / m) alpha], xi = log p_D - log p_n. Beyond m = 1
    Theorem 2 does not hold: noise that costs nothing need not be close to the data.

    Args:
        data: p_D (X, n).
        noise: p_n (X, n).
        num_negatives: m.
    """
    positive = data / (data + noise)  # sigma(xi)
    alpha = noise * positive
    share = 1 / num_negatives
    return float(len(data) * np.sum(1 - positive + share * positive - (1 + share) * alpha))


def monte_carlo(
    data: np.ndarray,
    noise: np.ndarray,
    num_negatives: int,
    num_samples: int,
    rng: np.random.Generator,
) -> Estimate:
    """Tr(Cov[g] H^-1) = E[sum_xy g_xy^2 / H_xy], from gradients g of the library's objective.

    g is the gradient of N times the loss of one positive (x, y) ~ D and m negatives, at the
    minimum, where its mean is 0. H = (p_D + p_n) sigma(xi) sigma(-xi), from eq. A4.

    A class of probability p adds about 1 / p when it is drawn, so plain draws would miss most of
    the mean of a sharp noise. A fifth of the draws are therefore uniform, and samples are weighted.
    """
    total = square = 0.0
    for start in range(0, num_samples, _CHUNK):
        size = min(_CHUNK, num_samples - start)
        x = rng.integers(len(data), size=size)
        y, of_y = draw(data, x, 1, rng)
        negatives, of_negatives = draw(noise, x, num_negatives, rng)
        values = norms(data, noise, x, np.concatenate([y, negatives], axis=-1))
        values = values * of_y[:, 0] * of_negatives.prod(-1)
        total, square = total + values.sum(), square + np.square(values).sum()
    mean = total / num_samples
    variance = max(square / num_samples - mean**2, 0.0)
    return Estimate(float(mean), float(np.sqrt(variance / num_samples)))


def draw(
    table: np.ndarray, x: np.ndarray, size: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Classes (S, size) from the rows x (S,) of a table (X, n) made flatter, and their weights."""
    flat = (1 - _UNIFORM) * table + _UNIFORM / table.shape[1]
    ids = draws.draw_rows(flat, x, rng.random((len(x), size)))
    return ids, (table / flat)[x[:, None], ids]


def norms(data: np.ndarray, noise: np.ndarray, x: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """sum_y g_y^2 / H_y (S,) of samples; draws of one class add up before they are squared.

    Args:
        data, noise: p_D and p_n (X, n).
        x: (S,).
        ids: (S, 1 + m), the positive first.
    """
    rows, xi = x[:, None], np.log(data) - np.log(noise)
    sigma = data / (data + noise)
    hessian = (data + noise) * sigma * (1 - sigma)
    counts = np.log(noise)[rows, ids] + np.log(ids.shape[1] - 1)
    evaluated = library.evaluate(losses.negative_sampling, xi[rows, ids], counts)
    gradient = len(data) * evaluated.gradient
    same = ids[:, :, None] == ids[:, None, :]
    products = np.sum(same * gradient[:, :, None] * gradient[:, None, :], axis=-1)
    return np.sum(products / hessian[rows, ids], axis=-1)

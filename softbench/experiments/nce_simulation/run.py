"""The task "nce_simulation": Ma & Collins 2018, section 5.1, by exact optimisation in float64.

p(y|x) is the softmax of x' theta_y, x and theta from mixtures of Gaussians. Every estimate is the
minimum of its objective by L-BFGS, and its error KL(p(y|x) || softmax of the scores), mean over x.

Shape letters: X inputs, Y classes, N data points, K draws of noise, d features of an input.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from scipy import sparse, special

from softbench.bench.job import Job
from softbench.experiments.nce import objectives

_MOST_INPUTS = 1000


class Problem(NamedTuple):
    """The truth: inputs (X, d), theta (Y, d), p(y|x) (X, Y) and p_N (Y,)."""

    inputs: np.ndarray
    parameters: np.ndarray
    conditional: np.ndarray
    noise: np.ndarray


def run(job: Job) -> None:
    """Fits every method at every X, N and K of the cell; fills `job.result`."""
    config, result = job.config, job.result
    result["num_classes"], result["inputs"] = config["dataset"]["num_classes"], {}
    for num_inputs in config["dataset"]["num_inputs"]:
        problem = make_problem(config["dataset"], num_inputs, config["seed"])
        measures = {"kl": {}, "unnormalised": {}}
        result["inputs"][str(num_inputs)] = measures
        for size in job.options["sizes"]:
            kl, unnormalised = _fits(config, problem, size)
            measures["kl"][str(size)], measures["unnormalised"][str(size)] = kl, unnormalised


def _fits(config: Mapping, problem: Problem, size: int) -> tuple[dict, dict]:
    """{method: {K: KL}}, None where there is no minimum; the same of exp(s) as it is.

    The latter of methods with b_x, whose exp(s) is an estimate of p(y|x) without normalisation.
    """
    methods, negatives = config["methods"], config["options"]["negatives"]
    kl, unnormalised = {}, {}
    # One stream for each N: more sizes leave the others as they are.
    rng = np.random.default_rng([config["seed"], len(problem.inputs), size])
    truth, noise = problem.conditional, problem.noise
    sample = objectives.draw(truth, noise, size, max(negatives), rng)
    biases = {name: method.get("bias") for name, method in methods.items()}
    designs = {name: design(problem, bias) for name, bias in biases.items()}
    zeros = np.zeros(truth.shape)
    for name, key, fit in objectives.fits(methods, negatives, sample, noise, designs, zeros):
        scores = (designs[name] @ fit.parameters).reshape(truth.shape)
        value = objectives.divergence(truth, scores) if fit.converged else None
        kl.setdefault(name, {})[key] = value
        if biases[name] == "input":
            value = objectives.unnormalised_divergence(truth, scores) if fit.converged else None
            unnormalised.setdefault(name, {})[key] = value
    return kl, unnormalised


def make_problem(dataset: Mapping, num_inputs: int, seed: int) -> Problem:
    """Returns the problem of a seed.

    Args:
        dataset: {"num_classes": Y, "dim": d, "components", "centre": standard deviation of the
            centres, "spread": that around them, "noise": "uniform" or "marginal"}.
        num_inputs: X; the first X of the same points for every X.
        seed: of both mixtures.
    """
    rng = np.random.default_rng([seed, 0])
    inputs = mixture(dataset, _MOST_INPUTS, rng)[:num_inputs]
    parameters = mixture(dataset, dataset["num_classes"], rng)
    conditional = special.softmax(inputs @ parameters.T, axis=-1)
    if dataset["noise"] not in ("uniform", "marginal"):
        raise ValueError(f"`noise` must be uniform or marginal. Received: {dataset['noise']!r}")
    noise = np.full(len(parameters), 1 / len(parameters))
    if dataset["noise"] == "marginal":
        noise = conditional.mean(0)
    return Problem(inputs, parameters, conditional, noise)


def mixture(dataset: Mapping, size: int, rng: np.random.Generator) -> np.ndarray:
    """Returns `size` points (size, d) of a mixture with equal weights."""
    centres = dataset["centre"] * rng.normal(size=(dataset["components"], dataset["dim"]))
    chosen = centres[rng.integers(dataset["components"], size=size)]
    return chosen + dataset["spread"] * rng.normal(size=(size, dataset["dim"]))


def design(problem: Problem, bias: str | None) -> sparse.csr_matrix:
    """Returns d s / d parameters (X Y, P) of s = x' theta_y + bias.

    Args:
        problem: gives x.
        bias: None; "shared" for one (gamma), "input" for one of each x (b_x).
    """
    num_inputs, num_classes = problem.conditional.shape
    blocks = [sparse.kron(problem.inputs, sparse.identity(num_classes))]
    if bias == "shared":
        blocks.append(sparse.csr_matrix(np.ones((num_inputs * num_classes, 1))))
    elif bias == "input":
        blocks.append(sparse.kron(sparse.identity(num_inputs), np.ones((num_classes, 1))))
    return sparse.hstack(blocks).tocsr()

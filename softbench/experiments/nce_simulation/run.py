"""The task "nce_simulation": Ma & Collins 2018, section 5.1, by exact optimisation in float64.

p(y|x) is the softmax of x' theta_y, x and theta from mixtures of Gaussians. Every estimate is the
minimum of its objective by L-BFGS, and its error KL(p(y|x) || softmax of the scores), mean over x.

Shape letters: X inputs, Y classes, N data points, K draws of noise, d features of an input.
"""

from collections.abc import Iterator, Mapping
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

    def draw(self, size: int, num_noise: int, rng: np.random.Generator) -> objectives.Sample:
        """`size` points, each with K draws of noise."""
        return objectives.draw(self.conditional, self.noise, size, num_noise, rng)


def run(job: Job) -> None:
    """Fits every method at every X, N and K of the cell; fills `job.result`."""
    config, result = job.config, job.result
    result["num_classes"], result["inputs"] = config["dataset"]["num_classes"], {}
    for num_inputs in config["dataset"]["num_inputs"]:
        problem = make_problem(config["dataset"], num_inputs, config["seed"])
        measures = {"problem": describe(problem), "kl": {}, "unnormalised": {}}
        result["inputs"][str(num_inputs)] = measures
        for size in job.options["sizes"]:
            kl, unnormalised = _fits(config, problem, size)
            measures["kl"][str(size)], measures["unnormalised"][str(size)] = kl, unnormalised
            job.progress({"inputs": num_inputs, "size": size, "kl": kl})


def _fits(config: Mapping, problem: Problem, size: int) -> tuple[dict, dict]:
    """{method: {K: KL}}, None where there is no minimum; the same of exp(s) as it is.

    The latter of methods with b_x, whose exp(s) is an estimate of p(y|x) without normalisation.
    """
    methods, negatives = config["methods"], config["options"]["negatives"]
    kl, unnormalised = {}, {}
    # One stream for each N: more sizes leave the others as they are.
    rng = np.random.default_rng([config["seed"], len(problem.inputs), size])
    sample = problem.draw(size, max(negatives), rng)
    for name, key, fit in fits(problem, methods, negatives, sample):
        bias, truth = methods[name].get("bias"), problem.conditional
        scores = scores_of(problem, bias, fit.parameters)
        value = objectives.divergence(truth, scores) if fit.converged else None
        kl.setdefault(name, {})[key] = value
        if bias == "input":
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


def describe(problem: Problem) -> dict[str, float]:
    """Returns what tells how hard the problem is: entropies in nats, spread of log Z(x)."""
    log_z = np.log(np.exp(problem.inputs @ problem.parameters.T).sum(-1))
    marginal = problem.conditional.mean(0)
    return {
        "entropy": float(-np.mean(np.sum(problem.conditional * np.log(problem.conditional), -1))),
        "marginal_entropy": float(-np.sum(marginal * np.log(marginal))),
        "log_partition_deviation": float(log_z.std()),
        "rarest_class": float(marginal.min()),
    }


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


def fits(
    problem: Problem, methods: Mapping, negatives: list[int], sample: objectives.Sample
) -> Iterator[tuple[str, str, objectives.Fit]]:
    """The minimum of every method's objective at every K, see `objectives.fits`."""
    designs = {name: design(problem, method.get("bias")) for name, method in methods.items()}
    zeros = np.zeros(sample.shape)
    return objectives.fits(methods, negatives, sample, problem.noise, designs, zeros)


def scores_of(problem: Problem, bias: str | None, parameters: np.ndarray) -> np.ndarray:
    """The scores (X, Y) that a method with such a bias ends with."""
    return (design(problem, bias) @ parameters).reshape(problem.conditional.shape)

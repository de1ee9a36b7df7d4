"""The task "nce_simulation": Ma & Collins 2018, section 5.1, by exact optimisation in float64.

p(y|x) is the softmax of x' theta_y, x and theta from mixtures of Gaussians. Every estimate is the
minimum of its objective by L-BFGS, and its error KL(p(y|x) || softmax of the scores), mean over x.

Shape letters: X inputs, Y classes, N data points, K draws of noise, d features of an input.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from scipy import sparse

from softbench.bench.job import Job
from softbench.experiments import distributions as laws
from softbench.experiments.nce import asymptotics, objectives
from softbench.experiments.nce import methods as nce_methods

_LIBRARY_POINTS, _LIBRARY_NOISE = 1000, 8
_MOST_INPUTS = 1000
_LIMIT_SETS = 400  # random sets for each input, of the limit of ranking


class Problem(NamedTuple):
    """The truth: inputs (X, d), theta (Y, d), p(y|x) (X, Y) and p_N (Y,)."""

    inputs: np.ndarray
    parameters: np.ndarray
    law: np.ndarray
    noise: np.ndarray


def run(job: Job) -> None:
    """Fits every method at every X, N and K of the cell; fills `job.result`."""
    config, result = job.config, job.result
    result["num_classes"], result["inputs"] = config["dataset"]["num_classes"], {}
    for num_inputs in config["dataset"]["num_inputs"]:
        problem = make_problem(config["dataset"], num_inputs, config["seed"])
        found = {"problem": describe(problem), "kl": {}, "unnormalised": {}}
        found["library"] = library_distance(problem, config["seed"])
        result["inputs"][str(num_inputs)] = found
        for size in job.options["sizes"]:
            kl, unnormalised = _fits(config, problem, size)
            found["kl"][str(size)], found["unnormalised"][str(size)] = kl, unnormalised
            job.progress({"inputs": num_inputs, "size": size, "kl": kl})
        negatives = job.options["negatives"]
        known = limits(problem, config["methods"], negatives, config["seed"])
        found["limits"], found["limits_unnormalised"] = known


def _fits(config: Mapping, problem: Problem, size: int) -> tuple[dict, dict]:
    """Returns {method: {K: KL}}, None where there is no minimum; the same of exp(s) as it is.

    The latter of methods with b_x, whose exp(s) is an estimate of p(y|x) without normalisation.
    """
    negatives, found, unnormalised = config["options"]["negatives"], {}, {}
    # One stream for each N: more sizes leave the others as they are.
    rng = np.random.default_rng([config["seed"], len(problem.law), size])
    sample = objectives.draw(problem.law, problem.noise, size, max(negatives), rng)
    for name, method in config["methods"].items():
        found[name] = {}
        for num_noise in nce_methods.sizes(method, negatives):
            fit = estimate(problem, method, sample, num_noise)
            scores = scores_of(problem, method, fit.parameters)
            key, usable = nce_methods.label(num_noise), fit.converged
            found[name][key] = objectives.divergence(problem.law, scores) if usable else None
            if method.get("bias") == "input":
                value = objectives.unnormalised_divergence(problem.law, scores) if usable else None
                unnormalised.setdefault(name, {})[key] = value
    return found, unnormalised


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
    law = laws.softmax(inputs @ parameters.T)
    if dataset["noise"] not in ("uniform", "marginal"):
        raise ValueError(f"`noise` must be uniform or marginal. Received: {dataset['noise']!r}")
    uniform = np.full(len(parameters), 1 / len(parameters))
    return Problem(
        inputs, parameters, law, law.mean(0) if dataset["noise"] == "marginal" else uniform
    )


def mixture(dataset: Mapping, size: int, rng: np.random.Generator) -> np.ndarray:
    """Returns `size` points (size, d) of a mixture with equal weights."""
    centres = dataset["centre"] * rng.normal(size=(dataset["components"], dataset["dim"]))
    chosen = centres[rng.integers(dataset["components"], size=size)]
    return chosen + dataset["spread"] * rng.normal(size=(size, dataset["dim"]))


def describe(problem: Problem) -> dict[str, float]:
    """Returns what tells how hard the problem is: entropies in nats, spread of log Z(x)."""
    log_z = np.log(np.exp(problem.inputs @ problem.parameters.T).sum(-1))
    marginal = problem.law.mean(0)
    return {
        "entropy": float(-np.mean(np.sum(problem.law * np.log(problem.law), -1))),
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
    num_inputs, num_classes = problem.law.shape
    parts = [sparse.kron(problem.inputs, sparse.identity(num_classes))]
    if bias == "shared":
        parts.append(sparse.csr_matrix(np.ones((num_inputs * num_classes, 1))))
    elif bias == "input":
        parts.append(sparse.kron(sparse.identity(num_inputs), np.ones((num_classes, 1))))
    return sparse.hstack(parts).tocsr()


def estimate(
    problem: Problem, method: Mapping, sample: objectives.Sample, num_noise: int | None
) -> objectives.Fit:
    """Returns the minimum of a method's objective, with the first K draws of each point."""
    shape, columns = problem.law.shape, design(problem, method.get("bias"))
    objective = nce_methods.objective(method, sample, num_noise, problem.noise, shape)
    return objectives.minimise(objective, columns, shape)


def scores_of(problem: Problem, method: Mapping, parameters: np.ndarray) -> np.ndarray:
    """Returns the scores (X, Y) that a method ends with."""
    return (design(problem, method.get("bias")) @ parameters).reshape(problem.law.shape)


def limits(
    problem: Problem, methods: Mapping, negatives: list[int], seed: int
) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, float]]]:
    """Returns what N to infinity gives, {method: {K: value}}; the same of exp(s) as it is.

    For consistent methods 2 N KL -> Tr(I covariance), the trace that the Fisher information I and
    the asymptotic covariance make; of maximum likelihood that is (Y - 1) d. For binary NCE without
    b_x it is the KL itself, at the minimum of the expected objective. For exp(s) as it is, with
    b_x, the moment E[g g^T] takes the place of I, g the gradient of s.
    """
    found, unnormalised = {}, {}
    rng = np.random.default_rng([seed, 1])
    for name, method in methods.items():
        columns, found[name] = _identified(problem, method.get("bias")), {}
        information = asymptotics.fisher(columns, problem.law)
        for num_noise in nce_methods.sizes(method, negatives):
            key = nce_methods.label(num_noise)
            if method.get("bias") == "shared":
                found[name][key] = _binary_bias(problem, method, num_noise)
                continue
            covariance = _covariance(problem, method, columns, num_noise, rng)
            found[name][key] = float(np.sum(information * covariance))
            if method.get("bias") == "input":
                moment = asymptotics.second_moment(columns, problem.law)
                value = float(np.sum(moment * covariance))
                unnormalised.setdefault(name, {})[key] = value
    return found, unnormalised


def _identified(problem: Problem, bias: str | None) -> sparse.csr_matrix:
    """The design with theta_0 = 0: adding one vector to all theta_y changes no p(y|x)."""
    columns = design(problem, bias)
    of_theta = problem.parameters.size
    first = np.arange(0, of_theta, len(problem.parameters))
    return columns[:, np.setdiff1d(np.arange(columns.shape[1]), first)]


def _covariance(
    problem: Problem,
    method: Mapping,
    columns: sparse.csr_matrix,
    num_noise: int | None,
    rng: np.random.Generator,
) -> np.ndarray:
    law, noise = problem.law, problem.noise
    if num_noise is None:
        return np.linalg.inv(asymptotics.fisher(columns, law))
    if method["objective"] == "binary":
        return asymptotics.binary_covariance(columns, law, noise, num_noise)
    information = asymptotics.sampled_ranking_information(
        columns, law, noise, num_noise, _LIMIT_SETS, rng
    )
    return np.linalg.inv(information)


def _binary_bias(problem: Problem, method: Mapping, num_noise: int) -> float:
    """KL of binary NCE at the minimum of its expected objective."""
    joint = problem.law / len(problem.law)
    drawn = np.broadcast_to(num_noise * problem.noise / len(joint), joint.shape)
    objective = objectives.binary(joint, drawn, np.log(problem.noise), num_noise)
    fit = objectives.minimise(objective, design(problem, method["bias"]), joint.shape)
    return objectives.divergence(problem.law, scores_of(problem, method, fit.parameters))


def library_distance(problem: Problem, seed: int) -> dict[str, dict[str, float]]:
    """Returns how far our objectives are from `softbench.losses` (float32), at a random table."""
    from softbench.experiments.nce.library import distance, library_objective

    rng = np.random.default_rng([seed, 2])
    shape, log_noise = problem.law.shape, np.log(problem.noise)
    sample = objectives.draw(problem.law, problem.noise, _LIBRARY_POINTS, _LIBRARY_NOISE, rng)
    counts = objectives.positives(sample, shape), objectives.negatives(sample, shape)
    ours = {
        "ranking": objectives.ranking(sample, log_noise, shape),
        "binary": objectives.binary(*counts, log_noise, _LIBRARY_NOISE),
    }
    table = np.log(problem.law) + rng.normal(size=shape)
    return {
        name: distance(objective, library_objective(name, sample, log_noise), table)
        for name, objective in ours.items()
    }

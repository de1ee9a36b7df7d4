"""The task "nce_efficiency": Ma & Collins 2018, sections 4.3 and 4.4, by exact optimisation.

N MSE / d of the estimates of theta by maximum likelihood, ranking and binary NCE (gamma learned)
over many data sets, next to the exact asymptotic values.

Shape letters: X inputs, Y classes, N data points, K draws of noise, d = P parameters, R data sets.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from scipy import special, stats

from softbench.bench.job import Job, NotFinite
from softbench.experiments.nce import asymptotics, objectives


class Model(NamedTuple):
    """Scores features theta + offset.

    Attributes:
        design: d s / d theta (X Y, P).
        offset: (X, Y).
        truth: theta* (P,).
        noise: p_N (Y,).
    """

    design: np.ndarray
    offset: np.ndarray
    truth: np.ndarray
    noise: np.ndarray

    @property
    def scores(self) -> np.ndarray:
        """s(x, y; theta*) (X, Y)."""
        return (self.design @ self.truth).reshape(self.offset.shape) + self.offset

    @property
    def conditional(self) -> np.ndarray:
        """p(y|x) (X, Y)."""
        return special.softmax(self.scores, axis=-1)


def run(job: Job) -> None:
    """Measures one model of section 4.4, or the counterexample; fills `job.result`."""
    config, options, result = job.config, job.options, job.result
    methods = config["methods"]
    if config["dataset"]["model"] == "counterexample":
        _run_counterexample(job)
        return
    model = make_model(config["dataset"])
    result["model"] = {"truth": model.truth, "noise": model.noise, "law": model.conditional}
    result["log_partition"] = np.log(np.exp(model.scores).sum(-1))
    result["exact"] = exact(model, methods, options["negatives"])
    rng = np.random.default_rng(config["seed"])
    fits = [
        estimates(model, methods, options["negatives"], options["size"], rng)
        for _ in range(options["data_sets"])
    ]
    thetas = {
        name: {key: [fit[name][key] for fit in fits] for key in row}
        for name, row in fits[0].items()
    }
    result["size"], result["data_sets"] = options["size"], options["data_sets"]
    reference = next(name for name, m in methods.items() if m["objective"] == "likelihood")
    result["measured"] = summary(thetas, model.truth, options["size"], reference)


def make_model(dataset: Mapping) -> Model:
    """Returns a model of section 4.4.

    "cyclic": s = theta_{(y - x) mod Y}, theta_0 = 0, X = Y, so that Z(x; theta) = H(theta) for
    every theta. "offset": s = f(x, y)' theta - log Z(x; theta*) with independent normal f, so that
    Z(x; theta) is constant in x at theta* and nowhere else. (Assumption 2.2 holds in both.)

    Args:
        dataset: {"model", "num_classes": Y, "num_inputs": X, "dim": d, "scale": standard deviation
            of theta*, "noise": unnormalised p_N, a list of Y numbers, "problem_seed"}.
    """
    rng = np.random.default_rng(dataset["problem_seed"])
    num_classes, num_inputs, dim = (dataset[k] for k in ("num_classes", "num_inputs", "dim"))
    noise = np.array(dataset["noise"], float) / np.sum(dataset["noise"])
    truth = dataset["scale"] * rng.normal(size=dim)
    if dataset["model"] == "cyclic":
        if not num_inputs == num_classes == dim + 1:
            raise ValueError(
                "a cyclic model needs `num_inputs` = `num_classes` = `dim` + 1. "
                f"Received: {num_inputs}, {num_classes}, {dim}"
            )
        step = (np.arange(num_classes) - np.arange(num_inputs)[:, None]) % num_classes
        design = np.eye(num_classes)[step.ravel()][:, 1:]
        return Model(design, np.zeros(step.shape), truth, noise)
    if dataset["model"] == "offset":
        design = rng.normal(size=(num_inputs * num_classes, dim))
        scores = (design @ truth).reshape(num_inputs, num_classes)
        log_z = np.log(np.exp(scores).sum(-1, keepdims=True))
        return Model(design, np.broadcast_to(-log_z, scores.shape), truth, noise)
    raise ValueError(f"`model` must be cyclic or offset. Received: {dataset['model']!r}")


def estimates(
    model: Model, methods: Mapping, negatives: list[int], size: int, rng: np.random.Generator
) -> dict[str, dict[str, np.ndarray]]:
    """{method: {K: estimate of theta (P,)}} on one data set of N = `size` points.

    Raises:
        NotFinite: where an objective has no minimum.
    """
    sample = objectives.draw(model.conditional, model.noise, size, max(negatives), rng)
    thetas: dict[str, dict[str, np.ndarray]] = {name: {} for name in methods}
    designs = {name: design_of(model, method) for name, method in methods.items()}
    for name, key, fit in objectives.fits(
        methods, negatives, sample, model.noise, designs, model.offset
    ):
        if not fit.converged:
            raise NotFinite(f"{name} has no minimum at N = {size}, K = {key}.")
        thetas[name][key] = fit.parameters[: len(model.truth)]
    return thetas


def design_of(model: Model, method: Mapping) -> np.ndarray:
    """d s / d parameters (X Y, P), for binary NCE with a last column for gamma."""
    if method["objective"] != "binary":
        return model.design
    return np.concatenate([model.design, -np.ones((len(model.design), 1))], axis=-1)


def exact(model: Model, methods: Mapping, negatives: list[int]) -> dict:
    """Returns Tr(covariance) / d of every method at every K, and of K to infinity.

    The limit of ranking is Tr(I^-1) / d. That of binary NCE is Tr(A I A) / d, A = (I + D)^-1 and D
    the covariance over x of the gradient of log Z(x; theta*): Tr(I^-1) / d if D = 0, which the
    proof of Theorem 4.7 takes for granted (Lemma B.15), and less if not.
    """
    truth, dim = model.conditional, len(model.truth)
    information = asymptotics.fisher(model.design, truth)
    means = asymptotics.conditional_means(model.design, truth)
    spread = np.cov(means.T, bias=True).reshape(dim, dim)
    shrunk = np.linalg.inv(information + spread)

    def mean_variance(covariance: np.ndarray) -> float:
        return float(np.trace(covariance[:dim, :dim]) / dim)

    fisher = mean_variance(np.linalg.inv(information))
    limits = {"ranking": fisher, "binary": mean_variance(shrunk @ information @ shrunk)}
    values = {"fisher": fisher, "limits": {}, "methods": {}}
    for name, method in methods.items():
        kind, design = method["objective"], design_of(model, method)
        if kind in limits:
            values["limits"][name] = limits[kind]
        values["methods"][name] = {
            key: mean_variance(asymptotics.covariance(kind, design, truth, model.noise, k))
            for key, k in objectives.sizes(method, negatives).items()
        }
    return values


def summary(
    thetas: Mapping, truth: np.ndarray, size: int, reference: str
) -> dict[str, dict[str, dict]]:
    """Returns {method: {K: {mean, gap, distance, and the standard error of each}}}.

    Of N ||estimate - theta*||^2 / d: `mean`, and `gap`, its mean difference from maximum likelihood
    on the same data sets. `distance` is the mean of N ||estimate - MLE||^2 / d: where no consistent
    estimate has a smaller variance than the MLE, their difference is uncorrelated with the MLE as N
    grows, and `distance` an estimate of the gap with less noise.

    Args:
        thetas: {method: {K: estimates (R, P)}}.
        truth: theta* (P,).
        size: N.
        reference: the method of maximum likelihood.
    """
    best = np.array(thetas[reference]["-"])

    def squares(difference: np.ndarray) -> np.ndarray:
        return size / len(truth) * np.sum(difference**2, axis=-1)

    def row(estimates: np.ndarray) -> dict[str, float]:
        error = squares(estimates - truth)
        values = {"mean": error, "gap": error - squares(best - truth)}
        values["distance"] = squares(estimates - best)
        means = {key: float(value.mean()) for key, value in values.items()}
        return means | {f"{key}_error": float(stats.sem(value)) for key, value in values.items()}

    return {
        name: {key: row(np.array(values)) for key, values in rows.items()}
        for name, rows in thetas.items()
    }


def counterexample() -> Model:
    """The model of section 4.3 in theta = (log theta_1, log theta_2): Z(x_1) = 4, Z(x_2) = 6."""
    design = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0]])
    return Model(design, np.zeros((2, 2)), np.log([1.0, 3.0]), np.array([0.5, 0.5]))


def _run_counterexample(job: Job) -> None:
    """p(y_1|x_1) / p(y_2|x_1) = theta_1 / theta_2 of every method at every N and K."""
    methods, negatives = job.config["methods"], job.options["negatives"]
    job.result["ratios"] = {}
    for size in job.options["sizes"]:
        rng = np.random.default_rng([job.config["seed"], size])
        thetas = estimates(counterexample(), methods, negatives, size, rng)
        ratios = {
            name: {key: float(np.exp(theta[0] - theta[1])) for key, theta in row.items()}
            for name, row in thetas.items()
        }
        job.result["ratios"][str(size)] = ratios

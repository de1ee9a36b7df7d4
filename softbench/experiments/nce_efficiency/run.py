"""The task "nce_efficiency": Ma & Collins 2018, sections 4.3 and 4.4, by exact optimisation.

N MSE / d of the estimates of theta by maximum likelihood, ranking and binary NCE (gamma learned)
over many data sets, beside the exact asymptotic values.

Shape letters: X inputs, Y classes, N data points, K draws of noise, d = P parameters, R data sets.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from softbench.bench.job import Job, NotFinite
from softbench.experiments import distributions as laws
from softbench.experiments.nce import asymptotics, objectives
from softbench.experiments.nce import methods as nce_methods


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
    def law(self) -> np.ndarray:
        """p(y|x) (X, Y)."""
        return laws.softmax(self.scores)


def run(job: Job) -> None:
    """Measures one model of section 4.4, or the counterexample; fills `job.result`."""
    config, options = job.config, job.options
    kind = config["dataset"]["model"]
    if kind == "counterexample":
        _run_counterexample(job)
        return
    model = make_model(config["dataset"])
    job.result["model"] = {"truth": model.truth, "noise": model.noise, "law": model.law}
    job.result["log_partition"] = np.log(np.exp(model.scores).sum(-1))
    job.result["exact"] = exact(model, config["methods"], options["negatives"])
    rng = np.random.default_rng(config["seed"])
    thetas: dict[str, dict[str, list]] = {name: {} for name in config["methods"]}
    for _ in range(options["data_sets"]):
        for name, row in one_data_set(model, config["methods"], options, rng).items():
            for label, theta in row.items():
                thetas[name].setdefault(label, []).append(theta)
    job.result["size"], job.result["data_sets"] = options["size"], options["data_sets"]
    reference = _reference(config["methods"])
    job.result["measured"] = summary(thetas, model.truth, options["size"], reference)
    job.progress({"measured": job.result["measured"]})


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


def one_data_set(
    model: Model, methods: Mapping, options: Mapping, rng: np.random.Generator
) -> dict[str, dict[str, np.ndarray]]:
    """Returns the estimates of theta (P,) on one data set, {method: {K: estimate}}."""
    size, found = options["size"], {}
    sample = objectives.draw(model.law, model.noise, size, max(options["negatives"]), rng)
    for name, method in methods.items():
        found[name] = {}
        for k in nce_methods.sizes(method, options["negatives"]):
            fit = estimate(model, method, sample, k)
            if not fit.converged:
                raise NotFinite(f"{name} has no minimum at K = {k}.")
            found[name][nce_methods.label(k)] = fit.parameters[: len(model.truth)]
    return found


def estimate(
    model: Model, method: Mapping, sample: objectives.Sample, num_noise: int | None
) -> objectives.Fit:
    """Returns the minimum of a method's objective with the first K draws of each point.

    Theta comes first, then gamma for binary NCE.
    """
    shape, design = model.offset.shape, model.design
    if method["objective"] == "binary":
        design = _with_gamma(design)
    objective = nce_methods.objective(method, sample, num_noise, model.noise, shape)
    return objectives.minimise(objective, design, shape, model.offset)


def _with_gamma(design: np.ndarray) -> np.ndarray:
    return np.concatenate([design, -np.ones((len(design), 1))], axis=-1)


def exact(model: Model, methods: Mapping, negatives: list[int]) -> dict:
    """Returns Tr(covariance) / d of every method at every K, and of K to infinity.

    The limit of ranking is Tr(I^-1) / d. That of binary NCE is Tr(A I A) / d, A = (I + D)^-1 and D
    the covariance over x of the gradient of log Z(x; theta*): Tr(I^-1) / d if D = 0, which the
    proof of Theorem 4.7 takes for granted (Lemma B.15), and less if not.
    """
    law, dim = model.law, len(model.truth)
    information = asymptotics.fisher(model.design, law)
    means = asymptotics.conditional_means(model.design, law)
    spread = np.cov(means.T, bias=True).reshape(dim, dim)
    shrunk = np.linalg.inv(information + spread)
    with_gamma = _with_gamma(model.design)
    fisher = float(np.trace(np.linalg.inv(information)) / dim)
    limits = {"ranking": fisher, "binary": float(np.trace(shrunk @ information @ shrunk) / dim)}
    found = {"fisher": fisher, "limits": {}, "methods": {}}
    for name, method in methods.items():
        kind = method["objective"]
        if kind == "likelihood":
            found["methods"][name] = {"-": fisher}
            continue
        found["limits"][name], found["methods"][name] = limits[kind], {}
        for k in negatives:
            if kind == "ranking":
                seen = asymptotics.ranking_information(model.design, law, model.noise, k)
                covariance = np.linalg.inv(seen)
            else:
                covariance = asymptotics.binary_covariance(with_gamma, law, model.noise, k)
            found["methods"][name][str(k)] = float(np.trace(covariance[:dim, :dim]) / dim)
    return found


def _reference(methods: Mapping) -> str:
    return next(name for name, m in methods.items() if m["objective"] == "likelihood")


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
    scale = size / len(truth)

    def squares(difference: np.ndarray) -> np.ndarray:
        return scale * np.sum(difference**2, axis=-1)

    found: dict[str, dict[str, dict]] = {}
    for name, rows in thetas.items():
        found[name] = {}
        for label, estimates in rows.items():
            error, base = squares(np.array(estimates) - truth), squares(best - truth)
            values = {"mean": error, "gap": error - base, "distance": squares(estimates - best)}
            row = {key: float(value.mean()) for key, value in values.items()}
            for key, value in values.items():
                row[f"{key}_error"] = float(value.std(ddof=1) / np.sqrt(len(value)))
            found[name][label] = row
    return found


def counterexample() -> Model:
    """The model of section 4.3 in theta = (log theta_1, log theta_2): Z(x_1) = 4, Z(x_2) = 6."""
    design = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0]])
    return Model(design, np.zeros((2, 2)), np.log([1.0, 3.0]), np.array([0.5, 0.5]))


def _run_counterexample(job: Job) -> None:
    """p(y_1|x_1) / p(y_2|x_1) = theta_1 / theta_2 of every method at every N and K."""
    options, methods = job.options, job.config["methods"]
    model = counterexample()
    job.result["ratios"] = {}
    for size in options["sizes"]:
        rng = np.random.default_rng([job.config["seed"], size])
        sample = objectives.draw(model.law, model.noise, size, max(options["negatives"]), rng)
        found: dict[str, dict[str, float]] = {name: {} for name in methods}
        for name, method in methods.items():
            for k in nce_methods.sizes(method, options["negatives"]):
                fit = estimate(model, method, sample, k)
                if not fit.converged:
                    raise NotFinite(f"{name} has no minimum at N = {size}, K = {k}.")
                ratio = np.exp(fit.parameters[0] - fit.parameters[1])
                found[name][nce_methods.label(k)] = float(ratio)
        job.result["ratios"][str(size)] = found
        job.progress({"size": size, "ratios": found})

"""The task "mutual_information": the bounds of Stratos' note where I(X, Y) is exact.

Global NCE (InfoNCE, ranking) with noise p(y): B = log N - loss is at most min(I(X, Y), log N)
(Corollary 1.2), whatever the critic. Local NCE (binary) has the optimum log p(y|x) / p(y)
- log(N - 1), and with N = 2 its least loss is log 4 - 2 JSD (Corollary 2.2).

Shape letters: S samples, N candidates of each, the first one the label.
"""

import math
from collections.abc import Iterator

import numpy as np
from scipy import optimize, stats

from softbench.bench.job import Job
from softbench.experiments import library
from softbench.experiments.mutual_information import joints

_CHUNK = 2**20  # candidates that are held at once
Joint = joints.Table | joints.Gaussian


def run(job: Job) -> None:
    """Measures every critic at every N; fills `job.result`."""
    config, options, result = job.config, job.options, job.result
    joint = joints.build(config["dataset"], config["seed"])
    result["mutual_information"] = joint.information
    result["samples"], result["critics"] = options["samples"], {}
    exact = hasattr(joint, "local_optimum")
    sizes = options["candidates"]
    result["local_optimum"] = {str(n): joint.local_optimum(n) for n in sizes if exact}
    for number, size in enumerate(sizes):
        for name, method in config["methods"].items():
            training, test = (np.random.default_rng([config["seed"], number, k]) for k in (0, 1))
            weights, measures = joint.optimum, {"iterations": 0}
            if method["critic"] == "trained":
                weights, steps = train(
                    joint, method["objective"], size, options["train_samples"], training
                )
                measures["iterations"] = steps
            measures |= measure(joint, weights, size, options["samples"], test)
            if exact:
                measures |= joint.recovery(weights)
            result["critics"].setdefault(name, {})[str(size)] = measures


def measure(
    joint: Joint, weights: np.ndarray, candidates: int, samples: int, rng: np.random.Generator
) -> dict:
    """The bound B and the loss of local NCE of one critic, on new samples.

    Returns:
        {"bound": log N - E[loss of global NCE]; "local": E[loss of local NCE]; "critic_rms": root
        mean square of f - log p(y|x) / p(y) over p(x, y), constants in x included; "bound_error"
        and "local_error": standard errors}, in nats.
    """
    values: dict[str, list] = {name: [] for name in (*library.NCE, "square")}
    for x, y in _chunks(joint, candidates, samples, rng):
        for name in library.NCE:
            values[name].append(_losses(name, joint, weights, x, y).losses)
        wrong = joint.scores(weights - joint.optimum, x, y[:, :1])
        values["square"].append(np.square(wrong[:, 0]))
    ranking, local, square = (np.concatenate(chunks) for chunks in values.values())
    return {
        "bound": math.log(candidates) - float(ranking.mean()),
        "bound_error": float(stats.sem(ranking)),
        "local": float(local.mean()),
        "local_error": float(stats.sem(local)),
        "critic_rms": math.sqrt(square.mean()),
    }


def train(
    joint: Joint, objective: str, candidates: int, samples: int, rng: np.random.Generator
) -> tuple[np.ndarray, int]:
    """The weights of the critic with the least loss on samples, by L-BFGS (the loss is convex).

    Args:
        joint: distribution of (x, y).
        objective: "ranking" or "binary".
        candidates: N.
        samples: S, kept through the training.
        rng: source of the samples.

    Returns:
        The weights, shaped like `joint.optimum`, and the number of iterations.
    """
    data = list(_chunks(joint, candidates, samples, rng))
    shape = joint.optimum.shape

    def value(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weights, total, pulled = flat.reshape(shape), 0.0, np.zeros(shape)
        for x, y in data:
            evaluated = _losses(objective, joint, weights, x, y)
            total += evaluated.losses.sum()
            pulled += joint.pull(x, y, evaluated.gradient)
        return total / samples, pulled.ravel() / samples

    options = {"maxiter": 200, "ftol": 1e-8, "gtol": 1e-5}  # the loss is in float32
    start = np.zeros(joint.optimum.size)
    minimum = optimize.minimize(value, start, jac=True, method="L-BFGS-B", options=options)
    return minimum.x.reshape(shape), int(minimum.nit)


def _chunks(
    joint: Joint, candidates: int, samples: int, rng: np.random.Generator
) -> Iterator[tuple]:
    """Samples of x and of N candidates, a chunk of them at a time."""
    step = max(1, _CHUNK // candidates)
    for start in range(0, samples, step):
        yield joint.sample(rng, min(step, samples - start), candidates)


def _losses(
    objective: str, joint: Joint, weights: np.ndarray, x: np.ndarray, y: np.ndarray
) -> library.Evaluated:
    """The library's losses (S,) of a critic f, and their gradient with respect to f (S, N).

    The objectives take log p(y|x) and subtract the log expected count of the noise themselves.
    """
    log_noise = joint.log_noise(y)
    counts = log_noise + math.log(y.shape[1] - 1)
    return library.evaluate(library.NCE[objective], joint.scores(weights, x, y) + log_noise, counts)

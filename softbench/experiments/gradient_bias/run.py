"""The task "gradient_bias": how far each sampler is from one trained head's softmax.

Shape letters: B validation contexts, n classes, d features, D random features.
"""

import hashlib
import json
import os
import tempfile
import zipfile
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np

from softbench import diagnostics
from softbench.bench import environment, provenance
from softbench.bench.job import Job
from softbench.bench.training import build
from softbench.bench.training import run as train
from softbench.bench.training.problems import load
from softbench.experiments.gradient_bias import theorem

_CLASSES = 1024  # whose features are held at a time


class Trained(NamedTuple):
    """A trained head, and the validation contexts that the samplers are asked about.

    Attributes:
        kernel: (n, d).
        hidden, labels: (B, d), (B,).
        counts: (n,) of the training labels.
        valid_nll: of the model, over the whole validation set.
    """

    kernel: np.ndarray
    hidden: np.ndarray
    labels: np.ndarray
    counts: np.ndarray
    valid_nll: np.ndarray


def run(job: Job) -> None:
    """Measures every sampler of the cell on the trained head; fills `job.result`."""
    config, result = job.config, job.result
    trained = _load_or_train(job)
    nll, options = float(trained.valid_nll), job.options
    places = _spread(len(trained.labels), options["contexts"])
    contexts = trained._replace(hidden=trained.hidden[places], labels=trained.labels[places])
    result |= {"num_classes": len(trained.kernel), "valid_perplexity": float(np.exp(nll))}
    result["mutual_information"] = diagnostics.mutual_information(trained.counts, nll)
    result["batch"], result["contexts"] = len(trained.labels), len(places)
    result["samplers"] = {}
    for name, method in config["methods"].items():
        if method["head"] == "FullSoftmax":
            continue
        head = _head(method, trained, config["seed"])
        found = proposal(head, trained)
        found["bias"] = {
            str(size): gradient_bias(head, contexts, int(size), repeats, config["seed"])
            for size, repeats in options["repetitions"].items()
        }
        result["samplers"][name] = found
        job.progress({"sampler": name, **found})


def _trained_method(methods: dict) -> dict:
    for method in methods.values():
        if method["head"] == "FullSoftmax":
            return method
    raise ValueError(
        "`methods` must have a row of head FullSoftmax, the one that is trained. "
        f"Received: {', '.join(methods)}"
    )


def _load_or_train(job: Job) -> Trained:
    """The trained head: from the cache of an earlier run, or trained now."""
    config = job.config
    method = _trained_method(config["methods"])
    parts = ("backend", "dataset", "model", "optimizer", "epochs", "steps_per_epoch", "seed")
    key = {part: config[part] for part in parts} | {"full": method}
    key |= {"code": environment.code(), "data": provenance.data(config, job.data_dir)}
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:12]
    path = None if job.cache is None else Path(job.cache) / f"trained-{digest}.npz"
    kept = None if path is None else _kept(path)
    if kept is not None:
        job.result["from_cache"] = True
        return kept
    problem = load(config, job.data_dir)
    model = train.fit(job, method, problem, config["optimizer"])
    hidden, labels = problem.probe()
    trained = Trained(
        keras.ops.convert_to_numpy(model.head.table.kernel),
        hidden,
        labels,
        problem.counts,
        np.array(job.result["curve"][-1]["valid_nll"]),
    )
    if path is not None:
        _keep(trained, path)
    return trained


def _kept(path: Path) -> Trained | None:
    """The head of an earlier run; None without one, or if its file is not whole."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return Trained(**arrays)
    except (OSError, ValueError, TypeError, EOFError, AttributeError, zipfile.BadZipFile):
        return None


def _keep(trained: Trained, path: Path) -> None:
    """Writes all of the file or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, **trained._asdict())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _spread(size: int, wanted: int) -> np.ndarray:
    """`wanted` positions spread over a batch of `size`."""
    return np.unique(np.linspace(0, size - 1, min(wanted, size)).astype(int))


def _head(method: dict, trained: Trained, seed: int) -> keras.layers.Layer:
    """A method's head with the trained kernel, and its sampler built from that."""
    head = build.head(method, len(trained.kernel), trained.counts, seed)
    head.table.kernel_initializer = lambda shape, dtype=None: trained.kernel
    head.build((None, trained.kernel.shape[1]))
    return head


def proposal(head: keras.layers.Layer, trained: Trained) -> dict:
    """KL, ESS, the range of p / q, and the share of negative kernel estimates, over the batch."""
    quality = diagnostics.proposal_quality(head, trained.hidden)
    hidden = keras.ops.convert_to_tensor(trained.hidden)
    log_q = keras.ops.convert_to_numpy(head.sampler.log_prob(head.table, hidden))
    log_p = keras.ops.convert_to_numpy(keras.ops.log_softmax(head.prediction_scores(hidden)))
    log_ratio = log_p.astype(np.float64) - log_q
    places = {"min": np.min, "median": np.median, "max": np.max}
    ratio = {k: float(np.exp(np.median(f(log_ratio, axis=-1)))) for k, f in places.items()}
    found = {"kl": quality.kl, "ess": quality.ess, "ratio": ratio}
    return found | {"negative_share": negative_share(head, hidden)}


def negative_share(head: keras.layers.Layer, hidden: object) -> float | None:
    """The share of contexts and classes whose kernel estimate is below 0; None without a kernel."""
    parts = [head.sampler, *(getattr(head.sampler, part, None) for part in ("first", "second"))]
    kernels = [part for part in parts if hasattr(part, "features")]
    if not kernels:
        return None
    features, table = kernels[0].features, head.table
    vectors = table.normalized(hidden)
    queries, negative = features.queries(vectors), 0
    for start in range(0, table.units, _CLASSES):
        rows = table.normalized(table.kernel[start : start + _CLASSES])
        found = keras.ops.convert_to_numpy(features.products(queries, rows, vectors))
        negative += int((found < 0).sum())
    return negative / (len(hidden) * table.units)


def gradient_bias(
    head: keras.layers.Layer, contexts: Trained, num_sampled: int, repetitions: int, seed: int
) -> dict:
    """Theorem 1 at some contexts: each one's worst coordinate, and whether all are in bounds.

    Returns:
        Means over contexts: `worst`, the largest |bias| of a coordinate; `error`, its standard
        error; `lower` and `upper`, the bounds at that coordinate. `inside`: of how many contexts
        every coordinate is within the bounds, give or take 4 standard errors.
    """
    hidden = keras.ops.convert_to_tensor(contexts.hidden)
    left_out = keras.ops.convert_to_tensor(contexts.labels.astype("int32"))
    log_q = head.sampler.log_prob(head.table, hidden, labels=left_out)
    proposals = np.exp(keras.ops.convert_to_numpy(log_q).astype(np.float64))
    scores = keras.ops.convert_to_numpy(head.table.scores(hidden)).astype(np.float64)
    rows, inside = [], 0
    for logits, q, label in zip(scores, proposals, contexts.labels, strict=True):
        q = np.where(np.arange(len(q)) == label, 0.0, q)  # shared draws: the head masks hits
        q = q / q.sum()
        rng = np.random.default_rng([seed, int(label), num_sampled])
        found = theorem.bias(logits, q, int(label), num_sampled, repetitions, rng)
        limits = theorem.bounds(logits, q, int(label), num_sampled)
        slack = 4 * found.error + 1e-6  # q is float32
        within = (found.mean >= limits.lower - slack) & (found.mean <= limits.upper + slack)
        inside += int(within.all())
        at = int(np.argmax(np.abs(found.mean)))
        rows.append((abs(found.mean[at]), found.error[at], limits.lower, limits.upper[at]))
    means = np.mean(rows, axis=0).tolist()
    found = dict(zip(("worst", "error", "lower", "upper"), means, strict=True))
    return found | {"inside": inside, "repetitions": repetitions}

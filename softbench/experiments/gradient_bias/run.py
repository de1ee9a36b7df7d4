"""The task "gradient_bias": how far each sampler is from one trained head's softmax.

Shape letters: B validation contexts, n classes, d features, D random features.
"""

import keras
import numpy as np

from softbench import diagnostics
from softbench.bench.job import Job
from softbench.experiments import trained as trained_lib
from softbench.experiments.gradient_bias import theorem
from softbench.experiments.trained import Trained

_CLASSES = 1024  # whose features are held at a time


def run(job: Job) -> None:
    """Measures every sampler of the cell on the trained head; fills `job.result`."""
    config, result = job.config, job.result
    (trained,) = trained_lib.train(job).values()
    nll, options = trained.valid_nll, job.options
    positions = _spread(len(trained.labels), options["contexts"])
    contexts = trained._replace(hidden=trained.hidden[positions], labels=trained.labels[positions])
    result |= {"num_classes": len(trained.kernel), "valid_perplexity": float(np.exp(nll))}
    result["mutual_information"] = diagnostics.mutual_information(trained.counts, nll)
    result["batch"], result["contexts"] = len(trained.labels), len(positions)
    result["samplers"] = {}
    for name, method in config["methods"].items():
        if method["head"] == "FullSoftmax":
            continue
        head = trained_lib.head(method, trained, config["seed"])
        measures = proposal(head, trained)
        measures["bias"] = {
            str(size): gradient_bias(head, contexts, int(size), repeats, config["seed"])
            for size, repeats in options["repetitions"].items()
        }
        result["samplers"][name] = measures
        job.progress({"sampler": name, **measures})


def _spread(size: int, wanted: int) -> np.ndarray:
    """`wanted` positions spread over a batch of `size`."""
    return np.unique(np.linspace(0, size - 1, min(wanted, size)).astype(int))


def proposal(head: keras.layers.Layer, trained: Trained) -> dict:
    """KL, ESS, the range of p / q, and the share of negative kernel estimates, over the batch."""
    quality = diagnostics.proposal_quality(head, trained.hidden)
    hidden = keras.ops.convert_to_tensor(trained.hidden)
    log_q = keras.ops.convert_to_numpy(head.sampler.log_prob(head.table, hidden))
    log_p = keras.ops.convert_to_numpy(keras.ops.log_softmax(head.prediction_scores(hidden)))
    log_ratio = log_p.astype(np.float64) - log_q
    statistics = {"min": np.min, "median": np.median, "max": np.max}
    ratio = {k: float(np.exp(np.median(f(log_ratio, axis=-1)))) for k, f in statistics.items()}
    share = negative_share(head, hidden)
    return {"kl": quality.kl, "ess": quality.ess, "ratio": ratio, "negative_share": share}


def negative_share(head: keras.layers.Layer, hidden: object) -> float | None:
    """The share of contexts and classes whose kernel estimate is below 0; None without a kernel."""
    samplers = [head.sampler, *(getattr(head.sampler, name, None) for name in ("first", "second"))]
    kernels = [sampler for sampler in samplers if hasattr(sampler, "features")]
    if not kernels:
        return None
    features, table = kernels[0].features, head.table
    vectors = table.normalized(hidden)
    queries, negative = features.queries(vectors), 0
    for start in range(0, table.units, _CLASSES):
        rows = table.normalized(table.kernel[start : start + _CLASSES])
        estimates = keras.ops.convert_to_numpy(features.products(queries, rows, vectors))
        negative += int((estimates < 0).sum())
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
        bias = theorem.bias(logits, q, int(label), num_sampled, repetitions, rng)
        limits = theorem.bounds(logits, q, int(label), num_sampled)
        slack = 4 * bias.error + 1e-6  # q is float32
        within = (bias.mean >= limits.lower - slack) & (bias.mean <= limits.upper + slack)
        inside += int(within.all())
        at = int(np.argmax(np.abs(bias.mean)))
        rows.append((abs(bias.mean[at]), bias.error[at], limits.lower, limits.upper[at]))
    means = np.mean(rows, axis=0).tolist()
    fields = dict(zip(("worst", "error", "lower", "upper"), means, strict=True))
    return fields | {"inside": inside, "repetitions": repetitions}

"""The task "gradient_bias": how far each sampler is from one trained head's softmax.

Shape letters: B validation contexts, n classes, d features.
"""

import keras
import numpy as np

from softbench import diagnostics
from softbench.bench.job import Job
from softbench.experiments import trained as trained_lib
from softbench.experiments.gradient_bias import theorem
from softbench.experiments.trained import Trained


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
        quality = diagnostics.proposal_quality(head, trained.hidden)
        measures = {"kl": quality.kl, "ess": quality.ess}
        measures["bias"] = {
            str(size): gradient_bias(head, contexts, int(size), repeats, config["seed"])
            for size, repeats in options["repetitions"].items()
        }
        result["samplers"][name] = measures


def _spread(size: int, wanted: int) -> np.ndarray:
    """`wanted` positions spread over a batch of `size`."""
    return np.unique(np.linspace(0, size - 1, min(wanted, size)).astype(int))


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

"""How good a proposal is for a head, and how much the input tells about the class.

Shape letters: B batch, d features, n classes.
"""

from typing import Any, NamedTuple

import numpy as np
from keras import ops
from scipy.special import log_softmax

from softbench.common import Tensor

LARGEST_SCORES = 2**24  # of p, and of q, held at once
LARGEST_DOUBLES = 2**20  # of them, as float64


class ProposalQuality(NamedTuple):
    """Means over a batch.

    Attributes:
        kl: KL(p || q) in nats; infinite where q leaves out a class that p has.
        ess: effective sample size as a fraction of the draws, 1 / sum_i(p_i^2 / q_i), in [0, 1].
    """

    kl: float
    ess: float


def proposal_quality(
    head: Any, hidden: Tensor, sampler_inputs: Tensor | None = None
) -> ProposalQuality:
    """Distance of the sampler's q from the model p = softmax(`head.prediction_scores`).

    m draws from q estimate a mean under p about as well as ess * m draws from p itself. q is over
    all n classes (no label left out); the inclusion probabilities of draws without replacement
    are divided by their sum. Where the batch shares its draws, q is the batch's own mixture. The
    state of the sampler does not change. At most 2^24 numbers of p are held at a time (or n).

    Args:
        head: a sampled head, built.
        hidden: (..., d).
        sampler_inputs: (..., k), or None: what the sampler gets instead of `hidden`.

    Raises:
        ValueError: if the head has no sampler.
    """
    if not hasattr(head, "sampler"):
        raise ValueError(f"`head` must have a sampler. Received: {type(head).__name__}")
    hidden = _flat(hidden)
    features = hidden if sampler_inputs is None else _flat(sampler_inputs)
    sampler, shared = head.sampler, None
    if not sampler.per_example:
        shared = ops.convert_to_numpy(sampler.shared_log_prob(head.table, features))
    size = max(1, LARGEST_SCORES // head.units)
    totals, count = np.zeros(2), hidden.shape[0]
    for start in range(0, count, size):
        part = slice(start, start + size)
        log_q: Any = shared
        if shared is None:
            log_q = ops.convert_to_numpy(sampler.log_prob(head.table, features[part]))
        scores = head.prediction_scores(hidden[part], features=features[part])
        totals += _sums(ops.convert_to_numpy(scores), log_q)
    return ProposalQuality(*(totals / count).tolist())


def _sums(scores: np.ndarray, log_q: np.ndarray) -> np.ndarray:
    """Sums over the rows of both `divergences`."""
    log_q = np.broadcast_to(log_q, scores.shape)
    size, total = max(1, LARGEST_DOUBLES // scores.shape[1]), np.zeros(2)
    for start in range(0, len(scores), size):
        part = slice(start, start + size)
        total += [values.sum() for values in divergences(scores[part], log_q[part])]
    return total


def divergences(scores: np.ndarray, log_q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """KL(p || q) and 1 / sum(p^2 / q) of each row, both (B,).

    Args:
        scores: (B, n), log p up to a constant of each row.
        log_q: (B, n), log q up to a constant of each row.
    """
    log_p, log_q = (log_softmax(x.astype(np.float64), axis=-1) for x in (scores, log_q))
    p = np.exp(log_p)
    with np.errstate(invalid="ignore", over="ignore"):
        log_ratio = np.where(p > 0, log_p - log_q, 0.0)
        kl = np.sum(p * log_ratio, axis=-1)
        return kl, 1.0 / np.sum(p * np.exp(log_ratio), axis=-1)


def mutual_information(label_counts: np.ndarray, nll: float) -> float:
    """Estimate of I(input; class) in nats: the entropy of the labels less the model's log-loss.

    KL(p || unigram) is about this number, so it says how much an adaptive proposal can gain.

    Args:
        label_counts: (n,) occurrences of each class in the training data.
        nll: the model's mean negative log-likelihood on held-out data, in nats.
    """
    counts = np.asarray(label_counts, np.float64)
    share = counts[counts > 0] / counts.sum()
    return float(-np.sum(share * np.log(share)) - nll)


def _flat(x: Tensor) -> Tensor:
    x = ops.convert_to_tensor(x)
    return ops.reshape(x, (-1, x.shape[-1]))

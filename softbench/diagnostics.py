"""How good a proposal is for a head, and how much the input tells about the class.

Shape letters: B batch, d features, n classes.
"""

from collections.abc import Iterator
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
    are divided by their sum. Where the batch shares its draws, q is the batch's own mixture, and
    where groups of it do, that of each group. The state of the sampler does not change. At most
    2^24 numbers of p are held at a time (or n).

    Args:
        head: a sampled head, built.
        hidden: (..., d).
        sampler_inputs: (..., k), or None: what the sampler gets instead of `hidden`.

    Raises:
        ValueError: if the head has no sampler.
    """
    totals, count = np.zeros(2), 0
    for scores, log_q, *_ in _parts(head, hidden, sampler_inputs):
        totals += [values.sum() for values in divergences(scores, log_q)]
        count += len(scores)
    return ProposalQuality(*(totals / count).tolist())


class RelativeVariance(NamedTuple):
    """Of a sum over all classes that is estimated from the draws.

    Attributes:
        values: float64, of every example (B,) or of every class (n,).
        mean: of those that are a number.
    """

    values: np.ndarray
    mean: float


def relative_variance(
    head: Any, hidden: Tensor, sampler_inputs: Tensor | None = None
) -> RelativeVariance:
    """Relative variance of each example's estimate of its partition, under the head's own draws.

    Var(Z_hat / Z) = (sum_i p_i^2 / q_i - 1) / m of m = `num_sampled` draws with replacement, where
    Z_hat = sum over the draws of exp(o_i) / (m q_i). Without replacement, of inclusion
    probabilities pi_i, it is Hajek's approximation for a fixed number of draws:
    sum_i pi_i (1 - pi_i) (p_i / pi_i - R)^2, R = sum_i (1 - pi_i) p_i / sum_i pi_i (1 - pi_i).
    That is of draws which are otherwise as random as can be; of systematic draws, whose pairs
    depend on the order of the classes, it can be off by a factor of two. The draws of `mixed` are
    stratified: where both parts draw with replacement, their variance is at most this.

    Args:
        head, hidden, sampler_inputs: as of `proposal_quality`.

    Returns:
        `RelativeVariance` with a value for each example; infinite where q leaves out a class.

    Raises:
        ValueError: if the head has no sampler.
    """
    found, certain = [], _certain(head, hidden, sampler_inputs)
    for scores, log_q, part, _ in _parts(head, hidden, sampler_inputs):
        p = np.exp(log_softmax(scores.astype(np.float64), axis=-1))
        own = None if certain is None else certain[part]
        variance = _variance_over_square(head, log_q, own)
        with np.errstate(invalid="ignore", over="ignore"):
            terms = np.where(p > 0, p**2 * variance, 0.0).sum(axis=-1)
            if head.sampler.unique:
                rest = 1.0 - np.exp(np.float64(log_q))
                weight = np.sum(np.exp(np.float64(log_q)) * rest, axis=-1)
                shared = np.sum(p * rest, axis=-1) ** 2 / np.where(weight > 0, weight, 1.0)
            else:
                p = p if own is None else np.where(own, 0.0, p)
                shared = np.sum(p, axis=-1) ** 2 / head.num_sampled
                terms += np.sum(p**2, axis=-1) / head.num_sampled
        found.append(np.maximum(terms - shared, 0.0))
    values = np.concatenate(found)
    return _with_mean(values[np.argsort(_order(head, hidden, sampler_inputs))])


def row_variance(
    head: Any,
    hidden: Tensor,
    labels: Tensor | None = None,
    sampler_inputs: Tensor | None = None,
) -> RelativeVariance:
    """Relative variance of the gradient that each class row gets from a batch.

    The gradient of the sampled softmax with respect to row i is about
    sum_b (p_bi N_bi / E[N_bi] - [i = y_b]) h_b, N_bi the number of times that i is drawn for
    example b: exact on average, and exact in the label's own part. Its variance, the partition
    taken as exact, is sum_b v_bi p_bi^2 |h_b|^2 if each example draws for itself, and
    v_i |sum_b p_bi h_b|^2 for each set of examples that share their draws, with
    v = (1 - q) / (m q), or (1 - pi) / pi without replacement. The sum is divided by
    |sum_b (p_bi - [i = y_b]) h_b|^2. A tail that all groups share (`top_and_tail` without
    `own_tails`) is one set: it adds v_i |sum p_bi h_b|^2 over the examples for which i is not
    certain.

    Args:
        head, sampler_inputs: as of `proposal_quality`.
        hidden: (..., d), the vectors of one batch.
        labels: integers (...), or None: then the label's own part is left out.

    Returns:
        `RelativeVariance` with a value for each class; not a number where its gradient is 0.

    Raises:
        ValueError: if the head has no sampler, or one that shares a part of its draws alone.
    """
    sampler = _sampler(head)
    if sampler.shares_in_part:
        raise ValueError(
            "`head.sampler` must share all of its draws or none for the variance of a row's "
            f"gradient. Received: {type(sampler).__name__} of which one part shares them"
        )
    flat = ops.convert_to_numpy(_flat(hidden)).astype(np.float64)
    arranged = flat[_order(head, hidden, sampler_inputs)]
    own, variance = np.zeros((head.units, flat.shape[1])), np.zeros(head.units)
    joint = np.zeros(own.shape)  # of one set for all: sqrt(v) sum_b p_b h_b
    found, size = np.zeros(own.shape), -(-len(flat) // (sampler.groups or 1))
    certain = _certain(head, hidden, sampler_inputs)
    for scores, log_q, part, ends in _parts(head, hidden, sampler_inputs, size):
        p = np.exp(log_softmax(scores.astype(np.float64), axis=-1))
        found += p.T @ arranged[part]
        ratio = _variance_over_square(head, log_q, None if certain is None else certain[part])
        if sampler.per_example and sampler.one_random_set:
            joint += (p * np.sqrt(ratio)).T @ arranged[part]
        elif sampler.per_example:
            square = np.sum(arranged[part] ** 2, axis=-1, keepdims=True)
            variance += np.sum(p**2 * square * ratio, axis=0)
        if ends:  # of the group
            if not sampler.per_example and sampler.one_random_set:
                joint += np.sqrt(ratio[0])[:, None] * found
            elif not sampler.per_example:
                variance += np.sum(found**2, axis=-1) * ratio[0]
            own, found = own + found, np.zeros(own.shape)
    if labels is not None:
        np.subtract.at(own, ops.convert_to_numpy(labels).reshape(-1), flat)
    variance += np.sum(joint**2, axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return _with_mean(variance / np.sum(own**2, axis=-1))


def _sampler(head: Any) -> Any:
    if not hasattr(head, "sampler"):
        raise ValueError(f"`head` must have a sampler. Received: {type(head).__name__}")
    return head.sampler


def _with_mean(values: np.ndarray) -> RelativeVariance:
    known = values[~np.isnan(values)]
    return RelativeVariance(values, float(known.mean()) if len(known) else float("nan"))


def _variance_over_square(
    head: Any, log_q: np.ndarray, certain: np.ndarray | None = None
) -> np.ndarray:
    """Var(N) / E[N]^2 of the number of times N that a class is drawn, from log q or log pi.

    It is 0 of the certain classes, whose q is that of a count of 1.
    """
    q = np.exp(np.float64(log_q))
    with np.errstate(divide="ignore"):
        if certain is None:
            return (1.0 - q) / (q if head.sampler.unique else head.num_sampled * q)
        one = np.max(q, axis=-1, keepdims=True, where=certain, initial=0.0)
        return np.where(certain, 0.0, np.maximum(one / q - 1.0 / head.num_sampled, 0.0))


def _certain(head: Any, hidden: Tensor, sampler_inputs: Tensor | None) -> np.ndarray | None:
    """Which classes (B, n) are drawn for certain, beside others with replacement; None if none."""
    sampler = _sampler(head)
    if sampler.unique or not sampler.draws_for_certain:  # without replacement, log pi tells
        return None
    features = _flat(hidden if sampler_inputs is None else sampler_inputs)
    arranged = ops.take(features, _order(head, hidden, sampler_inputs), axis=0)
    return ops.convert_to_numpy(sampler.certain(head.table, arranged))


def _order(head: Any, hidden: Tensor, sampler_inputs: Tensor | None) -> np.ndarray:
    """The order in which the head's groups take the examples, (B,)."""
    features = _flat(hidden if sampler_inputs is None else sampler_inputs)
    order = _sampler(head).arrange(features)
    return np.arange(features.shape[0]) if order is None else ops.convert_to_numpy(order)


def _parts(
    head: Any, hidden: Tensor, sampler_inputs: Tensor | None, group: int | None = None
) -> Iterator[tuple[np.ndarray, np.ndarray, slice, bool]]:
    """Scores (b, n) and log q (b, n) of parts of a batch in the order of its groups.

    With them which part of it each is, and whether a group of `group` examples ends with it. A part
    has at most `LARGEST_DOUBLES` numbers, or one row.
    """
    sampler, shared = _sampler(head), None
    order = _order(head, hidden, sampler_inputs)
    features = hidden if sampler_inputs is None else sampler_inputs
    hidden, features = (ops.take(_flat(x), order, axis=0) for x in (hidden, features))
    batch = hidden.shape[0]
    if not sampler.per_example:
        shared = ops.convert_to_numpy(sampler.shared_log_prob(head.table, features))
        shared = np.atleast_2d(shared)
    size = batch if sampler.shares_in_part else max(1, LARGEST_SCORES // head.units)
    step = max(1, LARGEST_DOUBLES // head.units)
    group = group or batch
    for begin in range(0, batch, group):
        end = min(begin + group, batch)
        for start in range(begin, end, size):
            part = slice(start, min(start + size, end))
            scores = head.prediction_scores(hidden[part], features=features[part])
            scores = ops.convert_to_numpy(scores)
            if shared is None:
                log_q = ops.convert_to_numpy(sampler.log_prob(head.table, features[part]))
            else:
                log_q = shared[np.arange(start, part.stop) // -(-batch // len(shared))]
            for first in range(0, len(scores), step):
                own = slice(first, first + step)
                place = slice(start + first, start + first + len(scores[own]))
                yield scores[own], log_q[own], place, place.stop == end


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

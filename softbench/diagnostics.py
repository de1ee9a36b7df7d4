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
    are divided by their sum. Where the batch shares its draws, q is the batch's mixture, and
    where groups of it do, that of each group. The state of the sampler does not change. At most
    2^24 numbers of p are held at a time (or n).

    Args:
        head: a sampled head, built.
        hidden: (..., d).
        sampler_inputs: (..., k), or None: what the sampler gets instead of `hidden`.

    Raises:
        ValueError: if the head has no sampler.
    """
    totals, size = np.zeros(2), 0
    for chunk in _chunks(head, hidden, sampler_inputs):
        with np.errstate(divide="ignore"):
            log_p, log_expected = np.log(chunk.p), np.log(chunk.expected)
        totals += [values.sum() for values in divergences(log_p, log_expected)]
        size += len(chunk.p)
    return ProposalQuality(*(totals / size).tolist())


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
    """Relative variance of each example's estimate of its partition, under the head's draws.

    Var(Z_hat / Z) = (sum_i p_i^2 / q_i - 1) / m of m = `num_sampled` draws with replacement, where
    Z_hat = sum over the draws of exp(o_i) / (m q_i). Without replacement, of inclusion
    probabilities pi_i, it is Hajek's approximation for a fixed number of draws:
    sum_i pi_i (1 - pi_i) (p_i / pi_i - R)^2, R = sum_i (1 - pi_i) p_i / sum_i pi_i (1 - pi_i).
    That is of draws which are otherwise as random as can be; of systematic draws, whose pairs
    depend on the order of the classes, it can be off by a factor of two. The draws of `mixed` and
    of `top_and_tail` are sums of independent ones, and so is their variance; a class that is drawn
    for certain adds none.

    Args:
        head, hidden, sampler_inputs: as of `proposal_quality`.

    Returns:
        `RelativeVariance` with a value for each example; infinite where q leaves out a class.

    Raises:
        ValueError: if the head has no sampler.
    """
    values = []
    for chunk in _chunks(head, hidden, sampler_inputs):
        never = np.any((chunk.p > 0) & (chunk.expected == 0), axis=-1)
        ratio = chunk.p / np.where(chunk.expected > 0, chunk.expected, 1.0)
        variance = np.where(never, np.inf, 0.0)
        for component in chunk.components:
            expected = component.expected
            if component.size is None:
                random = expected * (1.0 - expected)
                weight = random.sum(axis=-1)
                shared = np.sum(ratio * random, axis=-1) / np.where(weight > 0, weight, 1.0)
                variance += np.sum(random * (ratio - shared[:, None]) ** 2, axis=-1)
            else:
                mean = np.sum(ratio * expected, axis=-1)
                variance += np.sum(ratio**2 * expected, axis=-1) - mean**2 / component.size
        values.append(np.maximum(variance, 0.0))
    by_group = np.concatenate(values)
    return _with_mean(by_group[np.argsort(_order(head, hidden, sampler_inputs))])


def row_variance(
    head: Any,
    hidden: Tensor,
    labels: Tensor | None = None,
    sampler_inputs: Tensor | None = None,
) -> RelativeVariance:
    """Relative variance of the gradient that each class row gets from a batch.

    The gradient of the sampled softmax with respect to row i is about
    sum_b (p_bi N_bi / E[N_bi] - [i = y_b]) h_b, N_bi the number of times that i is drawn for
    example b: exact on average, and exact in the label's term. Its variance, the partition
    taken as exact, is sum_b v_bi p_bi^2 |h_b|^2 if each example draws for itself, and
    v_i |sum_b p_bi h_b|^2 for each set of examples that share their draws, with
    v = (1 - q) / (m q), or (1 - pi) / pi without replacement. The sum is divided by
    |sum_b (p_bi - [i = y_b]) h_b|^2. A tail of `top_and_tail` that all groups share is one set: it
    adds v_i |sum p_bi h_b|^2 over the examples for which i is not certain. The variances of
    independent components of the draws add up.

    Args:
        head, sampler_inputs: as of `proposal_quality`.
        hidden: (..., d), the vectors of one batch.
        labels: integers (...), or None: then the label's term is left out.

    Returns:
        `RelativeVariance` with a value for each class; not a number where its gradient is 0.

    Raises:
        ValueError: if the head has no sampler.
    """
    flat = ops.convert_to_numpy(_flat(hidden)).astype(np.float64)
    arranged = flat[_order(head, hidden, sampler_inputs)]
    gradient, variance = np.zeros((head.units, flat.shape[1])), np.zeros(head.units)
    sums: dict[int, np.ndarray] = {}  # by component: of sqrt(v) p h over one set of draws
    for chunk in _chunks(head, hidden, sampler_inputs):
        vectors = arranged[chunk.rows]
        gradient += chunk.p.T @ vectors
        for index, component in enumerate(chunk.components):
            scale = chunk.p * np.sqrt(component.relative_variance(chunk.expected))
            if component.rows is None:
                variance += np.sum(scale**2 * np.sum(vectors**2, axis=-1, keepdims=True), axis=0)
                continue
            for members, ends in chunk.sets(component.rows):
                sums[index] = sums.get(index, 0.0) + scale[members].T @ vectors[members]
                if ends:
                    variance += np.sum(sums.pop(index) ** 2, axis=-1)
    if labels is not None:
        np.subtract.at(gradient, ops.convert_to_numpy(labels).reshape(-1), flat)
    with np.errstate(invalid="ignore", divide="ignore"):
        return _with_mean(variance / np.sum(gradient**2, axis=-1))


def _sampler(head: Any) -> Any:
    if not hasattr(head, "sampler"):
        raise ValueError(f"`head` must have a sampler. Received: {type(head).__name__}")
    return head.sampler


def _with_mean(values: np.ndarray) -> RelativeVariance:
    numbers = values[~np.isnan(values)]
    return RelativeVariance(values, float(numbers.mean()) if len(numbers) else float("nan"))


def _order(head: Any, hidden: Tensor, sampler_inputs: Tensor | None) -> np.ndarray:
    """The order in which the head's groups take the examples, (B,)."""
    features = _flat(hidden if sampler_inputs is None else sampler_inputs)
    order = _sampler(head).arrange(features)
    return np.arange(features.shape[0]) if order is None else ops.convert_to_numpy(order)


class _Component(NamedTuple):
    """Draws from one proposal, for a chunk of a batch: b examples.

    Attributes:
        rows: how many sets of them are drawn independently; None where each draws for itself.
        expected: float64 (b, n), E[times drawn].
        size: m of draws with replacement; None without.
    """

    rows: int | None
    expected: np.ndarray
    size: int | None

    def relative_variance(self, total: np.ndarray) -> np.ndarray:
        """Var(times drawn) / total^2 (b, n); infinite where `total` is 0."""
        variance = self.expected * (1.0 - self.expected / (self.size or 1))
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = np.where(self.expected > 0, np.maximum(variance, 0.0) / total**2, 0.0)
        return np.where(total > 0, ratio, np.inf)


class _Chunk(NamedTuple):
    """A chunk of a batch in the order of its groups: b of B examples.

    Attributes:
        p: float64 (b, n), the model.
        expected: float64 (b, n), E[times drawn] of all components together.
        components: `_Component`s.
        rows: which of the examples these are.
        batch: B.
    """

    p: np.ndarray
    expected: np.ndarray
    components: list[_Component]
    rows: slice
    batch: int

    def sets(self, rows: int) -> Iterator[tuple[slice, bool]]:
        """Which examples of the chunk share draws, and whether such a set ends with them."""
        size, start = -(-self.batch // rows), self.rows.start
        while start < self.rows.stop:
            end = min((start // size + 1) * size, self.batch)
            stop = min(end, self.rows.stop)
            yield slice(start - self.rows.start, stop - self.rows.start), stop == end
            start = stop


def _chunks(head: Any, hidden: Tensor, sampler_inputs: Tensor | None) -> Iterator[_Chunk]:
    """Chunks of a batch of at most `LARGEST_DOUBLES` numbers, or one row."""
    sampler, order = _sampler(head), _order(head, hidden, sampler_inputs)
    features = hidden if sampler_inputs is None else sampler_inputs
    hidden, features = (ops.take(_flat(x), order, axis=0) for x in (hidden, features))
    batch = hidden.shape[0]
    step = max(1, LARGEST_DOUBLES // head.units)
    block = max(1, LARGEST_SCORES // head.units) if sampler.per_example else batch
    for begin in range(0, batch, block):
        end = min(begin + block, batch)
        proposal = sampler.propose(head.table, features[begin:end])
        total, components = _counts(proposal, head.num_sampled)
        for start in range(begin, end, step):
            rows = slice(start, min(start + step, end))
            scores = head.prediction_scores(hidden[rows], features=features[rows])
            scores = ops.convert_to_numpy(scores).astype(np.float64)
            row_of = (np.arange(rows.start, rows.stop) - begin) // -(-(end - begin) // len(total))
            yield _Chunk(
                np.exp(log_softmax(scores, axis=-1)),
                np.exp(np.float64(total[row_of])),
                [c._replace(expected=np.exp(np.float64(c.expected[row_of]))) for c in components],
                rows,
                batch,
            )


def _counts(proposal: Any, size: int) -> tuple[np.ndarray, list[_Component]]:
    """log E[times drawn] (R, n) of all classes, and that of the components, as float32."""
    total = ops.convert_to_numpy(proposal.log_count_all(size))
    components = [
        _Component(rows, ops.convert_to_numpy(log_count), component_size)
        for rows, log_count, component_size in proposal.components(size)
    ]
    return total, components


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

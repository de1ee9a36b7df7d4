"""Bias of the sampled softmax gradient and its bounds: Rawat et al. (2019), Theorem 1. NumPy only.

The parameters are the logits themselves, so the gradient of logit i is the i-th unit vector: the
bound on its coordinates is M = 1, and the gradient of the full loss is p - (1 at the label).
Shape letters: n classes, m samples, R repetitions.
"""

from typing import NamedTuple

import numpy as np

from softbench.datasets.draws import draw

_ROWS = 256  # of R times n numbers held at once


class Bounds(NamedTuple):
    """`lower` holds for every coordinate, `upper` (n,) for each; both without o(1 / m)."""

    lower: float
    upper: np.ndarray


class Bias(NamedTuple):
    """E[gradient] - gradient of each logit (n,), and its standard error (n,)."""

    mean: np.ndarray
    error: np.ndarray


def bounds(logits: np.ndarray, q: np.ndarray, label: int, num_sampled: int) -> Bounds:
    """LB of eq. 10 and UB of eq. 11 without their o(1 / m) terms, M = 1.

    UB = (sum e^2o / q - Z_t^2) / (m Z^3) g + (2 M / m) max |e^o / q - e^o' / q'| Z_t /
    (Z^2 + sum e^2o / q), the sums over the classes other than the label. g = sum e^o grad o is
    taken over all classes, as in the proof (eq. 27): the statement leaves out the label's
    term, which the label's coordinate needs.

    Args:
        logits: (n,).
        q: (n,), the proposal over the other classes; 0 at the label.
        label: of the example.
        num_sampled: m.
    """
    mass = np.exp(logits - logits.max())
    others = np.arange(len(q)) != label
    total, rest = mass.sum(), mass[others].sum()
    with np.errstate(divide="ignore"):
        ratio = mass[others] / q[others]
    lower = -np.sum(mass[others] * np.abs(rest - ratio)) / (num_sampled * total**2)
    second = np.sum(mass[others] * ratio)
    first = (second - rest**2) / (num_sampled * total**3)
    spread = ratio.max() - ratio.min()
    constant = 2 / num_sampled * spread * rest / (total**2 + second)
    return Bounds(float(lower), first * mass + constant)


def bias(
    logits: np.ndarray,
    q: np.ndarray,
    label: int,
    num_sampled: int,
    repetitions: int,
    rng: np.random.Generator,
) -> Bias:
    """The bias, measured on `repetitions` sets of m - 1 and m independent draws.

    By the exchangeability of the draws (eq. 31) the expected gradient of logit k is
    e^o_k E[1 / (V' + e^o_k / (m q_k))], V' the sampled partition function without the m-th draw,
    and that of the label e^o_t E[1 / V]: only V is random, and every class is measured by all
    draws. V, whose mean is exact, is the control variate, unless its rare large values are missing
    from the draws (their variance is below half the exact one); then a share of 1 / R is
    added to the standard error.

    Args:
        logits, q, label, num_sampled: as of `bounds`.
        repetitions: R.
        rng: of the draws.
    """
    mass = np.exp(logits - logits.max())
    total, rest = mass.sum(), mass.sum() - mass[label]
    ratio = np.where(q > 0, mass / np.where(q > 0, q, 1.0), 0.0)
    drawn = draw(rng, q, (repetitions, num_sampled))
    terms = ratio[drawn] / num_sampled
    whole = mass[label] + terms.sum(-1)
    variance = (np.sum(q * ratio**2) - rest**2) / num_sampled
    without_last = total - rest / num_sampled
    others = _inverse(whole - terms[:, -1], ratio / num_sampled, without_last, variance)
    of_label = _inverse(whole, np.zeros(1), total, variance)
    mean, error = mass * others[0], mass * others[1]
    mean[label], error[label] = mass[label] * of_label[0][0], mass[label] * of_label[1][0]
    return Bias(mean - mass / total, error)


def _inverse(
    partition: np.ndarray, added: np.ndarray, exact_mean: float, variance: float
) -> tuple[np.ndarray, np.ndarray]:
    """E[1 / (V + a)] for every a in `added` (n,), from V (R,) of exact mean, with its error."""
    count, centred = len(partition), partition - partition.mean()
    first, second, cross = (np.zeros(len(added)) for _ in range(3))
    for start in range(0, count, _ROWS):
        chunk = slice(start, start + _ROWS)
        x = 1.0 / (partition[chunk, None] + added)
        first += x.sum(0)
        second += np.square(x).sum(0)
        cross += centred[chunk] @ x
    mean = first / count
    left = np.maximum(second / count - mean**2, 0.0)
    sample_variance = centred @ centred / count
    if sample_variance <= 0.5 * variance:
        return mean, np.sqrt(left / count + (mean / count) ** 2)
    slope = cross / count / max(sample_variance, np.finfo(float).tiny)
    left = np.maximum(left - slope * cross / count, 0.0)
    return mean - slope * (partition.mean() - exact_mean), np.sqrt(left / count)

"""Fits of powers of K to gaps, for the report and the tests. Plain Python, needs no Keras."""

import math
from collections.abc import Sequence
from typing import NamedTuple


class Scaled(NamedTuple):
    """A fit of C K^power.

    Attributes:
        constants: C of each seed.
        chi_square: of the mean over the seeds, per degree of freedom; about 1 where the power is
            right, much more where it is not.
    """

    constants: list[float]
    chi_square: float


def powers(sizes: Sequence[str | int], gaps: Sequence[float]) -> float:
    """Returns the exponent of K: the least-squares slope of log gap against log K."""
    x, y = [math.log(int(k)) for k in sizes], [math.log(gap) for gap in gaps]
    centre_x, centre_y = sum(x) / len(x), sum(y) / len(y)
    above = sum((a - centre_x) * (b - centre_y) for a, b in zip(x, y, strict=True))
    return above / sum((a - centre_x) ** 2 for a in x)


def pooled_error(errors: Sequence[float]) -> float:
    """Returns the standard error of a mean over seeds from that of each seed."""
    return math.sqrt(sum(error**2 for error in errors)) / len(errors)


def scaled(
    sizes: Sequence[str | int],
    gaps: Sequence[Sequence[float]],
    errors: Sequence[Sequence[float]],
    power: float,
) -> Scaled:
    """Fits C K^power to the gaps of several seeds, weighted by the inverse variances of the means.

    Args:
        sizes: the K.
        gaps: one row for each seed, a gap for each K.
        errors: the standard errors of the gaps.
        power: of K.
    """
    basis = [int(k) ** power for k in sizes]
    means = [sum(column) / len(column) for column in zip(*gaps, strict=True)]
    weights = [pooled_error(column) ** -2 for column in zip(*errors, strict=True)]
    norm = sum(w * b**2 for w, b in zip(weights, basis, strict=True))

    def constant(row: Sequence[float]) -> float:
        terms = zip(weights, basis, row, strict=True)
        return sum(w * b * value for w, b, value in terms) / norm

    centre = constant(means)
    terms = zip(weights, basis, means, strict=True)
    chi = sum(w * (value - centre * b) ** 2 for w, b, value in terms) / (len(sizes) - 1)
    return Scaled([constant(row) for row in gaps], chi)

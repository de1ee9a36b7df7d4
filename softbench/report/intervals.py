"""Numbers as texts, and means over seeds with 95 % intervals by Student's t. Needs no Keras."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

EMPTY = "-"


def number(value: float, form: str = "") -> str:
    """Returns a number in a format, or four significant digits, from 1000 on with separators."""
    if pd.isna(value):
        return EMPTY
    if form == ",":
        return f"{value:,.0f}"
    if form:
        return format(value, form)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


class Interval(NamedTuple):
    """A mean over seeds.

    Attributes:
        mean: NaN without a value.
        half: half of its 95 % interval, NaN of fewer than two values.
        count: of the values.
    """

    mean: float
    half: float
    count: int

    def text(self, form: str = "") -> str:
        """Returns `1.5 ± 0.2`; the mean alone of one value, or where all are the same."""
        if self.count < 2 or self.half == 0:
            return number(self.mean, form)
        half = number(self.half, form) if form.endswith("%") else _two_digits(self.half)
        return f"{number(self.mean, form)} ± {half}"

    def percent(self) -> str:
        """Returns a signed fraction in percent, "tied" where zero lies within the interval."""
        mean = f"{100 * self.mean:+.1f}"
        if self.count < 2:
            return f"{mean} %"
        tied = " tied" if abs(self.mean) <= self.half else ""
        return f"{mean} ± {_two_digits(100 * self.half)} %{tied}"


def _two_digits(half: float) -> str:
    return number(float(f"{half:.2g}"))


def interval(values: Iterable[float]) -> Interval:
    """Returns the mean and its interval of the values that are there."""
    sample = pd.Series(values, dtype=float).dropna()
    half = np.nan
    if len(sample) > 1 and sample.nunique() == 1:
        half = 0.0  # and not what a mean of equal values is rounded by
    elif len(sample) > 1:
        half = float(stats.t.ppf(0.975, len(sample) - 1) * stats.sem(sample))
    return Interval(sample.mean(), half, len(sample))


def marked(values: Sequence[Interval], form: str, lower: bool) -> list[str]:
    """Returns the texts of a column, the best in bold, those that tie with it named.

    Where a row has several seeds, only such rows are compared.

    Args:
        values: of the rows.
        form: of a value.
        lower: whether less is better.
    """
    texts = [value.text(form) for value in values]
    several = any(value.count > 1 for value in values)
    compared = [i for i, value in enumerate(values) if value.count > several]
    if len(compared) < 2:
        return texts
    best = min(compared, key=lambda i: values[i].mean if lower else -values[i].mean)
    for i in compared:
        apart = abs(values[i].mean - values[best].mean)
        if i != best and several and apart <= values[i].half + values[best].half:
            texts[i] += " tied"
    texts[best] = f"**{texts[best]}**"
    return texts


def averaged(curves: Sequence[Sequence[Sequence[float]]]) -> list[list[float]]:
    """Returns [mean x, mean y] of each point that all curves have, of several the half interval.

    Args:
        curves: one for each seed, of [x, y].
    """
    if len(curves) == 1:
        return [list(point) for point in curves[0]]
    averages = []
    for points in zip(*curves, strict=False):
        x, y = (interval(values) for values in zip(*points, strict=True))
        averages.append([x.mean, y.mean, y.half])
    return averages

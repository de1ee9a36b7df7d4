"""Means over seeds with 95 % intervals by Student's t: texts, the best one marked. No Keras."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from softbench.report.markdown import Markdown
from softbench.report.tables import half_interval, number

ALONE = "One seed a row, so no intervals. **Bold**: the best value, where rows trained as long."
SEVERAL = """\
±: half of the 95 % interval of the mean over the seeds (Student's t). **Bold**: the best mean,
where rows trained as long; tied: the interval overlaps that of the best. Rows of a single seed have
no interval and are not compared."""
EMPTY = "-"


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

    def __str__(self) -> str:
        if not self.count:
            return EMPTY
        return number(self.mean) + (f" ± {_rounded(self.half)}" if self.count > 1 else "")

    def percent(self) -> str:
        """Returns a signed fraction in percent, "tied" where zero lies within the interval."""
        mean = f"{100 * self.mean:+.1f}"
        if self.count < 2:
            return f"{mean} %"
        tied = " tied" if abs(self.mean) <= self.half else ""
        return f"{mean} ± {_rounded(100 * self.half)} %{tied}"


def _rounded(half: float) -> str:
    return number(float(f"{half:.2g}"))


def interval(values: Iterable[float]) -> Interval:
    """Returns the mean and its interval of the values that are there."""
    sample = pd.Series(values, dtype=float).dropna()
    half = half_interval(sample) if len(sample) > 1 else np.nan
    return Interval(sample.mean(), half, len(sample))


def marked(values: Sequence[Interval], lower: bool) -> list[str]:
    """Returns the texts of a column, the best in bold, those that tie with it named.

    Where a row has several seeds, only such rows are compared.

    Args:
        values: of the rows.
        lower: whether less is better.
    """
    texts = list(map(str, values))
    several = any(value.count > 1 for value in values)
    compared = [i for i, value in enumerate(values) if value.count > several]
    if len(compared) < 2:
        return texts
    best = min(compared, key=lambda i: values[i].mean if lower else -values[i].mean)
    for i in compared:
        apart = abs(values[i].mean - values[best].mean)
        if i != best and several and apart <= values[i].half + values[best].half:
            texts[i] += " tied"
    texts[best] = Markdown(f"**{texts[best]}**")
    return texts


def seeds(count: int) -> str:
    """Returns the number of seeds of a row, in words where there is one."""
    return {0: EMPTY, 1: "single"}.get(count, str(count))


def difference(values: Mapping[int, float], base: Mapping[int, float]) -> Interval:
    """Returns the mean of value less base over the seeds that both have."""
    return interval(values[seed] - base[seed] for seed in values if seed in base)


def change(values: Mapping[int, float], base: Mapping[int, float]) -> Interval:
    """Returns the mean of value over base less 1, over the seeds that both have."""
    return interval(values[seed] / base[seed] - 1 for seed in values if seed in base)


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

"""Ratios of numbers of records, with their errors. Needs no Keras."""

import functools
import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

import pandas as pd
from scipy import stats

from softbench.report import frame, intervals, numbers
from softbench.report.tables import number


class Records:
    """Records of experiments by the name of their folders, none where there is no such folder."""

    def __init__(self, by_experiment: Mapping[str, list[dict]]) -> None:
        self._by_experiment = by_experiment
        self.points = functools.cache(self._points)

    def of(self, experiment: str) -> list[dict]:
        """Returns the records of an experiment."""
        return self._by_experiment.get(experiment, [])

    def _points(self, experiment: str) -> pd.DataFrame:
        points = frame.points(self.of(experiment))
        return points[points["status"] == "ok"]


class Ratio(NamedTuple):
    """A ratio that records give.

    Attributes:
        value: NaN where there is none.
        error: its standard error; infinite of a single seed.
        freedom: degrees of freedom of the error, infinite of one that is known.
        of: what the error is over, and where the ratio was taken, in words.
        missing: why there is none; "" where there is one.
    """

    value: float
    error: float = math.inf
    freedom: float = math.inf
    of: str = "single seed"
    missing: str = ""

    def ends(self, level: float = 0.95) -> tuple[float, float]:
        """Returns the ends of the interval at a level, by Student's t."""
        if not self.error:
            return self.value, self.value
        half = self.error * float(stats.t.ppf((1 + level) / 2, self.freedom))
        return self.value - half, self.value + half

    def __str__(self) -> str:
        if self.missing:
            return self.missing
        low, high = self.ends()
        half = number(float(f"{(high - low) / 2:.2g}"))
        margin = f" ± {half}" if 0 < self.error < math.inf else ""
        return f"{number(self.value)}{margin}, {self.of}"


class Source(Protocol):
    """Where a ratio comes from: what a claim names."""

    @property
    def experiments(self) -> list[str]:
        """Names of the experiments."""

    @property
    def words(self) -> str:
        """What is divided by what."""

    def ratio(self, records: Records) -> Ratio:
        """Returns the ratio."""


def none(why: str) -> Ratio:
    """Returns a ratio that is missing."""
    return Ratio(math.nan, missing=why)


def over_seeds(values: Iterable[float], after: str = "") -> Ratio:
    """Returns the mean of ratios, one for each seed."""
    values = list(values)
    if not values:
        return none("no seed in common")
    if any(map(pd.isna, values)):
        return none("a value is missing (NaN)")
    interval, where = intervals.interval(values), f", {after}" if after else ""
    if interval.count < 2:
        return Ratio(interval.mean, of=f"single seed{where}")
    freedom = interval.count - 1
    error = interval.half / float(stats.t.ppf(0.975, freedom))
    return Ratio(interval.mean, error, freedom, f"{interval.count} seeds{where}")


class Numbers(NamedTuple):
    """Numbers at paths in records, as `softbench.report.numbers` names them.

    Attributes:
        words: what is divided by what.
        left: an address, or `address / address`.
        right: the same, or a constant.
        error: key of the standard error next to the numbers, for records of a single seed. Those
            whose last key is not that of the left are taken for calculated.
        exact: whether they are calculated, and not measured or drawn.
    """

    words: str
    left: str
    right: str | float = 1.0
    error: str = ""
    exact: bool = False

    @property
    def experiments(self) -> list[str]:
        """Names of the experiments."""
        return [address.split()[0] for address in self._addresses()]

    def _addresses(self) -> list[str]:
        sides = [side for side in (self.left, self.right) if isinstance(side, str)]
        return [address for side in sides for address in side.split(" / ")]

    def ratio(self, records: Records) -> Ratio:
        """Returns the ratio of the two sides, seed by seed."""
        try:
            left = self._values(self.left, records)
            right = dict.fromkeys(left, self.right)
            if isinstance(self.right, str):
                right = self._values(self.right, records)
            ratio = over_seeds(left[seed] / right[seed] for seed in left if seed in right)
            if ratio.missing or ratio.freedom < math.inf:
                return ratio
            if self.exact:
                return Ratio(ratio.value, 0.0, of="exact")
            if self.error:
                error = abs(ratio.value) * self._relative(records)
                return Ratio(ratio.value, error, of="by the standard error of the record")
            return ratio
        except (LookupError, TypeError, ZeroDivisionError) as error:
            return none(f"no such number ({error})")

    def _values(self, side: str, records: Records) -> dict[int, float]:
        first, *others = (numbers.values(address, records.of) for address in side.split(" / "))
        for other in others:
            first = {seed: first[seed] / other[seed] for seed in first if seed in other}
        return first

    def _relative(self, records: Records) -> float:
        """The standard error of the ratio, as a fraction of it."""
        total, key = 0.0, self.left.rpartition(".")[2]
        for address in self._addresses():
            prefix, _, last = address.rpartition(".")
            if last != key:
                continue  # calculated
            (value,) = numbers.values(address, records.of).values()
            (error,) = numbers.values(f"{prefix}.{self.error}", records.of).values()
            total += (error / value) ** 2
        return math.sqrt(total)


class Times(NamedTuple):
    """Times of steps; half of the range from 20 to 80 % of the steps is taken for the error.

    Attributes:
        words: what is divided by what.
        left, right: addresses of {"median", "p20", "p80"}.
    """

    words: str
    left: str
    right: str

    @property
    def experiments(self) -> list[str]:
        """Names of the experiments."""
        return [side.split()[0] for side in (self.left, self.right)]

    def ratio(self, records: Records) -> Ratio:
        """Returns the ratio of the medians."""
        try:
            value, relative = 1.0, 0.0
            for side, power in ((self.left, 1), (self.right, -1)):
                median, low, high = (
                    next(iter(numbers.values(f"{side}.{key}", records.of).values()))
                    for key in ("median", "p20", "p80")
                )
                value *= median**power
                relative += ((high - low) / 2 / median) ** 2
        except (LookupError, TypeError) as error:
            return none(f"no such time ({error})")
        return Ratio(value, value * math.sqrt(relative), of="timed steps")

"""Ratios of numbers of records with their errors, as claims compare them. Needs no Keras."""

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import pandas as pd
from scipy import stats

from softbench.report import frame as frame_lib
from softbench.report import intervals, measures
from softbench.report.frame import Frame
from softbench.report.intervals import number

SINGLE = "single seed"


class Part(NamedTuple):
    """One ratio of a claim, read: fields of both sides (right may be a number), and the range."""

    text: str
    left: dict[str, str]
    right: dict[str, str] | float
    low: float
    high: float

    @property
    def range(self) -> str:
        """The range in a few signs."""
        if math.isinf(self.low):
            return f"< {number(self.high)}"
        if math.isinf(self.high):
            return f"> {number(self.low)}"
        return f"{number(self.low)} to {number(self.high)}"


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
    of: str = SINGLE
    missing: str = ""

    def ends(self, level: float = 0.95) -> tuple[float, float]:
        """Returns the ends of the interval at a level, by Student's t."""
        if not self.error:
            return self.value, self.value
        half = self.error * float(stats.t.ppf((1 + level) / 2, self.freedom))
        return self.value - half, self.value + half

    def __str__(self) -> str:
        if self.missing:
            return "-"
        low, high = self.ends()
        half = number(float(f"{(high - low) / 2:.2g}"))
        return number(self.value) + (f" ± {half}" if 0 < self.error < math.inf else "")


def of(part: Part, frames: Mapping[str, Frame], until: str = "") -> Ratio:
    """Returns a ratio with its error: over seeds, else of what the measure says its error is."""
    measure, experiment = part.left["measure"], part.left["experiment"]
    if experiment not in frames:
        return Ratio(math.nan, missing=f"no record of {experiment}")
    if until or (measure.startswith("valid_") and measure in frames[experiment].curves):
        return _trained(part, frames[experiment], until)
    try:
        left = _values(part.left, frames)
        right = dict.fromkeys(left, (part.right, 0.0, True))
        if isinstance(part.right, dict):
            right = _values(part.right, frames)
        pairs = [(left[seed], right[seed]) for seed in left if seed in right]
        ratio = over_seeds(a[0] / b[0] for a, b in pairs)
    except (LookupError, TypeError, ZeroDivisionError) as error:
        return Ratio(math.nan, missing=f"no such number: {error}")
    if ratio.missing or ratio.freedom < math.inf:
        return ratio
    ((_, *of_left), (_, *of_right)) = pairs[0]
    if of_left[1] and of_right[1]:
        return Ratio(ratio.value, 0.0, of="exact")
    relative = math.hypot(of_left[0], of_right[0])
    if relative:
        return Ratio(ratio.value, abs(ratio.value) * relative, of="by the record's own spread")
    return ratio


def over_seeds(values: Iterable[float], after: str = "") -> Ratio:
    """Returns the mean of ratios, one for each seed."""
    values, where = list(values), f", {after}" if after else ""
    if not values:
        return Ratio(math.nan, missing="no seed in common")
    if any(map(pd.isna, values)):
        return Ratio(math.nan, missing="a value is missing (NaN)")
    interval = intervals.interval(values)
    if interval.count < 2:
        return Ratio(interval.mean, of=f"{SINGLE}{where}")
    freedom = interval.count - 1
    error = interval.half / float(stats.t.ppf(0.975, freedom))
    return Ratio(interval.mean, error, freedom, f"{interval.count} seeds{where}")


def _values(fields: Mapping[str, str], frames: Mapping[str, Frame]) -> dict:
    """{seed: (number, its standard error as a fraction, whether it is exact)} of a selection.

    Of a time, half of the range from 20 to 80 % of the steps is taken for the standard error: the
    spread of one step, as times of other days differ by as much.
    """
    where = dict(fields)
    experiment, name = where.pop("experiment"), where.pop("measure")
    runs = frames[experiment].runs if experiment in frames else pd.DataFrame()
    rows = frame_lib.select(runs, status="ok", **where)
    if name not in rows or rows.empty or rows["seed"].duplicated().any():
        raise LookupError(f"{len(rows)} rows of {experiment} are {where}")
    measure, found = measures.of(name), {}
    for row in rows.to_dict("records"):
        error = row.get(measure.error) or 0.0
        if f"{name}_p20" in row:
            error = (row[f"{name}_p80"] - row[f"{name}_p20"]) / 2
        found[row["seed"]] = (row[name], error / row[name] if error else 0.0, measure.exact)
    return found


def _trained(part: Part, frame: Frame, until: str) -> Ratio:
    """A measure of the learning curves of two methods, seed by seed.

    After the last point that both have, on whatever device; where they trained for equal times, the
    best point of each, both on the same device, which another seed need not have. With `until`, the
    seconds to the best value that the right one has of it, all of them where it is not reached. Of
    several settings the one with the most common seeds, of these the longest.
    """
    where, right = dict(part.left), dict(part.right)
    name, methods = where.pop("measure"), [where.pop("method"), right["method"]]
    experiment = where.pop("experiment")
    metric = until or name
    points = frame_lib.select(frame.curves, status="ok", **where)
    lacking = [method for method in methods if method not in set(points["method"])]
    if lacking or metric not in points:
        what = ", ".join(f"`{method}`" for method in lacking) or metric
        return Ratio(math.nan, missing=f"no result of {what} on {experiment}")
    candidates = []
    for _, curves in points.groupby("problem", sort=False):
        timed = bool(until) or curves["budget"].iloc[0] > 0
        left, right = (_curves(curves, method, timed) for method in methods)
        pairs = {key[0]: (left[key], right[key]) for key in left if key in right}
        if pairs:
            compare = _seconds if until else _at_common_point
            steps, values, after = compare(list(pairs.values()), metric)
            candidates.append((len(pairs), steps, values, after))
    if not candidates:
        words = " and ".join(f"`{method}`" for method in methods)
        return Ratio(math.nan, missing=f"{words} have no setting and seed in common")
    _, _, values, after = max(candidates, key=lambda item: item[:2])
    return over_seeds(values, after)


def _curves(points: pd.DataFrame, method: str, timed: bool) -> dict[tuple, pd.DataFrame]:
    """{(seed, machine if timed): the longest learning curve} of a method, the longest last."""
    rows = points[points["method"] == method]
    curves = sorted((curve for _, curve in rows.groupby("record")), key=len)
    return {(c["seed"].iloc[0], c["machine"].iloc[0] if timed else ""): c for c in curves}


def _at_common_point(pairs: list, metric: str) -> tuple[int, list[float], str]:
    """Steps, ratios and the point in words."""
    budget = pairs[0][0]["budget"].iloc[0]
    if budget:
        best = "min" if measures.lower_is_better(metric) else "max"
        ratios = [left[metric].agg(best) / right[metric].agg(best) for left, right in pairs]
        return int(budget), ratios, f"best within {budget:,.0f} s"
    index = min(len(curve) for pair in pairs for curve in pair) - 1
    steps = int(pairs[0][0]["step"].iloc[index])
    ratios = [left[metric].iloc[index] / right[metric].iloc[index] for left, right in pairs]
    return steps, ratios, f"after {steps:,} steps"


def _seconds(pairs: list, metric: str) -> tuple[int, list[float], str]:
    """Steps, ratios of the seconds and how many reached the goal in words."""
    ratios, missed = [], 0
    for left, right in pairs:
        goal = right[metric].max()
        reached = left["seconds"][left[metric] >= goal]
        missed += reached.empty
        elapsed = left["seconds"].iloc[-1] if reached.empty else reached.iloc[0]
        ratios.append(elapsed / right["seconds"][right[metric] >= goal].min())
    return 0, ratios, f"not reached by {missed} of {len(pairs)}" if missed else ""

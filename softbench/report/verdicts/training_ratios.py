"""Ratios of two rows of training. Needs no Keras."""

from collections.abc import Callable
from typing import NamedTuple

import pandas as pd

from softbench.report import measures
from softbench.report.verdicts.ratios import Ratio, Records, none, over_seeds


class Trained(NamedTuple):
    """A measure of two rows of training, seed by seed.

    After the last point of the learning curve that both have, on whatever device; where they
    trained for equal times, the best point of each, both on the same device, which another seed
    need not have. Of several settings the one with the most common seeds, of these the longest.

    Attributes:
        experiment, group: where; the group is `dataset-model`.
        left, right: names of the methods.
        metric: key of the learning curve.
    """

    experiment: str
    group: str
    left: str
    right: str
    metric: str = "valid_perplexity"

    @property
    def experiments(self) -> list[str]:
        """Name of the experiment."""
        return [self.experiment]

    @property
    def words(self) -> str:
        """What is divided by what."""
        return f"validation {measures.name(self.metric)} of `{self.left}` / `{self.right}`"

    def ratio(self, records: Records) -> Ratio:
        """Returns the ratio."""
        return _longest(self, records, _at_common_point)


class Sooner(NamedTuple):
    """Seconds until a row has the best value of another one, over those of the other one.

    Not the value that the other one ends with: a row that overfits passes that long before its best
    one. A row that does not come to the value counts with all its seconds.

    Attributes:
        experiment, group: where; the group is `dataset-model`.
        left, right: names of the methods; the best value of the latter is the goal.
        metric: key of the learning curve, of which more is better.
    """

    experiment: str
    group: str
    left: str
    right: str
    metric: str = "valid_accuracy"

    @property
    def experiments(self) -> list[str]:
        """Name of the experiment."""
        return [self.experiment]

    @property
    def words(self) -> str:
        """What is divided by what."""
        return f"seconds of `{self.left}` / `{self.right}` to the latter's best value"

    def ratio(self, records: Records) -> Ratio:
        """Returns the ratio."""
        return _longest(self, records, _seconds)


def _longest(source: Trained | Sooner, records: Records, compare: Callable) -> Ratio:
    """Returns the ratio in the setting with the most common seeds, of these the longest."""
    points = records.points(source.experiment)
    points = points[points["group"] == source.group]
    lacking = [name for name in (source.left, source.right) if name not in set(points["method"])]
    if lacking or source.metric not in points:
        what = ", ".join(f"`{name}`" for name in lacking) or source.metric
        return none(f"no result of {what} on {source.experiment}")
    candidates = []
    for _, curves in points.groupby("problem", sort=False):
        timed = compare is _seconds or curves["budget"].iloc[0] > 0
        left, right = (_curves(curves, name, timed) for name in (source.left, source.right))
        pairs = {key[0]: (left[key], right[key]) for key in left if key in right}
        if pairs:
            steps, values, after = compare(list(pairs.values()), source.metric)
            candidates.append((len(pairs), steps, values, after))
    if not candidates:
        return none(f"`{source.left}` and `{source.right}` have no setting and seed in common")
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

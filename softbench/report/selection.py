"""What a template selects from the frames: numbers by name, as texts. Needs no Keras."""

from collections.abc import Mapping

import pandas as pd

from softbench.report import frame as frame_lib
from softbench.report import intervals, measures
from softbench.report.frame import Frame
from softbench.report.intervals import number


class Selection:
    """Numbers of the frames.

    `where` is always fields of a row, `experiment` the page's own unless it is given; `at` takes
    the number from learning curves: a point's index, or the measure whose best point is meant.

    Args:
        frames: {experiment: its frame}.
        name: the experiment of the page; "" of none.
    """

    def __init__(self, frames: Mapping[str, Frame], name: str = "") -> None:
        self.frames, self.name = frames, name

    def rows(self, at: int | str | None = None, **where: object) -> pd.DataFrame:
        """Returns the rows of runs that ended well."""
        experiment = where.pop("experiment", self.name)
        if experiment not in self.frames:
            raise LookupError(f"no experiment {experiment!r}")
        frame = self.frames[experiment]
        if at is None:
            return frame_lib.select(frame.runs, status="ok", **where)
        return frame_lib.at(frame_lib.select(frame.curves, status="ok", **where), at)

    def by_seed(self, measure: str, at: int | str | None = None, **where: object) -> dict:
        """Returns {seed: number} of one row.

        Raises:
            LookupError: where no row, or several of one seed, are meant, or they lack a number.
        """
        rows = self.rows(at, **where)
        if rows.empty or measure not in rows or rows["seed"].duplicated().any():
            raise LookupError(f"{len(rows)} rows have {measure!r} where {where}")
        values = dict(zip(rows["seed"], rows[measure], strict=True))
        if any(map(pd.isna, values.values())):
            raise LookupError(f"no number {measure!r} where {where}")
        return values

    def value(
        self, measure: str, form: str = "", at: int | str | None = None, **where: object
    ) -> str:
        """Returns the mean over seeds."""
        values = pd.Series(self.by_seed(measure, at, **where), dtype=float)
        return number(values.mean(), form or measures.of(measure).form)

    def interval(self, measure: str, form: str = "", **where: object) -> str:
        """Returns the mean over seeds with half of its 95 % interval."""
        values = self.by_seed(measure, **where).values()
        return intervals.interval(values).text(form or measures.of(measure).form)

    def ratio(
        self, measure: str, left: object, right: object, form: str = "", **where: object
    ) -> str:
        """Returns the mean of one row over that of another; a side is a method, or its fields."""
        sides = [pd.Series(v, dtype=float) for v in self._sides(measure, left, right, where)]
        return number(sides[0].mean() / sides[1].mean(), form or ".2f")

    def change(self, measure: str, left: object, right: object, **where: object) -> str:
        """Returns the change from right to left in percent, seed by seed with its interval."""
        values, base = self._sides(measure, left, right, where)
        change = intervals.interval(
            values[seed] / base[seed] - 1 for seed in values if seed in base
        )
        if not change.count:
            raise LookupError(f"no seed in common of {left} and {right}")
        return change.percent() + (" (single seed)" if change.count == 1 else "")

    def _sides(self, measure: str, left: object, right: object, where: dict) -> list[dict]:
        sides = [side if isinstance(side, dict) else {"method": side} for side in (left, right)]
        return [self.by_seed(measure, **{**where, **side}) for side in sides]


def said(text: str, why: str) -> str:
    """Returns a text whose numbers are in no record, for the reason that stands next to it."""
    assert why
    return text

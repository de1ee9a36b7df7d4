"""Differences between rows of training, seed by seed. Needs no Keras."""

from collections.abc import Mapping

import pandas as pd

from softbench.report import intervals, measures
from softbench.report.curves import ROW as _ROW
from softbench.report.tables import Table, in_order
from softbench.report.which_one import REFERENCE

_WORDS = """\
A row's value less that of `{}` with the same seed, which has the same order of the data
and the same start of all that both share: the mean over the seeds and half of its 95 % interval."""


def tables(plan: Mapping, cells: pd.DataFrame) -> list[Table]:
    """Returns differences to other rows, tables of the data sets and models with common seeds.

    To the reference, and to the row of the best mean in the first column if that is another.
    """
    columns = [name for name in plan["columns"] if measures.on_curve(name) and name in cells]
    cells = cells[cells["status"] == "ok"]
    differences = []
    for group, rows in in_order(plan, cells).groupby("group", sort=False):
        for base in dict.fromkeys([REFERENCE, *_best(rows, columns)]):
            lines = _differences(rows, base, columns)
            if lines:
                page, words = pd.DataFrame(lines).astype(object).map(str), _WORDS.format(base)
                differences.append(Table(f"{group}: difference to {base}", page, words=words))
    return differences


def _best(cells: pd.DataFrame, columns: list[str]) -> list[str]:
    """The method with the best mean in the first column, of those with most seeds; or none."""
    if not columns:
        return []
    means = cells.groupby("method", sort=False)[columns[0]].agg(["mean", "count"]).dropna()
    means = means[means["count"] == means["count"].max()]["mean"]
    if measures.lower_is_better(columns[0]):
        means = -means
    return [] if means.empty else [means.idxmax()]


def _differences(cells: pd.DataFrame, method: str, columns: list[str]) -> list[dict]:
    """Lines of the methods that share more than one seed with `method`."""
    lines = []
    for _, comparable in cells.groupby(["setting", "epochs"], dropna=False, sort=False):
        base = comparable[comparable["method"] == method]
        rows = comparable[comparable["method"] != method].groupby(_ROW, sort=False)
        lines += [_difference(row, base, columns) for _, row in rows]
    return [line for line in lines if line["seeds"] > 1]


def _difference(row: pd.DataFrame, base: pd.DataFrame, columns: list[str]) -> dict:
    left, right = row.set_index("seed"), base.set_index("seed")
    line = {"method": left["method"].iloc[0], "backend": left["backend"].iloc[0]}
    line["seeds"] = len(left.index.intersection(right.index))
    return line | {
        name: intervals.difference(left[name].to_dict(), right[name].to_dict()) for name in columns
    }

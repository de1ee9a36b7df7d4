"""What the pages of the experiments with exact NCE share. Needs no Keras."""

from collections.abc import Mapping

import pandas as pd

from softbench.report.frame import label
from softbench.report.tables import Table, half_interval, in_order, number


def problems(records: list[dict]) -> list[list[dict]]:
    """Returns the records of a task: one list for each problem, seeds in order."""
    groups: dict[str, list[dict]] = {}
    for record in sorted(records, key=lambda r: (label(r["config"]["dataset"]), r["seed"])):
        config = {key: value for key, value in record["config"].items() if key != "seed"}
        groups.setdefault(str(sorted(config.items())), []).append(record)
    return list(groups.values())


def method_columns(method: str, negatives: str) -> dict:
    """Returns the columns that name a method and its K, "-" of maximum likelihood."""
    if negatives == "-":
        return {"method": method, "negatives": None, "name": method}
    name = f"{method}, K = {negatives}"
    return {"method": method, "negatives": int(negatives), "name": name}


def by_method(plan: Mapping, rows: pd.DataFrame) -> pd.DataFrame:
    """Returns the rows of the plan's methods, as these are listed there, by K."""
    rows = rows[rows["method"].isin(plan["methods"])]
    keys = [key for key in ("negatives", "inputs", "size") if key in rows]
    return in_order(plan, rows.sort_values(keys, na_position="first", kind="stable"))


def spread(values: pd.Series) -> str:
    """Returns `mean ± half of the 95 % interval`; says how many are missing."""
    missing = values.isna().sum()
    if missing:
        return f"no minimum ({missing} of {len(values)})"
    mean = values.mean()
    half = float(f"{half_interval(values):.1g}")
    return f"{number(mean)} ± {number(half)}" if half > 1e-9 * abs(mean) else number(mean)


def spreads(rows: pd.DataFrame, columns: str, value: str, heading: str) -> pd.DataFrame:
    """Returns `spread` over seeds: a row for each `name`, a column for each value of a column."""
    table = rows.groupby(["name", columns], sort=False)[value].agg(spread).unstack(columns)
    table = table.loc[rows["name"].unique()].sort_index(axis="columns")
    return table.rename(columns=lambda column: heading.format(f"{column:,}"))


def untitled(title: str, page: pd.DataFrame, data: pd.DataFrame) -> Table:
    """Returns a table with the names of `page`'s rows in a first column without a heading."""
    return Table(title, page.rename_axis("").reset_index(), data, over_seeds(data))


def over_seeds(data: pd.DataFrame) -> str:
    """Returns the words above a table of `spread`."""
    count = data["seed"].nunique()
    return (
        f"Means over {count} seeds, ± half of the 95 % interval (Student's t)." if count > 1 else ""
    )


def points(rows: pd.DataFrame, x: str, value: str) -> list[list[float]]:
    """Returns [x, mean over seeds, half of its interval] of each x without a missing value."""
    return [
        [int(size), float(values.mean()), half_interval(values)]
        for size, values in rows.groupby(x)[value]
        if values.notna().all()
    ]

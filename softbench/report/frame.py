"""Records as tables of pandas: a row a run, and a row a point of a learning curve.

All that a report says is read from these two. Needs no Keras.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from softbench.bench import price as price_lib
from softbench.bench import records as records_lib
from softbench.bench import tasks
from softbench.bench.records import PLAN
from softbench.commands import ConfigError
from softbench.report import measures, sources

# With pyarrow, pandas has another string type, which does not hold what templates mark.
pd.set_option("mode.string_storage", "python")
_PLAN = {"experiment", "title", "columns", "paper", "methods"}
# Columns that tell rows apart, and are no numbers to show.
HIDDEN = ["record", "machine", "problem", "variant", "steps_per_epoch"]


class View(NamedTuple):
    """How the records of a task are shown: what the module `page` of a task defines.

    Attributes:
        rows: record -> rows, each with `method` and measures; of records that ended well.
        keys: columns that name a row of its table; rows that agree in them are seeds of one.
        columns: measures of its table; empty: those of the config.
        picture: arguments of `softbench.report.pictures.picture`.
    """

    rows: Callable[[Mapping], Iterable[Mapping]]
    keys: tuple[str, ...] = ("method",)
    columns: tuple[str, ...] = ()
    picture: Mapping[str, object] = {}


class Frame(NamedTuple):
    """An experiment's folder.

    Attributes:
        name: of the folder.
        plan: content of `experiment.json`.
        runs: a row for each that a task's `View` takes from a record; of a record that did not
            end well one for each of its methods.
        curves: a row for each point of the learning curves of training.
        records: as they are.
        damaged: {file name: why it is no record}.

    Columns of `runs` and `curves`:
        record: index of the record; cell, task, group (`dataset-model`), dataset, model, preset,
            backend, seed, status, n (classes), device, epochs, method.
        budget: seconds of training at most, 0 without a limit; reference_budget: steps of a
            reference, 0 without a budget.
        machine: the device and the environment variables.
        problem: all that must agree for methods to be compared, but for the machine, which decides
            times alone.
        variant: all that must agree for two records to be seeds of one row.

    `runs` has in addition command, date, hardware, software, commit, error; code and data, digests
    of softbench's source and of prepared data; shared_clock, whether
    other programs made the times longer; alone, whether the record says that they did not; measures
    by name (of a time the median, with `_p20` and `_p80`), and the paper's, `<measure>.paper`; with
    `reach` in the config `goal_s`, the seconds to what that method ends with; with records of
    `--price` in the folder `wall_s`, what the steps of a run take by them.
    `curves` has point, its index from 0, and what the point holds.
    """

    name: str
    plan: dict
    runs: pd.DataFrame
    curves: pd.DataFrame
    records: list[dict]
    damaged: dict[str, str]

    @property
    def view(self) -> View:
        """Of the first task in the order of the registry that has records."""
        names = set(self.runs["task"])
        return view(next((task for task in tasks.TASKS if task in names), "train"))


def view(task: str) -> View:
    """Returns how the records of a task are shown."""
    return tasks.page_module(task).VIEW


def read(folder: Path) -> Frame:
    """Returns what a folder of results holds.

    Raises:
        ConfigError: when it holds no experiment.
    """
    try:
        plan = json.loads((folder / PLAN).read_text())
    except OSError:
        raise ConfigError(
            f"--results must be a folder that `softbench` wrote. Received: {folder}"
        ) from None
    except ValueError:
        plan = None
    if not isinstance(plan, dict) or not plan.keys() >= _PLAN:
        raise ConfigError(
            f"{PLAN} must be one that `softbench` wrote: run it again. Received: {folder / PLAN}"
        )
    records, damaged = records_lib.read_folder(folder)
    frame = of(folder.resolve().name, plan, records, damaged)
    return frame._replace(runs=_with_prices(frame.runs, records, price_lib.read_folder(folder)))


def of(
    name: str, plan: dict, records: list[dict], damaged: Mapping[str, str] | None = None
) -> Frame:
    """Returns the tables of records."""
    common = sources.of(records)
    runs = [
        {**source, **sources.provenance(record), **row}
        for source, record in zip(common, records, strict=True)
        for row in _rows(record)
    ]
    curves = [
        {**source, **row}
        for source, record in zip(common, records, strict=True)
        for row in _points(record)
    ]
    columns = sources.of([sources.EMPTY])[0]
    runs = _table(runs, [*columns, *sources.provenance(sources.EMPTY), "method"])
    curves = _table(curves, [*columns, "method", "point", "step", "seconds"])
    runs = _with_paper(_with_goal(runs, curves, plan.get("reach") or {}), plan)
    return Frame(name, plan, runs, curves, records, dict(damaged or {}))


def select(rows: pd.DataFrame, **where: object) -> pd.DataFrame:
    """Returns the rows whose columns have a value, or one of a list of values.

    Raises:
        LookupError: for a column that there is not.
    """
    for column, wanted in where.items():
        if column not in rows:
            raise LookupError(f"no column {column!r}")
        values = wanted if isinstance(wanted, (list, tuple)) else [wanted]
        if rows.empty:
            return rows
        if pd.api.types.is_numeric_dtype(rows[column]):
            rows = rows[rows[column].isin([float(value) for value in values])]
        else:
            rows = rows[rows[column].astype(str).isin([str(value) for value in values])]
    return rows


def at(curves: pd.DataFrame, where: int | str) -> pd.DataFrame:
    """Returns one point of each learning curve.

    Args:
        curves: of a frame.
        where: index of the point, from the end where negative; or a measure, for its best point.
    """
    if isinstance(where, int):
        return curves.groupby("record", sort=False).nth(where)
    by_record = curves.dropna(subset=where).groupby("record", sort=False)[where]
    best = by_record.idxmin() if measures.lower_is_better(where) else by_record.idxmax()
    return curves.loc[best]


def times(summary: Mapping | None, name: str) -> dict[str, float | None]:
    """Returns the columns of a measured time {"median", "p20", "p80"}; None where it is missing."""
    keys = {name: "median", f"{name}_p20": "p20", f"{name}_p80": "p80"}
    return {column: (summary or {}).get(key) for column, key in keys.items()}


def _table(rows: list[dict], columns: Iterable[str]) -> pd.DataFrame:
    table = pd.DataFrame(rows, columns=None if rows else list(dict.fromkeys(columns)))
    unknown = table.columns[table.isna().all()]
    return table.assign(**dict.fromkeys(unknown, np.nan))  # not None: one can reckon with it


def _rows(record: Mapping) -> Iterable[dict]:
    if record["status"] == "ok":
        return view(record["config"]["task"]).rows(record)
    return [{"method": name} for name in record["config"]["methods"]]


def _points(record: Mapping) -> list[dict]:
    method = next(iter(record["config"]["methods"]), None)
    common = {"method": method, "steps_per_epoch": record.get("steps_per_epoch")}
    curve = record.get("curve") or []
    return [common | {"point": index, **point} for index, point in enumerate(curve)]


def _with_paper(runs: pd.DataFrame, plan: Mapping) -> pd.DataFrame:
    names = runs["group"].astype(str) + "-" + runs["method"].astype(str)
    columns: dict[str, dict[str, float]] = {}
    for row, numbers in plan["paper"].items():
        for column, number in numbers.items():
            if measures.is_declared(column):
                columns.setdefault(f"{column}.paper", {})[row] = number
    return runs.assign(**{column: names.map(rows) for column, rows in columns.items()})


def _with_prices(runs: pd.DataFrame, records: list[dict], prices: Iterable[dict]) -> pd.DataFrame:
    """Runs with `wall_s`: steps, times the price of one, times the median step of the reference.

    Args:
        runs: of all records.
        records: of which a price must have the device and the setting; not that of a method, which
            a search may have changed.
        prices: records of `--price`.
    """
    step_ms = {
        (sources.key(one["device"], one["setting"]), name): row["ratio"]
        * price_lib.reference_ms(one)
        for one in prices
        for name, row in one["methods"].items()
        if row.get("rounds")
    }
    if not step_ms or "steps" not in runs:
        return runs
    of_record = [
        sources.key(one.get("device"), price_lib.setting(one["config"])) for one in records
    ]
    keys = zip(runs["record"], runs["method"], strict=True)
    found = [step_ms.get((of_record[record], method), np.nan) for record, method in keys]
    return runs.assign(wall_s=runs["steps"] * found / 1000.0)


def _with_goal(runs: pd.DataFrame, curves: pd.DataFrame, goal: Mapping) -> pd.DataFrame:
    """Runs with `goal_s`: seconds until a run has what a method ends with on the same problem.

    Args:
        runs, curves: of all records.
        goal: {"method", "metric"} of a config's `reach`, or empty.
    """
    if not goal or goal["metric"] not in curves:
        return runs
    points = curves[curves["status"] == "ok"]
    # Of a budget in steps of a reference those seconds that it stands for.
    seconds = points["seconds"]
    if "price_seconds" in points:
        seconds = points["price_seconds"].fillna(seconds)
    points = points.assign(seconds=seconds)
    reached = {}
    for _, own in points.groupby(["group", "backend", "budget", "reference_budget", "seed"]):
        end = own.loc[own["method"] == goal["method"], goal["metric"]].tail(1)
        worse = measures.lower_is_better(goal["metric"])
        there = own[goal["metric"]] <= end.max() if worse else own[goal["metric"]] >= end.max()
        reached |= own[there].groupby("record")["seconds"].min().to_dict()
    return runs.assign(goal_s=runs["record"].map(reached))

"""Results of the suite's version on one machine or several: what each method costs to the target.

Runs of two machines are never averaged: a machine is a column. Needs no Keras.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

import pandas as pd

from softbench.bench import records, suite_version
from softbench.bench.suite_version import Problem
from softbench.commands import ConfigError
from softbench.report import intervals, measures, submission
from softbench.report import markdown as md

_KEYS = ["data", "method", "backend", "machine"]


def merged(paths: Iterable[Path]) -> str:
    """Returns the table of packs of `softbench submit`.

    Raises:
        ConfigError: for a file that is no such pack, or a run that two of them hold.
    """
    rows, machines, files = [], {}, {}
    for path in paths:
        made = submission.read(path)
        for record in made.records.values():
            run = (made.machine, *submission.run_of(record))
            if run in files:
                rule = "Files of --merge must not hold the same run of a machine"
                names = f"{files[run]} and {path}, {', '.join(map(str, run))}"
                raise ConfigError(f"{rule}. Received: {names}")
            files[run] = path
            rows.append(row(record, made.machine))
            if "machine" in record:
                machines[made.machine] = submission.described(record)
    lines = [f"* {name}: {md.literal(text)}" for name, text in machines.items()]
    return "\n".join([table(rows), "", *lines])


def of_folder(workdir: Path) -> str:
    """Returns the table of what `softbench --suite` has written on this machine."""
    found = [record for run in suite_version.RUNS for record in records.read_all(workdir / run)]
    version = suite_version.EXPERIMENT
    return table([row(r, "this one") for r in found if r["config"]["experiment"] == version])


def row(record: Mapping, machine: str) -> dict:
    """Returns what a record says of its problem's target: steps of the reference, and seconds."""
    data, method, backend, _ = submission.run_of(record)
    steps, seconds = cost(record, suite_version.PROBLEMS[data])
    names = dict(zip(_KEYS, (data, method, backend, machine), strict=True))
    return {**names, "steps": steps, "seconds": seconds}


def cost(record: Mapping, problem: Problem) -> tuple[float | None, float | None]:
    """Returns reference steps and seconds at the first point of a curve that has the target."""
    sign = -1 if measures.lower_is_better(problem.measure) else 1
    for point in record.get("curve") or ():
        value = point.get(problem.measure)
        if value is not None and sign * value >= sign * problem.target:
            return point["reference_steps"], point["price_seconds"]
    return None, None


def table(rows: list[dict]) -> str:
    """Returns a table in Markdown: a row for each data set, method, backend and machine.

    Where a run does not reach the target the others have no mean: it would be of the best alone.

    Args:
        rows: of `row`.
    """
    if not rows:
        return "No results."
    header = [*_KEYS, "target", "runs that reach it", "steps of the reference", "seconds"]
    body = []
    for key, group in pd.DataFrame(sorted(rows, key=_order)).groupby(_KEYS, sort=False):
        problem, reached = suite_version.PROBLEMS[key[0]], int(group["steps"].notna().sum())
        target = f"{measures.words(problem.measure)} {problem.target:g}"
        costs = group if reached == len(group) else group.head(0)
        texts = [intervals.interval(costs[name]).text() for name in ("steps", "seconds")]
        body.append([*map(md.literal, key), target, f"{reached} of {len(group)}", *texts])
    return md.table(header, body)


def _order(row: Mapping) -> tuple:
    """That of `suite.toml`: problems, then methods, those that it does not have last."""
    methods = suite_version.RUNS[suite_version.PROBLEMS[row["data"]].run].methods.split(",")
    place = methods.index(row["method"]) if row["method"] in methods else len(methods)
    return list(suite_version.PROBLEMS).index(row["data"]), place, row["backend"], row["machine"]

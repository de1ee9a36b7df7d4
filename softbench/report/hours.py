"""What a page lacks of its paper's tables, and the hours that it would take. Needs no Keras."""

import re
from collections.abc import Mapping

import pandas as pd

from softbench.report import frame
from softbench.report import markdown as md
from softbench.report.page import Page
from softbench.report.papers import NOT_HERE, items
from softbench.report.tables import number

# Rows whose steps cost what those of another row do, where their names do not tell.
_LIKE = {"reg_mle": "full", "rff_d4096": "rff"}
_HOUR = 3600


def remaining(page: Page) -> list[str]:
    """Returns lines on the rows that a paper has, for each data set and model that lacks some."""
    points = frame.points(page.records)
    ends = points[points["status"] == "ok"].groupby("record").tail(1)
    cells = page.cells[page.cells["status"] == "ok"]
    lines = []
    for group, (rows, available) in _wanted(page, cells).items():
        ran = set(cells["method"][cells["group"] == group])
        missing = {method: epochs for method, epochs in rows.items() if method not in ran}
        runs = ends[ends["group"] == group]
        if missing and runs.empty:
            why = "none of this model has run, so no hours are estimated" if available else NOT_HERE
            lines.append(f"Not run: {_count(missing)} of {md.code(group)} ({why}).")
        elif missing:
            lines.append(_not_run(group, missing, runs))
        if not runs.empty:
            lines += _shorter(group, {name: rows[name] for name in rows if name in ran}, runs)
    return lines


def _wanted(page: Page, cells: pd.DataFrame) -> dict[str, tuple[dict, bool]]:
    """{data set and model: ({method: epochs in the paper or None}, whether the data are here)}."""
    wanted: dict[str, tuple[dict, bool]] = {}
    paper = page.plan["paper"]
    for item in items(page.name):
        groups = cells["group"][cells["method"].isin(item.methods)].unique()
        names = [f"{group}-{method}" for group in groups for method in item.methods]
        for name in names or ([] if item.methods else paper):
            group, method = name.rsplit("-", 1)
            rows, _ = wanted.setdefault(group, ({}, not item.datasets))
            rows[method] = paper.get(name, {}).get("epochs")
    return wanted


def _not_run(group: str, missing: Mapping, runs: pd.DataFrame) -> str:
    """How long the missing rows would take at the seconds a step of others."""
    hours, like = 0.0, {}
    for method, epochs in missing.items():
        other = _nearest(method, list(runs["method"]))
        hours += _hours(runs, other, epochs)
        like.setdefault(other, []).append(md.code(method))
    how = "; ".join(f"{', '.join(names)} at those of {md.code(o)}" for o, names in like.items())
    length = "as long as in the paper" if all(missing.values()) else "as long as the longest here"
    rows, time = f"{_count(missing)} of {md.code(group)}", _two_digits(hours)
    return (
        f"Not run: {rows}, {length} about {time} hours on the machine above, by "
        f"seconds a step: {how}."
    )


def _shorter(group: str, rows: Mapping, runs: pd.DataFrame) -> list[str]:
    """How long the rows that are shorter than the paper's would take from their start."""
    longest = runs.groupby("method")["step"].max()
    per_epoch = runs["steps_per_epoch"].max()
    short = {m: n for m, n in rows.items() if n and longest.get(m, 0) < n * per_epoch}
    if not short:
        return []
    hours = sum(_hours(runs, method, epochs) for method, epochs in short.items())
    return [
        f"Shorter than in the paper: {_count(short)} of {md.code(group)} "
        f"({', '.join(map(md.code, short))}); as long as there about {_two_digits(hours)} hours."
    ]


def _hours(runs: pd.DataFrame, method: str, epochs: int | None) -> float:
    """Hours of training at a method's mean seconds a step."""
    rows = runs[runs["method"] == method]
    steps = epochs * runs["steps_per_epoch"].max() if epochs else runs["step"].max()
    return float((rows["seconds"] / rows["step"]).mean() * steps / _HOUR)


def _nearest(method: str, ran: list[str]) -> str:
    """The row whose steps are likest: by `_LIKE`, else of the same name with the nearest number."""
    if _LIKE.get(method) in ran:
        return _LIKE[method]
    name, size = _split(method.removeprefix("reg_"))
    family = [other for other in ran if _split(other)[0] == name]
    return min(family or ran, key=lambda other: abs(_split(other)[1] - size))


def _split(method: str) -> tuple[str, int]:
    name, size = re.fullmatch(r"(.*?)(\d*)", method).groups()
    return name, int(size or 0)


def _count(rows: Mapping) -> str:
    return f"{len(rows)} row{'s' * (len(rows) > 1)}"


def _two_digits(value: float) -> str:
    return number(float(f"{value:.2g}"))

"""Quality against one number of a method's draws: nu, D or m. Needs no Keras."""

import itertools
import json
from collections.abc import Iterable, Mapping

import pandas as pd

from softbench.report import frame, intervals, measures
from softbench.report.which_one import REFERENCE

# {argument: its words}, of a head or of its sampler.
_NUMBERS = {"nu": "nu", "num_features": "features D", "num_sampled": "draws m"}
_FEWEST = 3  # points of a plot


def plots(plan: Mapping, records: list[dict]) -> dict[str, tuple[str, dict]]:
    """Returns {file name: (caption, data)} of rows that differ in one number alone.

    Quality is the first measure of the columns that learning curves have, at the last step that
    all of them have reached; that of the reference at this step is a level. Of several settings of
    one data set and model the one with the most rows.
    """
    records = [record for record in records if record["status"] == "ok"]
    points = frame.points(records)
    key = next(filter(None, map(measures.on_curve, plan["columns"])), None)
    by_name: dict[str, tuple[str, dict]] = {}
    if key not in points:
        return by_name
    sizes: dict[str, int] = {}
    for (group, _), group_points in points.dropna(subset=key).groupby(["group", "problem"]):
        methods = _methods(records[i] for i in group_points["record"].unique())
        for argument, words in _NUMBERS.items():
            rows, file_name = _rows(methods, argument), f"{group}-{argument}"
            names = [name for line in rows.values() for name in line]
            steps = [group_points.loc[group_points["method"] == name, "step"] for name in names]
            common = set.intersection(*map(set, steps)) if steps else set()
            if len(names) < max(_FEWEST, sizes.get(file_name, 0) + 1) or not common:
                continue
            sizes[file_name] = len(names)
            there = (
                group_points[group_points["step"] == max(common)].groupby("method")[key].agg(list)
            )
            data = _data(rows, there, words, measures.drawn()[key].words)
            caption = f"{group}: {data['y']} after {max(common):,} steps against {words}"
            by_name[file_name] = (caption, data)
    return by_name


def _methods(records: Iterable[Mapping]) -> dict[str, dict]:
    """Returns {name: method}; a name of several methods is left out."""
    by_name: dict[str, list[dict]] = {}
    for record in records:
        for name, method in record["config"]["methods"].items():
            by_name.setdefault(name, []).append(method)
    return {
        name: variants[0]
        for name, variants in by_name.items()
        if all(one == variants[0] for one in variants)
    }


def _rows(methods: Mapping[str, dict], argument: str) -> dict[str, dict[str, float]]:
    """Returns {what the names begin with: {method: number}} of rows equal but for the argument."""
    groups: dict[str, dict[str, float]] = {}
    for name, method in methods.items():
        kwargs = method.get("kwargs", {})
        sampler = kwargs.get("sampler")
        config = sampler.get("config", {}) if isinstance(sampler, dict) else {}
        number = {**config, **kwargs}.get(argument)
        if isinstance(number, int | float):
            others = _without(kwargs, argument)
            others["sampler"] = sampler["class_name"] if config else sampler
            rest = {**method, "kwargs": others, "config": _without(config, argument)}
            groups.setdefault(json.dumps(rest, sort_keys=True), {})[name] = number
    lines: dict[str, dict[str, float]] = {}
    for line in groups.values():
        if len(set(line.values())) > 1:
            name = _in_common(list(line))
            lines[name if name and name not in lines else ", ".join(line)] = line
    return lines


def _without(values: Mapping, name: str) -> dict:
    return {key: value for key, value in values.items() if key != name}


def _in_common(names: list[str]) -> str:
    """The words that names begin with, as `rff` of `rff` and `rff_nu1`."""
    words = itertools.takewhile(
        lambda column: len(set(column)) == 1,
        zip(*(name.split("_") for name in names), strict=False),
    )
    return "_".join(column[0] for column in words)


def _data(rows: Mapping, there: pd.Series, words: str, quality: str) -> dict:
    lines = {}
    for name, line in rows.items():
        points = [(number, intervals.interval(there[method])) for method, number in line.items()]
        several = all(mean.count > 1 for _, mean in points)
        lines[name] = [[x, mean.mean, mean.half][: 2 + several] for x, mean in sorted(points)]
    data = {"x": words, "y": f"validation {quality}", "log": "x", "lines": lines}
    levels = [REFERENCE] if REFERENCE in there else []
    return data | {"levels": {name: intervals.interval(there[name]).mean for name in levels}}

"""Quality against one number of a method's draws: nu, D or m. Needs no Keras."""

import itertools
import json
from collections.abc import Iterable, Mapping

import pandas as pd

from softbench.report import frame, intervals, measures
from softbench.report.choices import REFERENCE

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
    found: dict[str, tuple[str, dict]] = {}
    if key not in points:
        return found
    sizes: dict[str, int] = {}
    for (group, _), own in points.dropna(subset=key).groupby(["group", "problem"]):
        methods = _methods(records[place] for place in own["record"].unique())
        for argument, words in _NUMBERS.items():
            rows, place = _rows(methods, argument), f"{group}-{argument}"
            names = [name for line in rows.values() for name in line]
            steps = [own.loc[own["method"] == name, "step"] for name in names]
            common = set.intersection(*map(set, steps)) if steps else set()
            if len(names) < max(_FEWEST, sizes.get(place, 0) + 1) or not common:
                continue
            sizes[place] = len(names)
            there = own[own["step"] == max(common)].groupby("method")[key].agg(list)
            data = _data(rows, there, words, measures.drawn()[key].words)
            caption = f"{group}: {data['y']} after {max(common):,} steps against {words}"
            found[place] = (caption, data)
    return found


def _methods(records: Iterable[Mapping]) -> dict[str, dict]:
    """Returns {name: method}; a name that stands for several methods is left out."""
    found: dict[str, list[dict]] = {}
    for record in records:
        for name, method in record["config"]["methods"].items():
            found.setdefault(name, []).append(method)
    return {name: own[0] for name, own in found.items() if all(one == own[0] for one in own)}


def _rows(methods: Mapping[str, dict], argument: str) -> dict[str, dict[str, float]]:
    """Returns {what the names begin with: {method: number}} of rows alike but for the argument."""
    alike: dict[str, dict[str, float]] = {}
    for name, method in methods.items():
        kwargs = method.get("kwargs", {})
        sampler = kwargs.get("sampler")
        config = sampler.get("config", {}) if isinstance(sampler, dict) else {}
        number = {**config, **kwargs}.get(argument)
        if isinstance(number, int | float):
            own = _without(kwargs, argument)
            own["sampler"] = sampler["class_name"] if config else sampler
            rest = {**method, "kwargs": own, "config": _without(config, argument)}
            alike.setdefault(json.dumps(rest, sort_keys=True), {})[name] = number
    found: dict[str, dict[str, float]] = {}
    for line in alike.values():
        if len(set(line.values())) > 1:
            name = _in_common(list(line))
            found[name if name and name not in found else ", ".join(line)] = line
    return found


def _without(values: Mapping, name: str) -> dict:
    return {key: value for key, value in values.items() if key != name}


def _in_common(names: list[str]) -> str:
    """The words that names begin with, as `rff` of `rff` and `rff_nu1`."""
    words = itertools.takewhile(
        lambda own: len(set(own)) == 1, zip(*(name.split("_") for name in names), strict=False)
    )
    return "_".join(own[0] for own in words)


def _data(rows: Mapping, there: pd.Series, words: str, quality: str) -> dict:
    lines = {}
    for name, line in rows.items():
        found = [(number, intervals.interval(there[method])) for method, number in line.items()]
        several = all(own.count > 1 for _, own in found)
        lines[name] = [[x, own.mean, own.half][: 2 + several] for x, own in sorted(found)]
    data = {"x": words, "y": f"validation {quality}", "log": "x", "lines": lines}
    known = [REFERENCE] if REFERENCE in there else []
    return data | {"levels": {name: intervals.interval(there[name]).mean for name in known}}

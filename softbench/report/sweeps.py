"""Quality against one number of a method's draws: nu, D or m. Needs no Keras."""

import itertools
import json
from collections.abc import Mapping

import pandas as pd

from softbench.report import frame, intervals, measures
from softbench.report.choices import REFERENCE

# {argument: its words}, of a head or of its sampler.
_NUMBERS = {"nu": "nu", "num_features": "features D", "num_sampled": "draws m"}
_FEWEST = 3  # points of a plot


def plots(plan: Mapping, records: list[dict]) -> dict[str, tuple[str, dict]]:
    """Returns {file name: (caption, data)} of rows that differ in one number alone.

    Quality is the first measure of the columns that learning curves have, at the last step that
    all of them have reached; that of the reference at this step is a level.
    """
    points = frame.points([record for record in records if record["status"] == "ok"])
    key = next(filter(None, map(measures.on_curve, plan["columns"])), None)
    found = {}
    if key not in points:
        return found
    methods = {name: row for record in records for name, row in record["config"]["methods"].items()}
    for (group, _), own in points.dropna(subset=key).groupby(["group", "setting"]):
        for argument, words in _NUMBERS.items():
            rows = _rows({name: methods[name] for name in own["method"].unique()}, argument)
            names = [name for line in rows.values() for name in line]
            steps = [own.loc[own["method"] == name, "step"] for name in names]
            common = set.intersection(*map(set, steps)) if steps else set()
            if len(names) < _FEWEST or not common:
                continue
            there = own[own["step"] == max(common)].groupby("method")[key].agg(list)
            data = _data(rows, there, words, measures.drawn()[key].words)
            caption = f"{group}: {data['y']} after {max(common):,} steps against {words}"
            found[f"{group}-{argument}"] = (caption, data)
    return found


def _rows(methods: Mapping[str, dict], argument: str) -> dict[str, dict[str, float]]:
    """Returns {what the names begin with: {method: number}} of rows alike but for the argument."""
    alike: dict[str, dict[str, float]] = {}
    for name, method in methods.items():
        kwargs = method.get("kwargs", {})
        sampler = kwargs.get("sampler")
        config = sampler.get("config", {}) if isinstance(sampler, dict) else {}
        number = {**config, **kwargs}.get(argument)
        if isinstance(number, int | float):
            rest = json.dumps([method, sampler], sort_keys=True)
            rest = rest.replace(f'"{argument}": {json.dumps(number)}', "")
            alike.setdefault(rest, {})[name] = number
    lines = [line for line in alike.values() if len(set(line.values())) > 1]
    return {_in_common(list(line)): line for line in lines}


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

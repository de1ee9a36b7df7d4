"""Records as pandas DataFrames: the one module that opens them. Needs no Keras.

A page that shows what only its records have names it to `long`.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import numpy as np
import pandas as pd

from softbench.bench import records as records_lib
from softbench.report import measures

# What decides how a method's scores come from its table.
_SCORES = {"normalize": False, "temperature": 1.0, "absolute": False, "use_bias": True}


def label(entry: Mapping) -> str:
    """Returns the readable name of a data set or model."""
    name = entry.get("label") or entry.get("name", "none").rsplit(":", 1)[-1]
    name = name.replace("/", "_")
    return f"{name}_{entry['preset']}" if "preset" in entry else name


def long(records: list[dict], rows: Callable[[Mapping], Iterable[Mapping]]) -> pd.DataFrame:
    """Returns a row for each that `rows` takes from a record, with what the record is of.

    Columns:
        record: its index in the list.
        cell, task, group (`dataset-model`), dataset, model, backend, seed, status, num_classes.
        device: its name.
        epochs, budget: how long it trained at most; the budget in seconds, 0 without one.
        reference_budget: the budget in steps of a reference, 0 without one.
        machine: the device and the environment variables.
        setting: all that must agree for methods to be compared; problem: the same but for the
            machine, which decides times alone.
        variant: all that must agree for two records to be seeds of one row.

    Where an experiment trained on the same data both for whole epochs and for shorter ones, the
    latter are a separate group, named after the steps of their epochs.

    Of training for a number of steps neither `setting` nor `variant` has the machine, but for the
    kind of device: seeds of several count together. Where a seed was run on two, machines are
    compared, and each is a separate row.
    """
    sources = [_source(index, record) for index, record in enumerate(records)]
    sources = _by_length(_across_machines(sources))
    pairs = zip(sources, records, strict=True)
    table = [{**source, **row} for source, record in pairs for row in rows(record)]
    empty = _by_length(_across_machines([_source(0, _EMPTY)]))[0]
    table = pd.DataFrame(table, columns=None if table else [*empty, "method"])
    unknown = table.columns[table.isna().all()]
    return table.assign(**dict.fromkeys(unknown, np.nan))  # not None: one can reckon with it


def once(
    records: list[dict], rows: Callable[[Mapping], Iterable[Mapping]], keys: list[str]
) -> pd.DataFrame:
    """As `long`, of rows that several runs have by these columns the first: as if they were one."""
    table = long(sorted(records, key=lambda record: record["cell"]), rows)
    return table.drop_duplicates(keys)


_WIDE, _LENGTH = "whatever the machine", "steps of an epoch"
_EMPTY = {"config": {"task": "", "methods": {}}, "status": ""}


def _source(index: int, record: Mapping) -> dict:
    config, device = record["config"], record.get("device") or {}
    dataset, model = label(config.get("dataset", {})), label(config.get("model", {}))
    # The steps of a budget are other ones for each method.
    apart = ("methods", "seed", "epochs", "steps")
    same = {key: value for key, value in config.items() if key not in apart}
    setting = [f"{dataset}-{model}", same, device.get("name")]
    problem = [setting[0], {key: value for key, value in same.items() if key != "environment"}]
    row = [
        config["methods"],
        config.get("epochs"),
        *([config["steps"]] if "steps" in config else []),
    ]
    wide = [*problem, device.get("kind")]
    by_steps = config["task"] == "train" and not config.get("max_train_seconds")
    return {
        "record": index,
        "cell": record.get("cell"),
        "task": config["task"],
        "group": f"{dataset}-{model}",
        "dataset": dataset,
        "model": model,
        "backend": config.get("backend"),
        "seed": record.get("seed", config.get("seed")),
        "status": record["status"],
        "num_classes": record.get("num_classes"),
        "device": device.get("name"),
        "epochs": config.get("epochs"),
        "budget": config.get("max_train_seconds", 0),
        "reference_budget": int(config.get("budget", "0").rpartition(":")[2]),
        "machine": _key(device, same.get("environment")),
        "problem": _key(*problem),
        "setting": _key(*setting),
        "variant": _key(*setting, *row, device),
        _LENGTH: (config.get("experiment"), f"{dataset}-{model}", _limit(record)),
        _WIDE: {"setting": _key(*wide), "variant": _key(*wide, *row)} if by_steps else {},
    }


def _limit(record: Mapping) -> int:
    """The steps after which a record's epochs were cut, 0 for epochs of all data."""
    limit = record["config"].get("steps_per_epoch") or 0
    return limit if limit == record.get("steps_per_epoch") else 0


def _key(*values: object) -> str:
    return json.dumps(values, sort_keys=True)


def _across_machines(sources: list[dict]) -> list[dict]:
    """`setting` and `variant` of records of any machine, unless a seed was run on two."""
    wide = [source.pop(_WIDE) for source in sources]
    for name in ("setting", "variant"):
        done = Counter(
            (keys[name], keys["variant"], source["seed"])
            for keys, source in zip(wide, sources, strict=True)
            if keys and source["status"] == "ok"
        )
        twice = {key for (key, *_), count in done.items() if count > 1}
        for keys, source in zip(wide, sources, strict=True):
            if keys and keys[name] not in twice:
                source[name] = keys[name]
    return sources


def _by_length(sources: list[dict]) -> list[dict]:
    """Sources with groups that have either whole epochs or shorter ones."""
    lengths = [source.pop(_LENGTH) for source in sources]
    whole = {(experiment, group) for experiment, group, steps in lengths if not steps}
    for source, (*key, steps) in zip(sources, lengths, strict=True):
        if steps and tuple(key) in whole:
            source["group"] += f"_{steps}_steps"
    return sources


def cells(records: list[dict]) -> pd.DataFrame:
    """Returns a row for each record and method of its config, so one for a record of training.

    Columns, in addition to those of `long`:
        method; sampler: the registry name, if the method has one.
        scores: how the method's scores come from its table.
        corpus: name of the data set without the folder, or "".
        cut: whether epochs were shorter than the data.
        command, date, hardware, software, commit, error: of the record.
        code, data: digests of softbench's source and of prepared data, None where unknown.
        shared_clock: whether other programs made the times longer; alone: whether the
            record says that they did not (records from before processors were recorded say
            neither).
        tree_s: seconds of fitting a tree before training.
        most_frequent.*: what the most frequent classes score; oracle.*: what the true
            distribution of generated data does.
        the columns of `softbench.report.measures`, and all of `final`.
    """
    return long(records, _methods)


def _methods(record: Mapping) -> list[dict]:
    common = {**_provenance(record), **measures.values(record)}
    common["tree_s"] = (record.get("tree") or {}).get("fit_seconds")
    for row in ("most_frequent", "oracle"):
        scores = record.get(row) or {}
        common |= {f"{row}.{name}": value for name, value in scores.items()}
    return [
        {
            "method": name,
            "sampler": records_lib.sampler_name(method),
            "scores": str([method.get("kwargs", {}).get(*item) for item in _SCORES.items()]),
            **common,
        }
        for name, method in record["config"]["methods"].items()
    ]


def _provenance(record: Mapping) -> dict:
    config, device, git = record["config"], record.get("device"), record.get("git") or {}
    processors = record.get("processors")
    versions = sorted(record.get("versions", {}).items())
    error = (record.get("error") or "").strip().splitlines()
    return {
        "corpus": config["dataset"].get("name", "").rsplit("/", 1)[-1],
        "cut": bool(config.get("steps_per_epoch")),
        "command": record.get("command"),
        "date": record.get("started_at", "")[:10],
        "hardware": device and f"{device['name']} ({device['kind']} x {device['count']})",
        "software": ", ".join(f"{name} {version}" for name, version in versions),
        "commit": f"{(git.get('commit') or 'none')[:12]}{' (changed)' * bool(git.get('dirty'))}",
        "code": record.get("code"),
        "data": record.get("data"),
        "shared_clock": _shared_clock(processors or {}),
        "alone": bool(processors) and not _shared_clock(processors),
        "error": error[-1] if error else "",
    }


def _shared_clock(processors: Mapping) -> bool:
    """Whether other programs may have made the times longer."""
    others = processors.get("others", 0.0)
    return others >= 0.1 and processors["own"] + others > processors["count"] - 0.5


def points(records: list[dict]) -> pd.DataFrame:
    """Returns a row for each point of the learning curves of training.

    Columns, in addition to those of `long`: method; point, its index from 0; steps_per_epoch, of
    whole epochs; and what the point holds.
    """

    def rows(record: Mapping) -> list[dict]:
        method = next(iter(record["config"]["methods"]), None)
        common = {"method": method, "steps_per_epoch": record.get("steps_per_epoch")}
        curve = record.get("curve") or []
        return [common | {"point": index, **point} for index, point in enumerate(curve)]

    return long(records, rows)

"""What each row of a frame says of its record: what it is of, and what tells it from others.

Needs no Keras. `softbench.report.frame.Frame` says what the columns are.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping

from softbench.bench import matrix

EMPTY = {"config": {"task": "", "methods": {}, "dataset": {}}, "status": ""}  # has all columns
_WIDE, _LENGTH = "whatever the machine", "steps of an epoch"


def _source(index: int, record: Mapping) -> dict:
    config, device = record["config"], record.get("device") or {}
    dataset, model = (matrix.name(config.get(field, {})) for field in ("dataset", "model"))
    # The steps of a budget are other ones for each method.
    apart = ("methods", "seed", "epochs", "steps")
    same = {key: value for key, value in config.items() if key not in apart}
    if "timing" in same:  # which points have diagnostics is nothing of what is trained
        same["timing"] = {k: v for k, v in same["timing"].items() if k != "diagnose_last"}
    group = f"{dataset}-{model}"
    problem = [group, {key: value for key, value in same.items() if key != "environment"}]
    row = [config["methods"], config.get("epochs"), config.get("steps")]
    by_steps = config["task"] == "train" and not config.get("max_train_seconds")
    return {
        "record": index,
        "cell": record.get("cell"),
        "task": config["task"],
        "group": group,
        "dataset": dataset,
        "model": model,
        "preset": config.get("model", {}).get("preset"),
        "backend": config.get("backend"),
        "seed": record.get("seed", config.get("seed")),
        "status": record["status"],
        "n": record.get("num_classes"),
        "device": device.get("name"),
        "kind": device.get("kind"),
        "epochs": config.get("epochs"),
        "budget": config.get("max_train_seconds", 0),
        "reference_budget": int(config.get("budget", "0").rpartition(":")[2]),
        "machine": key(device, same.get("environment")),
        "problem": key(*problem),
        "variant": key(group, same, *row, device),
        _LENGTH: (config.get("experiment"), group, _limit(record)),
        _WIDE: key(*problem, _arithmetic(device), *row) if by_steps else "",
    }


def _arithmetic(device: Mapping) -> str | None:
    """What decides the numbers of training: full float32, or that of a kind of device."""
    full = device.get("kind") == "cpu" or device.get("matmul_precision") in ("highest", "float32")
    return "float32" if full else device.get("kind")


def _limit(record: Mapping) -> int:
    """The steps after which epochs are cut, in a failed run were to be; 0 for all data."""
    limit = record["config"].get("steps_per_epoch") or 0
    return limit if record.get("steps_per_epoch") in (limit, None) else 0


def key(*values: object) -> str:
    """Returns a text that is the same for the same values."""
    return json.dumps(values, sort_keys=True)


def _across_machines(sources: list[dict]) -> list[dict]:
    """Sources with a `variant` of records of any machine, unless a seed was run on two.

    Training for a number of steps does not depend on the machine, but for its arithmetic: seeds of
    several count together where products are of full float32, as on CPUs, else those of one kind of
    device. Where a seed was run on two, machines are compared.
    """
    wide = [source.pop(_WIDE) for source in sources]
    done = Counter(
        (key, source["seed"])
        for key, source in zip(wide, sources, strict=True)
        if source["status"] == "ok"
    )
    twice = {key for (key, _), count in done.items() if count > 1}
    for key, source in zip(wide, sources, strict=True):
        if key and key not in twice:
            source["variant"] = key
    return sources


def _by_length(sources: list[dict]) -> list[dict]:
    """Sources with groups of either whole epochs or shorter ones, named after their steps."""
    lengths = [source.pop(_LENGTH) for source in sources]
    whole = {(experiment, group) for experiment, group, steps in lengths if not steps}
    for source, (*key, steps) in zip(sources, lengths, strict=True):
        if steps and tuple(key) in whole:
            source["group"] += f"_{steps}_steps"
    return sources


def of(records: Iterable[Mapping]) -> list[dict]:
    """Returns {column: value} of each record; see `Frame`."""
    return _by_length(_across_machines([_source(*item) for item in enumerate(records)]))


def provenance(record: Mapping) -> dict:
    """Returns {column: value} of how a record came about; see `Frame`."""
    device, git = record.get("device"), record.get("git") or {}
    processors = record.get("processors")
    versions = sorted(record.get("versions", {}).items())
    error = (record.get("error") or "").strip().splitlines()
    return {
        "command": record.get("command"),
        "date": record.get("started_at", "")[:10],
        "hardware": device and f"{device['name']} ({device['kind']} x {device['count']})",
        "software": ", ".join(f"{name} {version}" for name, version in versions),
        "commit": f"{(git.get('commit') or 'none')[:12]}{' (changed)' * bool(git.get('dirty'))}",
        "shared_clock": _shared_clock(processors or {}),
        "alone": bool(processors) and not _shared_clock(processors),
        "code": record.get("code"),
        "data": record.get("data"),
        "error": error[-1] if error else "",
    }


def _shared_clock(processors: Mapping) -> bool:
    """Whether other programs may have made the times longer."""
    others = processors.get("others", 0.0)
    return others >= 0.1 and processors["own"] + others > processors["count"] - 0.5

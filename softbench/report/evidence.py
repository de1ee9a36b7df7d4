"""What the records say of each kind of method, small enough to ship with the package. No Keras.

`softbench-advise` reads it where there are no records. `softbench-report` writes it with the
front page.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from softbench.bench import records as records_lib
from softbench.report.frame import Frame

PATH = "softbench/report/evidence.json"  # next to the folder of results
FEWEST = 1_000  # classes
FEWEST_STEPS = 500  # of a run whose epochs are cut short: fewer measure a cost
INPUTS = {"lstm": "words", "bag": "labels", "pair": "labels", "sasrec": "items"}
_MEASURES = {"nats": ("valid_nll", 1.0), "precision_at_1": ("valid_precision_at_1", -1.0)}


def kind(method: Mapping) -> str:
    """Returns what methods have in common whatever their sizes: "SampledSoftmax unigram"."""
    arguments = method.get("kwargs", {})
    objective = f" {arguments['objective']}" if "objective" in arguments else ""
    sampler = records_lib.sampler_name(method)
    return f"{method['head']}{objective}" + (f" {sampler}" if sampler else "")


def text(frames: Iterable[Frame]) -> str:
    """Returns the JSON text of frames: one entry for each set of records that can be compared.

    Entry: `page`, `data`, `classes`, `inputs` ("words", "labels", "items"), `seconds` of training
    (0: equal steps), and `behind` {kind: {"nats", "precision_at_1"}}: how far the kind's best
    record is behind the best of all kinds there, in log-loss and in precision@1 on the validation
    set, each record at its best point.
    """
    entries = [entry for frame in frames for entry in _entries(frame.name, frame.records)]
    return json.dumps(entries, indent=1) + "\n"


def _entries(page: str, records: Iterable[Mapping]) -> list[dict]:
    groups: dict[str, list[Mapping]] = {}
    for record in records:
        config = record["config"]
        fits = config["task"] == "train" and record["status"] == "ok" and record.get("curve")
        steps = config.get("steps_per_epoch", 0) * max(1, config.get("epochs", 1))
        fits = fits and not 0 < steps < FEWEST_STEPS
        if fits and record.get("num_classes", 0) >= FEWEST:
            # After equal steps it does not matter what only decides times.
            apart = ["methods", "seed", "optimizer", "steps"]
            apart += [] if config.get("max_train_seconds") else ["environment"]
            same = {k: v for k, v in config.items() if k not in apart}
            groups.setdefault(json.dumps(same, sort_keys=True), []).append(record)
    return [entry for group in groups.values() if (entry := _entry(page, group))]


def _entry(page: str, records: list[Mapping]) -> dict | None:
    best: dict[str, dict[str, float]] = {}
    for record in records:
        (method,) = record["config"]["methods"].values()
        of_kind = best.setdefault(kind(method), {})
        for name, value in _losses(record["curve"]).items():
            of_kind[name] = min(value, of_kind.get(name, value))
    if len(best) < 2:
        return None
    config, behind = records[0]["config"], {kind_name: {} for kind_name in best}
    for name in _MEASURES:
        values = {kind_name: losses[name] for kind_name, losses in best.items() if name in losses}
        least = min(values.values(), default=0.0)
        for kind_name, value in values.items():
            behind[kind_name][name] = round(value - least, 4)
    return {
        "page": page,
        "data": config["dataset"]["name"],
        "classes": records[0]["num_classes"],
        "inputs": INPUTS.get(config["model"]["name"], "other"),
        "seconds": config.get("max_train_seconds", 0),
        "behind": behind,
    }


def _losses(curve: Iterable[Mapping]) -> dict[str, float]:
    """Returns the least of each measure, as early stopping keeps it; precision as what it lacks."""
    losses = {}
    for name, (key, sign) in _MEASURES.items():
        values = [sign * point[key] for point in curve if point.get(key) is not None]
        if values:
            losses[name] = min(values)
    return losses


def checkout_path(results: Path) -> Path | None:
    """Returns the file in a checkout, None where there is none."""
    path = results.resolve().parent / PATH
    return path if path.is_file() else None

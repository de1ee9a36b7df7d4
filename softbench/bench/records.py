"""Records: one JSON file per finished cell, written once and atomically. Needs no Keras."""

import json
import math
import os
import re
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path

SCHEMA_VERSION = 1
STATUSES = ("ok", "crashed", "timed_out", "nan")
PLAN = "experiment.json"

_ABSOLUTE_DIR = re.compile(r"(?<![\w./<])~?/(?:[^\s/\"':,;()]+/)+")
_ERROR_LINES = 12
# What schema 1 knew of samplers: of records before the field `sampler_kinds`. Frozen; a sampler's
# class says its kind.
_KINDS = {
    "adversarial": "tree",
    "exp": "exact",
    "in_batch": "batch",
    "log_uniform": "static",
    "maclaurin": "kernel",
    "mixed": "mixed",
    "positive": "kernel",
    "quadratic": "kernel",
    "rff": "kernel",
    "sorf": "kernel",
    "uniform": "static",
    "unigram": "static",
}


def write_json(path: Path, value: object) -> None:
    """Writes `value` to `path` so that a reader sees the old file, the new file, or none.

    Not-a-number and infinite floats become null: JSON has no spelling for them. The folder is
    created; `value` may hold NumPy scalars.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "w") as file:
            json.dump(finite(value), file, indent=1, sort_keys=True, allow_nan=False)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_plan(workdir: Path, config: Mapping) -> None:
    """Writes what a report needs beyond the records: title, columns, rows, paper's numbers."""
    plan = {key: config[key] for key in ("experiment", "title", "columns", "paper", "reach")}
    plan["methods"] = list(config["method_order"])
    write_json(Path(workdir) / PLAN, plan)


def append_line(path: Path, value: object) -> None:
    """Appends `value` to `path` as one JSON line (the learning curve of a cell that still runs)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(finite(value), sort_keys=True) + "\n")


def finite(value: object) -> object:
    """Returns `value` as plain JSON data, with non-finite floats replaced by None."""
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    if hasattr(value, "tolist"):
        return finite(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value


def read_all(workdir: Path) -> list[dict]:
    """Returns the records under `<workdir>/runs`, sorted by cell id; drafts are ignored."""
    return [
        json.loads(path.read_text())
        for path in sorted((Path(workdir) / "runs").glob("*.json"))
        if not path.name.startswith(".")
    ]


def status(path: Path) -> str | None:
    """Returns the status of the record at `path`, or None when there is no record."""
    try:
        return json.loads(Path(path).read_text())["status"]
    except FileNotFoundError:
        return None


def sampler_name(method: Mapping) -> str | None:
    """Returns the registry name of the sampler of a config's method, or None."""
    sampler = {**method, **method.get("kwargs", {})}.get("sampler")
    return sampler.get("class_name") if isinstance(sampler, Mapping) else sampler


def sampler_kinds(record: Mapping) -> dict[str, str | None]:
    """Returns {method: "static", "kernel", "tree", "batch", "exact" or "mixed"}, None without one.

    Records have it as a field; of those before the field it is what schema 1 knew.
    """
    methods = record["config"]["methods"]
    known = {name: _KINDS.get(sampler_name(method)) for name, method in methods.items()}
    return known | record.get("sampler_kinds", {})


def scrub(text: str) -> str:
    """Returns the last lines of an error text without directories, user or machine names."""
    lines = [line for line in text.strip().splitlines() if line.strip()]
    kept = _ABSOLUTE_DIR.sub("", "\n".join(lines[-_ERROR_LINES:]))
    host = socket.gethostname()
    return kept.replace(host, "<host>") if len(host) > 3 else kept

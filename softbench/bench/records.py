"""Records: one JSON file per finished cell, written once and atomically. Needs no Keras."""

import contextlib
import hashlib
import json
import math
import os
import re
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path

from softbench.bench.tasks import TASKS

SCHEMA_VERSION = 1
STATUSES = ("ok", "crashed", "timed_out", "nan")
DAMAGED = "damaged"  # the status of a file that is no record: left as it is, by all
PLAN = "experiment.json"

_ABSOLUTE_DIR = re.compile(r"(?<![\w./<])~?/(?:[^\s/\"':,;()]+/)+")
_ERROR_LINES = 12


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


def write(path: Path, record: Mapping) -> None:
    """Writes a record with its `checksum`, by which `read` notices that it was changed since."""
    write_json(path, {**record, "checksum": checksum(record)})


def checksum(record: Mapping) -> str:
    """Returns the SHA-256 of what a record says, whatever the layout of its file."""
    content = {key: value for key, value in finite(record).items() if key != "checksum"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def plan(config: Mapping) -> dict:
    """Returns what a report needs beyond the records: title, columns, rows, paper's numbers."""
    made = {key: config[key] for key in ("experiment", "title", "columns", "paper", "reach")}
    if config["budget"]:
        made["columns"] = [*made["columns"], "steps", "price"]
    made["curves_against"] = config["curves_against"]
    return made | {"methods": list(config["method_order"])}


def append_line(path: Path, value: object) -> None:
    """Appends `value` to `path` as one JSON line (the learning curve of a cell that still runs)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(finite(value), sort_keys=True) + "\n")


def read_curve(path: Path) -> list[dict]:
    """Returns the points of the learning curve that a cell has appended to `path`."""
    points = []
    with contextlib.suppress(FileNotFoundError):
        for line in path.read_text(errors="replace").splitlines():
            with contextlib.suppress(ValueError):  # cut: the cell ended while it wrote it
                points.append(json.loads(line))
    return [point for point in points if "epoch" in point]


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
    """Returns the sound records under `<workdir>/runs`, sorted by cell id; drafts are ignored."""
    return read_folder(workdir)[0]


def read_folder(workdir: Path) -> tuple[list[dict], dict[str, str]]:
    """As `read_all`, and {file name: why it is no record} of all other files."""
    sound, damaged = [], {}
    for path in sorted((Path(workdir) / "runs").glob("*.json")):
        if path.name.startswith("."):
            continue
        try:
            sound.append(read(path))
        except ValueError as error:
            damaged[path.name] = str(error)
    return sound, damaged


def read(path: Path) -> dict:
    """Returns the record at `path`.

    Raises:
        FileNotFoundError: when there is none.
        ValueError: when the file is not a whole record of this schema, is of another cell, or was
            changed after it was written.
    """
    try:
        record = json.loads(path.read_text())
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None
    except ValueError:
        raise ValueError("is empty, cut or no JSON") from None
    return checked(record, path.stem)


def checked(record: object, cell: str) -> dict:
    """Returns the content of a record's file, of the name of a cell, or raises as `read` does."""
    version = record.get("schema_version") if isinstance(record, dict) else None
    if isinstance(version, int) and version != SCHEMA_VERSION:
        raise ValueError(f"is of schema {version}; this version reads {SCHEMA_VERSION}")
    config = record.get("config") if version else None
    whole = isinstance(config, dict)
    whole = whole and all(isinstance(config.get(key), dict) for key in ("methods", "dataset"))
    if not whole or record.get("status") not in STATUSES or config.get("task") not in TASKS:
        raise ValueError("is no record of a cell")
    if record.get("cell") != cell:
        raise ValueError(f"is the record of another cell: {record.get('cell')}")
    if "checksum" in record and record["checksum"] != checksum(record):
        raise ValueError("was changed after it was written: its checksum is another")
    return record


def status(path: Path) -> str | None:
    """Returns the status of the record at `path`, None if there is none, or "damaged"."""
    try:
        return read(Path(path))["status"]
    except FileNotFoundError:
        return None
    except ValueError:
        return DAMAGED


def scrub(text: str) -> str:
    """Returns the last lines of an error text without directories, user or machine names."""
    lines = [line for line in text.strip().splitlines() if line.strip()]
    kept = _ABSOLUTE_DIR.sub("", "\n".join(lines[-_ERROR_LINES:]))
    host = socket.gethostname()
    return kept.replace(host, "<host>") if len(host) > 3 else kept

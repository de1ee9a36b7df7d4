"""Which kind of data a user's file, or a named data set, is. Needs no Keras."""

import itertools
import re
from pathlib import Path

from softbench.commands import ConfigError
from softbench.datasets import catalog
from softbench.datasets.lines import DataFileError, read_lines
from softbench.datasets.own_files import own_files

# {kind: the shipped config that trains on a file of it}
CONFIGS = {
    "text": "text",
    "interactions": "interactions",
    "xmc": "own_xmc",
    "triples": "triples",
}
SHIPPED = CONFIGS | {"gowalla": "gowalla"}  # and of a data set without an order in time
_OF_ENTRIES = {"corpus": "text", "ptb": "text", "multi_label": "xmc", "triples": "triples"}
_OF_ENTRIES |= {"histories": "interactions", "interactions": "gowalla"}
_GENERATED = {
    "synthetic_language": "text",
    "synthetic_xmc": "xmc",
    "synthetic_triples": "triples",
    "synthetic_interactions": "interactions",
}
_LINES = 20  # of a file, by which it is judged


def names() -> dict[str, str]:
    """Returns {name: kind} of the data sets of softbench that have a model here."""
    entries = {n: _OF_ENTRIES[e.kind] for n, e in catalog.ENTRIES.items() if e.kind in _OF_ENTRIES}
    return _GENERATED | {name: kind for name, kind in entries.items() if name not in CONFIGS}


def of_data(data: str) -> tuple[str, bool]:
    """Returns the kind of `data`, and whether it is a path.

    Raises:
        ConfigError: unless it is a path or a name of `names`, or if the file has no lines.
    """
    path = Path(data).expanduser()
    if not path.exists():
        if data not in names():
            listed = ", ".join(sorted(names()))
            raise ConfigError(
                f"--data must be an existing path or one of: {listed}. Received: {data}"
            )
        return names()[data], False
    if path.is_dir():
        try:
            files = own_files("text", path)
        except FileNotFoundError as error:
            raise ConfigError(f"--data: {error}") from None
        path = files.get("train") or files["all"]
        if path.is_dir():
            return "text", True
    return of_file(path), True


def of_file(path: Path) -> str:
    """Returns the kind of a file by its first lines; what has no other form is a text."""
    if path.suffix == ".parquet":
        return "interactions"
    try:
        lines = [line.strip() for line in itertools.islice(read_lines(path), _LINES)]
        rows = [line.decode("utf-8") for line in lines if line]
    except (UnicodeDecodeError, DataFileError) as error:
        raise ConfigError(f"--data must be a text or Parquet file. Received: {error}") from None
    if not rows:
        raise ConfigError(f"--data must hold lines. Received: an empty file, {path.name}")
    if re.fullmatch(r"\d+ \d+ \d+", rows[0]):
        return "xmc"
    fields = [re.split(r"::|[,;\t]", row) for row in rows]
    width = len(fields[0])
    if width > 1 and all(len(row) == width for row in fields):
        last = [row[-1].strip() for row in fields[1:] or fields]
        has_names = width == 3 and not any(
            re.fullmatch(r"-?[\d.eE+-]+|[\d:T Z-]+", v) for v in last
        )
        return "triples" if has_names else "interactions"
    if all(re.fullmatch(r"\S+( \d+)+", row) for row in rows):
        return "interactions"
    return "text"

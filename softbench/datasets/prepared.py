"""Prepared data sets: a folder of `.npy` arrays and a manifest, written once, read as memory maps.

`<out>/<name>/manifest.json` holds {"format", "dataset", "kind", "options", "facts", "sources",
"files"}: the options the files were read with, what was repaired in them, and size and
sha256 of every source and of every array.
"""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from softbench.datasets import catalog
from softbench.datasets.base import SPLITS
from softbench.datasets.corpus import corpus_files
from softbench.datasets.store import FolderStore

FORMAT = 1
MANIFEST = "manifest.json"
_DIGESTED = ("options", "facts", "files")
# What was left out, or put right, while reading, in the words of the options.
_WHY = {
    "missing_values": "rows without a value",
    "duplicates": "duplicates of other rows",
    "rare_items": "events of items seen less than {min_count} times",
    "short_users": "events of users with less than {min_length}",
    "had_before": "later events of items that the user has had before",
    "crlf_lines": "carriage returns",
    "missing_final_newline": "last line without an end",
}
# How a kind of data is split, in the words of its options; of histories by `split`.
_HOW = {
    "histories last": "; the last event of each user is the test, the one before it for validation",
    "histories time": "; by time: the last {test_fraction} of the events are the test, "
    "{valid_fraction} before them for validation",
    "interaction_shards": "; by row groups in the order of the files",
    "xmc_shards": "; by row groups in the order of the files",
}
_HOW |= dict.fromkeys(
    ("corpus", "multi_label", "triples"),
    "; what has no file is drawn with seed {split_seed}",
)
_verified: set[Path] = set()  # folders whose files this process has read whole


def prepare(name: str, data_dir: str | Path, out: str | Path, **options: Any) -> dict:
    """Reads a data set's files and writes `<out>/<name>`, all of it or nothing.

    Memory is that of a block of rows, besides the vocabulary of a text; of a table (`interactions`,
    `triples`) it is that of all rows.

    Args:
        name: of `catalog.ENTRIES`.
        data_dir: folder with the files.
        out: root of prepared folders; `--data_dir=<out>` then finds the set by its name.
        **options: of the reader, see `write_xmc`, `write_corpus`, `write_triples`.

    Returns:
        The manifest.

    Raises:
        ValueError: for an unknown name or option, or a malformed file (naming its line).
        FileNotFoundError: if `data_dir` does not hold the set.
        FileExistsError: if `<out>/<name>` is there already.
    """
    if name not in catalog.ENTRIES:
        names = ", ".join(sorted(catalog.ENTRIES))
        raise ValueError(f"`dataset` must be one of: {names}. Received: {name!r}")
    write, load = catalog.split_options(name, options)
    if load:
        raise ValueError(
            f"`options`: {', '.join(load)} is chosen when the set is loaded. Received: {load}"
        )
    files = catalog.find_files(name, Path(data_dir))
    kind = catalog.ENTRIES[name].kind

    def fill(store: FolderStore) -> dict:
        return catalog.KINDS[kind].write(store, files, **write)

    return write_folder(name, kind, out, fill, options=write, files=files)


def summary(manifest: Mapping) -> list[str]:
    """Four lines on a prepared set: what it holds, what was dropped, its columns, its split."""
    facts, options = manifest["facts"], manifest["options"]
    rows = facts["rows"]
    total = f"{sum(rows.values()):,}"
    holds = f"{facts['num_classes']:,} classes, {total} examples"
    if "num_users" in facts:
        holds = f"{facts['num_users']:,} users, {facts['num_classes']:,} items, {total} events"
    elif "num_relations" in facts:
        holds = f"{facts['num_classes']:,} entities, {facts['num_relations']:,} relations, "
        holds += f"{total} triples"
    counted = {**facts["repairs"], **facts.get("dropped", {})}
    reasons = [
        f"{count:,} {_WHY.get(reason, reason.replace('_', ' ')).format_map(options)}"
        for reason, count in counted.items()
        if count
    ]
    columns = facts.get("columns", "none, all of each line is read")
    kind = manifest["kind"]
    how = _HOW.get(f"{kind} {options['split']}" if "split" in options else kind, "")
    counts = ", ".join(f"{rows[split]:,} {split}" for split in SPLITS)
    return [
        f"holds: {holds}",
        f"dropped: {'; '.join(reasons) or 'nothing'}",
        f"columns: {columns if isinstance(columns, str) else ', '.join(columns)}",
        f"split: {counts}{how.format_map(options)}",
    ]


def new_folder(name: str, out: str | Path) -> Path:
    """Returns `<out>/<name>`, or raises FileExistsError if it is there already."""
    target = Path(out) / name
    if target.exists():
        raise FileExistsError(f"`out` must not hold {name} yet. Received: {str(target)!r}")
    return target


def write_folder(
    name: str,
    kind: str,
    out: str | Path,
    fill: Callable[[FolderStore], dict],
    *,
    options: Mapping,
    files: Mapping[str, Path],
) -> dict:
    """Writes `<out>/<name>`, all of it or nothing, and returns its manifest.

    Args:
        name, out: of the folder.
        kind: in `catalog.KINDS`.
        fill: writes the arrays into a store and returns the facts.
        options, files: what the arrays were made with, and of.
    """
    manifest = {"format": FORMAT, "dataset": name, "kind": kind, "options": dict(options)}
    with _all_or_nothing(new_folder(name, out)) as folder:
        store = FolderStore(folder)
        manifest["facts"] = fill(store)
        store.close()
        manifest["sources"] = {r: _described(corpus_files(path)) for r, path in files.items()}
        manifest["files"] = _described(sorted(folder.iterdir()))
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n")
    return manifest


def find_prepared(name: str, data_dir: Path) -> Path | None:
    """Returns the prepared folder of a set: `data_dir/<name>`, or `data_dir` itself."""
    for folder in (data_dir / name, data_dir):
        if (folder / MANIFEST).is_file() and read_manifest(folder)["dataset"] == name:
            return folder
    return None


def read_manifest(folder: Path) -> dict:
    """Returns the manifest of a prepared folder, or raises ValueError if it has another format."""
    path = Path(folder) / MANIFEST
    try:
        manifest = json.loads(path.read_text())
        valid = manifest["format"] == FORMAT and manifest["kind"] in catalog.KINDS
        valid = valid and isinstance(manifest["dataset"], str)
        valid = valid and all(isinstance(manifest[key], dict) for key in _DIGESTED)
    except (ValueError, TypeError, KeyError):
        valid = False
    if not valid:
        raise ValueError(
            f"`data_dir`: {MANIFEST} must be one that softbench-prepare {FORMAT} wrote. "
            f"Received: {path}"
        )
    return manifest


def check_prepared(folder: Path, options: Mapping, verify: bool = False) -> dict:
    """Returns the manifest of a prepared folder after a check of its files.

    Raises:
        ValueError: if one of the reader's `options` is not what the folder was prepared with, or
            did not exist then, or if a file is not as it was written: of another size or, with
            `verify`, sha256.
    """
    manifest = read_manifest(folder)
    for key, value in options.items():
        if key not in manifest["options"]:
            raise ValueError(
                f"`{key}` must be an option that {folder.name} was prepared with; prepare it again "
                f"to choose it. Received: {value!r}, and options "
                f"{', '.join(manifest['options']) or 'none'} in {folder / MANIFEST}"
            )
        if manifest["options"][key] != value:
            raise ValueError(
                f"`{key}` must be {manifest['options'][key]!r}, with which {folder.name} was "
                f"prepared. Received: {value!r}"
            )
    for name, described in manifest["files"].items():
        path = folder / name
        size = path.stat().st_size if path.is_file() else None
        if size != described["bytes"] or (verify and _sha256(path) != described["sha256"]):
            raise ValueError(
                f"`data_dir`: {name} must be as it was prepared. Received: a changed file in "
                f"{folder}"
            )
    return manifest


def fingerprint(folder: Path) -> str:
    """Returns a digest of what a prepared folder holds, by the checksums of its manifest."""
    manifest = read_manifest(folder)
    content = json.dumps([manifest[key] for key in _DIGESTED], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:12]


def load_prepared(name: str, folder: Path, options: Mapping) -> Any:
    """Loads the set `name` from its prepared folder: arrays are memory maps.

    `options` are those of the reader, see `check_prepared`, and of the loader. The first time that
    a process loads a folder it compares the sha256 of its files.
    """
    _, load = catalog.split_options(name, options)
    read = {key: value for key, value in options.items() if key not in load}
    resolved = folder.resolve()
    manifest = check_prepared(folder, read, verify=resolved not in _verified)
    _verified.add(resolved)
    store, facts = FolderStore(folder), manifest["facts"]
    if facts.get("num_classes") != len(store.read("counts")):
        raise ValueError(
            f"`data_dir`: `num_classes` of {MANIFEST} must be the length of counts.npy, "
            f"{len(store.read('counts'))}. Received: {facts.get('num_classes')} in {folder}"
        )
    return catalog.KINDS[manifest["kind"]].load(store, facts, name, **load)


def _described(paths: list[Path]) -> dict:
    return {p.name: {"bytes": p.stat().st_size, "sha256": _sha256(p)} for p in paths}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def _all_or_nothing(target: Path) -> Iterator[Path]:
    """A new folder that becomes `target` at the end, and is removed if anything fails.

    A killed process cannot remove it: it stays hidden next to the target, under a name that holds
    the process id, until the next preparation of the same set notices that the process has ended.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    for stale in target.parent.glob(f".{target.name}.*.partial"):
        if not _is_running(int(stale.name.split(".")[-2])):
            shutil.rmtree(stale)
    folder = target.parent / f".{target.name}.{os.getpid()}.partial"
    folder.mkdir()
    try:
        yield folder
        for path in folder.iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        os.rename(folder, target)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True

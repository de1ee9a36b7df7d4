"""Files of a state to go on from: a ZIP of `head.json` and of arrays. No pickle, and no Keras."""

import json
import os
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

_HEAD = "head.json"
_FORMAT = 1


def write(path: Path, head: dict, arrays: Iterable[np.ndarray]) -> None:
    """Writes a checkpoint so that a reader sees the file before, this one, or none.

    Args:
        path: of the file. The temporary file next to it, written first, has always one name, so
            that a process that is killed again and again leaves one such file.
        head: plain JSON data.
        arrays: one after the other; no two need to be held at once.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished, count = _unfinished(path), 0
    try:
        with unfinished.open("wb") as file:
            with zipfile.ZipFile(file, "w") as archive:
                for count, array in enumerate(arrays, 1):
                    with archive.open(f"{count}.npy", "w", force_zip64=True) as member:
                        np.lib.format.write_array(member, array, allow_pickle=False)
                archive.writestr(_HEAD, json.dumps({"format": _FORMAT, "count": count, **head}))
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise


def read_head(path: Path) -> dict:
    """Returns the head of a checkpoint, all of whose arrays are whole by their checksums.

    Raises:
        FileNotFoundError: when there is none.
        ValueError: when it is not whole, or of another format.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            head = json.loads(archive.read(_HEAD))
            names = [*(f"{index}.npy" for index in range(1, head["count"] + 1)), _HEAD]
            whole = archive.namelist() == names and archive.testzip() is None
    except FileNotFoundError:
        raise
    except Exception:  # whatever a ZIP reader makes of any bytes
        whole = False
    if not whole:
        raise ValueError("is cut or damaged")
    if head["format"] != _FORMAT:
        raise ValueError(f"is of format {head['format']}; this version reads {_FORMAT}")
    return head


def read_arrays(path: Path) -> Iterator[np.ndarray]:
    """The arrays of a checkpoint, in the order in which they were written."""
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist()[:-1]:
            with archive.open(name) as member:
                yield np.lib.format.read_array(member, allow_pickle=False)


def remove(path: Path) -> None:
    """Removes a checkpoint, if there is one, and what is left of an unfinished one."""
    for file in (path, _unfinished(path)):
        file.unlink(missing_ok=True)


def _unfinished(path: Path) -> Path:
    return path.with_name(f"{path.name}.tmp")

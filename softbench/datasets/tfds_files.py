"""Any set of TensorFlow Datasets as files that softbench's readers take.

TFDS reads with TensorFlow; training on what was read then needs neither.
"""

import csv
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from softbench.datasets.own_files import ROLES

PREFIX = "tfds:"
# How many features each kind of data takes.
_FEATURES = {
    "text": ("one feature, a text", 1, 1),
    "xmc": ("features of numbers and, at last, an integer label, as in image,label", 2, 99),
    "interactions": ("user, item and maybe time, as in user_id,movie_id,timestamp", 2, 3),
}


def _builder(name: str) -> Any:
    try:
        import tensorflow_datasets as tfds

        return tfds.builder(name.removeprefix(PREFIX))
    except ImportError as error:
        raise ValueError(
            f"{name} needs TensorFlow Datasets: pip install 'softbench[tfds]'. "
            f"Received: no module {error.name}"
        ) from None
    except Exception as error:
        line = " ".join(str(error).split())[:200]
        raise ValueError(f"`name` must be a set of TFDS. Received: {name!r} ({line})") from None


def _names(name: str, kind: str, features: str) -> list[str]:
    if kind not in _FEATURES:
        kinds = ", ".join(sorted(_FEATURES))
        raise ValueError(f"a set of TFDS can be read as: {kinds}. Received: {kind!r}")
    rule, least, most = _FEATURES[kind]
    names = [name.strip() for name in features.split(",") if name.strip()]
    available = list(_builder(name).info.features or {})
    if not least <= len(names) <= most or not set(names) <= set(available):
        raise ValueError(
            f"`features` of {name} must be {rule}; it has: {', '.join(available)}. "
            f"Received: {features!r}"
        )
    return names


def digest(name: str, kind: str, features: str) -> str:
    """Returns 12 digits that depend on the set, its version and the features.

    Raises:
        ValueError: without TFDS, or for a name or features that there are not.
    """
    names = _names(name, kind, features)
    text = f"{_builder(name).info.full_name} {','.join(names)}"
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def export(name: str, kind: str, features: str, folder: Path) -> Path:
    """Writes a set's splits; returns the file or folder that `own_files` takes.

    Args:
        name: "tfds:<name>", as `tfds.load` takes what comes after the colon.
        kind: "text" (one feature), "xmc" (features of numbers, and an integer label) or
            "interactions" (user, item and maybe time).
        features: their names, between commas.
        folder: is created. Downloads go where TFDS puts them.

    Raises:
        ValueError: as `digest`.
    """
    names, builder = _names(name, kind, features), _builder(name)
    builder.download_and_prepare()
    splits = {ROLES[s]: s for s in builder.info.splits if s in ROLES}
    if kind == "interactions" or not {"train", "test"} <= set(splits):
        splits = {"all": "+".join(builder.info.splits)}
    folder.mkdir(parents=True, exist_ok=True)
    write = {"text": _text, "xmc": _rows, "interactions": _pairs}[kind]
    for role, split in splits.items():
        write(builder, split, names, folder / f"{role}.txt")
    return folder if "train" in splits else folder / "all.txt"


def _examples(builder: Any, split: str, names: list[str]) -> Iterator[list]:
    import tensorflow_datasets as tfds

    for example in tfds.as_numpy(builder.as_dataset(split=split, shuffle_files=False)):
        yield [example[name] for name in names]


def _string(value: Any) -> str:
    value = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return value.replace("\r", " ")


def _text(builder: Any, split: str, names: list[str], path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        for (text,) in _examples(builder, split, names):
            file.write(_string(text) + "\n")


def _pairs(builder: Any, split: str, names: list[str], path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("user", "item", "time")[: len(names)])
        for values in _examples(builder, split, names):
            writer.writerow([_string(value).replace("\n", " ") for value in values])


def _rows(builder: Any, split: str, names: list[str], path: Path) -> None:
    label = builder.info.features[names[-1]]
    size = sum(builder.info.splits[name].num_examples for name in split.split("+"))
    width = None
    with path.open("w", encoding="utf-8") as file:
        for *values, target in _examples(builder, split, names):
            arrays = [np.asarray(value) for value in values]
            if not all(np.issubdtype(array.dtype, np.number) for array in arrays):
                raise ValueError(
                    f"`features`: all but the label must be numbers. Received: {names[:-1]}"
                )
            scaled = [array / 255 if array.dtype == np.uint8 else array for array in arrays]
            row = np.concatenate([array.ravel() for array in scaled])
            if width is None:
                width = len(row)
                file.write(f"{size} {width} {label.num_classes}\n")
            if len(row) != width:
                raise ValueError(
                    f"`features` must have one shape in all examples. Received: {len(row)} numbers "
                    f"after {width}"
                )
            words = [f"{index}:{row[index]:.9g}" for index in np.flatnonzero(row)]
            file.write(" ".join([str(int(target)), *words]) + "\n")

"""What is known of the items of an `ItemTower`: arrays, checked."""

from collections.abc import Mapping
from typing import Any

import numpy as np

_LARGEST = np.iinfo(np.int32).max
Features = np.ndarray | dict[str, np.ndarray]


def checked(features: Any) -> Features:
    """Features as float32 and int32 arrays, or a ValueError that says what is wrong with them."""
    if not isinstance(features, Mapping):
        return _checked("features", features)
    if not features or not all(isinstance(name, str) for name in features):
        raise ValueError(
            "`features` must be an array or a dict of arrays by the names of the model's inputs. "
            f"Received: a dict with keys {list(features)}"
        )
    arrays = {name: _checked(f"features[{name!r}]", features[name]) for name in sorted(features)}
    sizes = {name: len(array) for name, array in arrays.items()}
    if len(set(sizes.values())) > 1:
        raise ValueError(
            f"`features` must have a row for each item in every array. Received: {sizes} rows"
        )
    return arrays


def _checked(name: str, values: Any) -> np.ndarray:
    array = np.asarray(values)
    if array.dtype.kind not in "biuf" or array.ndim < 1 or not array.size:
        raise ValueError(
            f"`{name}` must be numbers of shape (n, ...), n >= 1; words become numbers by "
            "`keras.layers.StringLookup`, or outside. "
            f"Received: shape {array.shape}, dtype {array.dtype}"
        )
    if array.dtype.kind == "f":
        with np.errstate(over="ignore"):
            array = array.astype("float32", copy=False)
        if not np.all(np.isfinite(array)):
            raise ValueError(
                f"`{name}` must be finite. Received: {int((~np.isfinite(array)).sum())} entries "
                "that are not, as float32"
            )
        return array
    if array.max() > _LARGEST or array.min() < -_LARGEST:
        raise ValueError(
            f"`{name}` must be integers that fit in int32. Received: {array.min()} to {array.max()}"
        )
    return array.astype("int32", copy=False)


def _described(kinds: dict) -> str:
    """Names, shapes and types of features in words."""
    texts = [f"{name} {list(shape)} {dtype}".strip() for name, (shape, dtype) in kinds.items()]
    return ", ".join(texts)


def joined(old: Features, new: Features) -> Features:
    """Features of items and of more items behind them.

    Raises:
        ValueError: if they differ in their names, shapes or types.
    """
    first, more = (x if isinstance(x, dict) else {"": x} for x in (old, new))
    kinds = [{k: (v.shape[1:], v.dtype) for k, v in sorted(x.items())} for x in (first, more)]
    if kinds[0] != kinds[1]:
        raise ValueError(
            "`features` must have the names, the shapes and the types of those of the tower, "
            f"{_described(kinds[0])}. Received: {_described(kinds[1])}"
        )
    arrays = {name: np.concatenate([array, more[name]]) for name, array in first.items()}
    return arrays if isinstance(old, dict) else arrays[""]

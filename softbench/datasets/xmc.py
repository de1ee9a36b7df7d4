"""Extreme classification data: files in the Repository's format to stored arrays.

Arrays of each split: `<split>_labels_indptr` int64 (N + 1,), `_labels_indices` int32,
`_features_indptr` int64, `_features_indices` int32, `_features_values` float32; and `counts`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from softbench.datasets.base import SPLITS, Labelled, MultiLabelData
from softbench.datasets.lines import fail
from softbench.datasets.store import Splits
from softbench.datasets.xmc_format import XMCFile

ARRAYS = ("labels_indptr", "labels_indices", "features_indptr", "features_indices")


def write_xmc(
    store: Any,
    files: Mapping[str, Path],
    *,
    valid_fraction: float = 0.1,
    test_fraction: float = 0.2,
    split_seed: int = 0,
    first_id: int = 0,
    allow_negative: bool = False,
    exact_split: bool = False,
) -> dict:
    """Reads the files into a store, a block of rows at a time.

    Args:
        store: see `softbench.datasets.store`.
        files: {"train", "test"} with or without "valid", or {"all"}: one file, of which a share is
            held out as test set.
        valid_fraction: share of the rows of "train" or "all" that `Splits` holds out, without
            "valid".
        test_fraction: share of the rows of "all" that becomes the test set.
        split_seed: of `Splits`.
        first_id, allow_negative: of `XMCFile`.
        exact_split: hold out exact fractions, at least one row each.

    Returns:
        {"num_features", "num_classes", "rows": {split: number}, "repairs": {name: number}}.

    Raises:
        DataFileError: naming file and line.
    """
    opened = {role: XMCFile(path, first_id, allow_negative) for role, path in files.items()}
    first, *others = opened.values()
    for other in others:
        sizes = [(file.num_features, file.num_labels) for file in (first, other)]
        if sizes[0] != sizes[1]:
            rule = f"features and labels must be {sizes[0]}, as in {first.path.name}."
            fail(other.path, 1, rule, f"{sizes[1]}")
    fractions = (
        0.0 if "valid" in files else valid_fraction,
        test_fraction if "all" in files else 0.0,
    )
    size = opened["all" if "all" in files else "train"].num_rows
    splits = Splits(split_seed, *fractions, size=size if exact_split else None)
    rows, ends, repairs = dict.fromkeys(SPLITS, 0), {}, Counter()
    counts = np.zeros(first.num_labels, np.int64)
    for split, block in _by_split(opened, splits):
        append_rows(store, split, block, ends)
        rows[split] += block.labels.shape[0]
        if split == "train":
            counts += np.bincount(block.labels.indices, minlength=len(counts))
    for file in opened.values():
        repairs.update(file.repairs)
    store.append("counts", counts)
    return {
        "num_features": first.num_features,
        "num_classes": first.num_labels,
        "rows": rows,
        "repairs": dict(+repairs),
    }


def _by_split(opened: Mapping[str, XMCFile], splits: Splits) -> Iterator[tuple[str, Labelled]]:
    """Yields the rows of each block divided by split."""
    for role, file in opened.items():
        start = 0
        for block in file.blocks():
            size = block.labels.shape[0]
            if role in ("valid", "test"):
                of_split = np.full(size, SPLITS.index(role))
            else:
                of_split = splits(np.arange(start, start + size))
            for index, split in enumerate(SPLITS):
                yield split, Labelled(*(matrix[of_split == index] for matrix in block))
            start += size


def append_rows(store: Any, split: str, rows: Labelled, ends: dict[str, int]) -> None:
    """Appends rows to the arrays of a split; `ends` is where those written before end."""
    for what, matrix in rows._asdict().items():
        name = f"{split}_{what}"
        if name not in ends:
            store.append(f"{name}_indptr", np.zeros(1, np.int64))
            ends[name] = 0
        store.append(f"{name}_indptr", ends[name] + matrix.indptr[1:].astype(np.int64))
        store.append(f"{name}_indices", matrix.indices.astype(np.int32, copy=False))
        ends[name] += matrix.nnz
    store.append(f"{split}_features_values", rows.features.data.astype(np.float32, copy=False))


def load_xmc(store: Any, facts: Mapping, name: str, *, first_label: bool = False) -> MultiLabelData:
    """Makes the data set from a store that `write_xmc` filled, and the facts that it returned.

    `first_label` keeps the first label of each row only, in every split: single-label data
    (Bamler & Mandt).
    """
    n, v = facts["num_classes"], facts["num_features"]
    matrices, counts = [], store.read("counts")
    for split in SPLITS:
        indptr, ids, feature_indptr, features = (store.read(f"{split}_{array}") for array in ARRAYS)
        if first_label:
            has = np.diff(indptr) > 0
            ids, indptr = ids[indptr[:-1][has]], np.append(0, np.cumsum(has))
            counts = np.bincount(ids, minlength=n) if split == "train" else counts
        weights = store.read(f"{split}_features_values")
        shape = (len(indptr) - 1, v)
        matrices.append(sp.csr_matrix((weights, features, feature_indptr), shape, copy=False))
        ones = np.ones(len(ids), np.float32)
        matrices.append(sp.csr_matrix((ones, ids, indptr), (shape[0], n), copy=False))
    return MultiLabelData(name, *matrices, num_features=v, num_classes=n, counts=counts)

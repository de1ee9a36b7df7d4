"""Rows of features with sets of labels in Parquet files that do not fit in memory.

The row groups are split as those of `softbench.datasets.interaction_shards`. Training streams; kept
are the counts of its labels, and the held-out rows of the other splits, in the arrays of
`softbench.datasets.xmc`. Strings `files`. Shape letters: R rows, n classes, v features.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from softbench.common import check_positive
from softbench.datasets.base import SPLITS, Labelled, MultiLabelData
from softbench.datasets.columns import sparse_rows
from softbench.datasets.draws import random_generator
from softbench.datasets.interaction_shards import divided
from softbench.datasets.shards import BagShards, RowGroups, row_groups
from softbench.datasets.xmc import append_rows, load_xmc


def write_xmc_shards(
    store: Any,
    files: Mapping[str, Path],
    *,
    columns: str = "features,values,labels",
    valid_fraction: float = 0.01,
    test_fraction: float = 0.01,
    held_out_rows: int = 10_000,
) -> dict:
    """Reads the files once, a row group at a time, and keeps what evaluation needs.

    Args:
        store: see `softbench.datasets.store`.
        files: {role: path}, in their order.
        columns: names of those with lists of features' ids, of their values, and of labels.
        valid_fraction, test_fraction: shares of the row groups, at least one each: the last ones.
        held_out_rows: at most so many rows of each of these splits are evaluated.

    Returns:
        {"num_features", "num_classes", "rows": {split: rows in the files}, "train_groups",
        "columns", "longest": most features of a training row, "repairs"}.

    Raises:
        ValueError: for files with fewer than three row groups, wrong columns or ids, lists of
            unequal length, or a row without a label.
    """
    check_positive(held_out_rows=held_out_rows)
    names = [name.strip() for name in columns.split(",")]
    if len(names) != 3:
        raise ValueError(
            f"`columns` must name those of features, values and labels. Received: {columns!r}"
        )
    paths = [str(path) for path in files.values()]
    splits = divided(row_groups(paths, names), valid_fraction, test_fraction)
    counts, v, longest, ends = np.zeros(0, np.int64), 0, 1, {}
    append_rows(store, "train", Labelled(sp.csr_matrix((0, 1)), sp.csr_matrix((0, 1))), ends)
    for split, source in zip(SPLITS, splits, strict=True):
        kept, done = _kept(source.num_rows, held_out_rows), 0
        for group in range(len(source.groups)):
            block = sparse_rows(source.read(group, names), names)
            size = block.labels.shape[0]
            v = max(v, block.features.shape[1])
            weight = int(split == "train")
            counts = _added(counts, weight * np.bincount(block.labels.indices))
            if weight:
                longest = max(longest, int(np.diff(block.features.indptr).max()))
            else:
                chosen = kept[done : done + size]
                append_rows(store, split, Labelled(*(matrix[chosen] for matrix in block)), ends)
            done += size
    store.append("counts", counts)
    store.write_strings("files", paths)
    rows = {split: source.num_rows for split, source in zip(SPLITS, splits, strict=True)}
    facts = {"num_features": v, "num_classes": len(counts), "rows": rows, "repairs": {}}
    return facts | {"train_groups": len(splits[0].groups), "columns": names, "longest": longest}


def _kept(size: int, most: int) -> np.ndarray:
    """Which of so many rows are evaluated, bool (R,): at most `most`, at random."""
    kept = np.zeros(size, bool)
    kept[random_generator(0).choice(size, min(size, most), replace=False)] = True
    return kept


def _added(counts: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The sum of two counts, as long as the longer one."""
    long, short = (counts, others) if len(counts) > len(others) else (others, counts)
    long[: len(short)] += short
    return long


def load_xmc_shards(store: Any, facts: Mapping, name: str) -> MultiLabelData:
    """Makes the data set from a store that `write_xmc_shards` filled, and its facts."""
    rows = row_groups(store.read_strings("files"), facts["columns"])
    train: RowGroups = rows._replace(groups=rows.groups[: facts["train_groups"]])
    options = {"columns": facts["columns"], "max_features": facts["longest"]}
    return load_xmc(store, facts, name)._replace(stream=partial(BagShards, train, **options))

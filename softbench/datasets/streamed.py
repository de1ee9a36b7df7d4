"""Parquet files that do not fit in memory, as data sets: how they are split, and what is kept.

The row groups in the order of the files are the training set, then that for validation, then the
test. Training streams. Kept are its counts and what evaluation needs: of interactions the items of
the held-out users, in the arrays of `softbench.datasets.interactions`; of rows with labels the
held-out rows, in those of `softbench.datasets.xmc`. Strings `files`.

Shape letters: R rows, U users, n classes, v features.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from softbench.common import check_positive
from softbench.datasets.base import SPLITS, InteractionData, ItemLists, Labelled, MultiLabelData
from softbench.datasets.draws import random_generator
from softbench.datasets.interactions import item_lists
from softbench.datasets.shards import (
    BagShards,
    InteractionShards,
    RowGroups,
    ids,
    row_groups,
    sparse_rows,
)
from softbench.datasets.xmc import append_rows, load_xmc

Pairs = tuple[np.ndarray, np.ndarray]  # users and items, each int32 (R,)


def write_interaction_shards(
    store: Any,
    files: Mapping[str, Path],
    *,
    columns: str = "user,item",
    valid_fraction: float = 0.01,
    test_fraction: float = 0.01,
    held_out_users: int = 10_000,
) -> dict:
    """Reads the files twice, a row group at a time.

    Args:
        store: see `softbench.datasets.store`.
        files: {role: path}, in their order.
        columns: names of those with the numbers of users and of items, from 0 on.
        valid_fraction, test_fraction: shares of the row groups, at least one each: the last ones.
        held_out_users: at most so many users are evaluated on these row groups.

    Returns:
        {"num_classes", "num_users", "rows": {split: interactions}, "train_groups", "columns",
        "repairs"}.

    Raises:
        ValueError: for files with fewer than three row groups, or wrong columns or ids.
    """
    check_positive(held_out_users=held_out_users)
    fractions = valid_fraction, test_fraction
    names, splits = _opened(files, columns, ("users", "items"), fractions)
    held_out = [_pairs(split, range(len(split.groups)), names) for split in splits[1:]]
    queried = np.unique(np.concatenate([users for users, _ in held_out]))
    if len(queried) > held_out_users:
        queried = np.sort(random_generator(0).choice(queried, held_out_users, replace=False))
    counts = np.zeros(1 + max(int(items.max()) for _, items in held_out), np.int64)
    last, seen = max(int(users.max()) for users, _ in held_out), []
    for group in range(len(splits[0].groups)):
        users, items = _pairs(splits[0], [group], names)
        last, counts = max(last, int(users.max())), _added(counts, np.bincount(items))
        seen.append(_of(queried, users, items))
    lists = [tuple(map(np.concatenate, zip(*seen, strict=True)))]
    lists += [_of(queried, *pairs) for pairs in held_out]
    for split, pairs in zip(SPLITS, lists, strict=True):
        for array, values in item_lists(*pairs, last + 1)._asdict().items():
            store.append(f"{split}_{array}", values)
    return _facts(store, files, names, splits, counts) | {"num_users": last + 1}


def write_xmc_shards(
    store: Any,
    files: Mapping[str, Path],
    *,
    columns: str = "features,values,labels",
    valid_fraction: float = 0.01,
    test_fraction: float = 0.01,
    held_out_rows: int = 10_000,
) -> dict:
    """Reads the files once, a row group at a time.

    Args:
        store, files, valid_fraction, test_fraction: as of `write_interaction_shards`.
        columns: names of those with lists of features' ids, of their values, and of labels.
        held_out_rows: at most so many rows of each of these splits are evaluated.

    Returns:
        {"num_features", "num_classes", "rows": {split: rows in the files}, "train_groups",
        "columns", "longest": most features of a training row, "repairs"}.

    Raises:
        ValueError: for files with fewer than three row groups, wrong columns or ids, lists of
            unequal length, or a row without a label.
    """
    check_positive(held_out_rows=held_out_rows)
    roles, fractions = ("features", "values", "labels"), (valid_fraction, test_fraction)
    names, splits = _opened(files, columns, roles, fractions)
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
    facts = _facts(store, files, names, splits, counts)
    return facts | {"num_features": v, "longest": longest}


def _opened(
    files: Mapping[str, Path], columns: str, roles: tuple, fractions: tuple[float, float]
) -> tuple[list[str], list[RowGroups]]:
    """The names of the columns, and the row groups of each of `SPLITS`, at least one each."""
    names = [name.strip() for name in columns.split(",")]
    if len(names) != len(roles):
        what = f"{', '.join(roles[:-1])} and {roles[-1]}"
        raise ValueError(f"`columns` must name those of {what}. Received: {columns!r}")
    rows = row_groups(list(files.values()), names)
    size = len(rows.groups)
    taken = [max(1, round(size * fraction)) for fraction in fractions]
    if min(fractions) < 0 or sum(taken) >= size:
        raise ValueError(
            "`path`: the files must have three row groups or more, and `valid_fraction` and "
            f"`test_fraction` leave one for training. Received: {size}, {fractions}"
        )
    ends = [size - sum(taken), size - taken[1]]
    return names, [rows._replace(groups=groups) for groups in np.split(rows.groups, ends)]


def _pairs(rows: RowGroups, groups: Any, names: list[str]) -> Pairs:
    """Users and items of some row groups."""
    tables = [rows.read(group, names) for group in groups]
    return tuple(np.concatenate([ids(t, name)[0] for t in tables]) for name in names)


def _of(queried: np.ndarray, users: np.ndarray, items: np.ndarray) -> Pairs:
    """The rows of some users."""
    kept = np.isin(users, queried)
    return users[kept], items[kept]


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


def _facts(
    store: Any,
    files: Mapping[str, Path],
    names: list[str],
    splits: list[RowGroups],
    counts: np.ndarray,
) -> dict:
    """Stores counts and paths; returns what both kinds of data say of themselves."""
    store.append("counts", counts)
    store.write_strings("files", [str(path) for path in files.values()])
    rows = {split: source.num_rows for split, source in zip(SPLITS, splits, strict=True)}
    facts = {"num_classes": len(counts), "rows": rows, "repairs": {}}
    return facts | {"train_groups": len(splits[0].groups), "columns": names}


def _train(store: Any, facts: Mapping) -> RowGroups:
    """The row groups that training streams."""
    rows = row_groups(store.read_strings("files"), facts["columns"])
    return rows._replace(groups=rows.groups[: facts["train_groups"]])


def load_interaction_shards(store: Any, facts: Mapping, name: str) -> InteractionData:
    """Makes the data set from a store that `write_interaction_shards` filled, and its facts."""
    lists = (
        ItemLists(store.read(f"{split}_items"), store.read(f"{split}_ends")) for split in SPLITS
    )
    return InteractionData(
        name,
        *lists,
        num_classes=facts["num_classes"],
        items=[],
        counts=store.read("counts"),
        stream=partial(InteractionShards, _train(store, facts), columns=facts["columns"]),
    )


def load_xmc_shards(store: Any, facts: Mapping, name: str) -> MultiLabelData:
    """Makes the data set from a store that `write_xmc_shards` filled, and its facts."""
    options = {"columns": facts["columns"], "max_features": facts["longest"]}
    stream = partial(BagShards, _train(store, facts), **options)
    return load_xmc(store, facts, name)._replace(stream=stream)

"""Interactions in Parquet files that do not fit in memory: how they are split, and what is kept.

The row groups in the order of the files are the training set, then that for validation, then the
test. Training streams; kept are counts, and the items of the held-out users. Arrays are those
of `softbench.datasets.interactions`; strings `files`. Shape letters: R rows, U users, n items.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from softbench.common import check_positive
from softbench.datasets.base import SPLITS, InteractionData, ItemLists
from softbench.datasets.columns import ids
from softbench.datasets.draws import random_generator
from softbench.datasets.interactions import item_lists
from softbench.datasets.shards import InteractionShards, RowGroups, row_groups

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
    """Reads the files twice, a row group at a time, and keeps what evaluation needs.

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
    names = [name.strip() for name in columns.split(",")]
    if len(names) != 2:
        raise ValueError(f"`columns` must name those of users and items. Received: {columns!r}")
    paths = [str(path) for path in files.values()]
    splits = divided(row_groups(paths, names), valid_fraction, test_fraction)
    held_out = [_pairs(split, range(len(split.groups)), names) for split in splits[1:]]
    queried = np.unique(np.concatenate([users for users, _ in held_out]))
    if len(queried) > held_out_users:
        queried = np.sort(random_generator(0).choice(queried, held_out_users, replace=False))
    n = 1 + max(int(items.max()) for _, items in held_out)
    last, counts, seen = max(int(users.max()) for users, _ in held_out), np.zeros(n, np.int64), []
    for group in range(len(splits[0].groups)):
        users, items = _pairs(splits[0], [group], names)
        totals = np.bincount(items, minlength=len(counts))
        totals[: len(counts)] += counts
        last, counts = max(last, int(users.max())), totals
        seen.append(_of(queried, users, items))
    lists = [tuple(map(np.concatenate, zip(*seen, strict=True)))]
    lists += [_of(queried, *pairs) for pairs in held_out]
    for split, pairs in zip(SPLITS, lists, strict=True):
        for array, values in item_lists(*pairs, last + 1)._asdict().items():
            store.append(f"{split}_{array}", values)
    store.append("counts", counts)
    store.write_strings("files", paths)
    rows = {split: source.num_rows for split, source in zip(SPLITS, splits, strict=True)}
    facts = {"num_classes": len(counts), "num_users": last + 1, "rows": rows, "repairs": {}}
    return facts | {"train_groups": len(splits[0].groups), "columns": names}


def divided(rows: RowGroups, valid: float, test: float) -> list[RowGroups]:
    """The row groups of each of `SPLITS`, in the order of the files; at least one each."""
    size = len(rows.groups)
    taken = [max(1, round(size * fraction)) for fraction in (valid, test)]
    if min(valid, test) < 0 or sum(taken) >= size:
        raise ValueError(
            "`path`: the files must have three row groups or more, and `valid_fraction` and "
            f"`test_fraction` leave one for training. Received: {size}, {valid}, {test}"
        )
    ends = [size - sum(taken), size - taken[1]]
    return [rows._replace(groups=groups) for groups in np.split(rows.groups, ends)]


def _pairs(rows: RowGroups, groups: Any, names: list[str]) -> Pairs:
    """Users and items of some row groups."""
    tables = [rows.read(group, names) for group in groups]
    return tuple(np.concatenate([ids(t, name)[0] for t in tables]) for name in names)


def _of(queried: np.ndarray, users: np.ndarray, items: np.ndarray) -> Pairs:
    """The rows of some users."""
    kept = np.isin(users, queried)
    return users[kept], items[kept]


def load_interaction_shards(store: Any, facts: Mapping, name: str) -> InteractionData:
    """Makes the data set from a store that `write_interaction_shards` filled, and its facts."""
    rows = row_groups(store.read_strings("files"), facts["columns"])
    train = rows._replace(groups=rows.groups[: facts["train_groups"]])
    lists = (
        ItemLists(store.read(f"{split}_items"), store.read(f"{split}_ends")) for split in SPLITS
    )
    return InteractionData(
        name,
        *lists,
        num_classes=facts["num_classes"],
        items=[],
        counts=store.read("counts"),
        stream=partial(InteractionShards, train, columns=facts["columns"]),
    )

"""Users' items, in training, validation and test, as stored arrays.

Arrays: `<split>_items` int32 (N,), `<split>_ends` int64 (U + 1,), `counts`; strings `items` and
`users`. Shape letters: E interactions, U users, n items.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from softbench.common import check_positive
from softbench.datasets.base import SPLITS, InteractionData, ItemLists
from softbench.datasets.lines import fail
from softbench.datasets.roles import ITEM, TIME, USER, read_columns
from softbench.datasets.store import row_hash

SPLITS_BY = ("last", "time")
LEAST = 3  # items of a user of whom one is held out for validation and one for the test


def write_histories(
    store: Any,
    files: Mapping[str, Path],
    *,
    min_count: int = 2,
    min_length: int = LEAST,
    split: str = "last",
    valid_fraction: float = 0.1,
    test_fraction: float = 0.1,
    layout: str = "auto",
    columns: str = "",
    date_format: str = "",
    missing: str = "error",
) -> dict:
    """Reads {"all"}: the items of each user by time, or in the order of the file.

    Rows that repeat user, item and time are left out. Then items seen less often than `min_count`
    and users with fewer than `min_length` items are, again and again until none is left to leave
    out. The rest is split by `leave_one_out` or `by_time`. Item ids go by decreasing frequency in
    training, ties alphabetically; users are in the order of the file.

    Args:
        store: see `softbench.datasets.store`.
        files: {"all"}.
        min_count: of an item.
        min_length: of a user, 3 or more; 0 keeps all users.
        split: "last", each user's last item is the test and the one before it for validation; or
            "time", the last `test_fraction` of all rows are the test and the `valid_fraction`
            before these are for validation.
        valid_fraction, test_fraction: of `by_time`.
        layout, columns, date_format, missing: of `read_columns`.

    Returns:
        {"num_classes", "num_users", "rows": {split: interactions}, "columns": how they were
        understood, "dropped": {"rare_items", "short_users", "had_before"}: interactions that were
        left out, "repairs"}.

    Raises:
        DataFileError: naming file and row.
        ValueError: for arguments out of range, or if nothing is left.
    """
    import pandas as pd

    check_positive(min_count=min_count)
    if split not in SPLITS_BY:
        raise ValueError(f"`split` must be one of: {', '.join(SPLITS_BY)}. Received: {split!r}")
    if min_length and min_length < LEAST:
        raise ValueError(
            f"0 keeps all users; else `min_length` must be {LEAST} or more. Received: {min_length}"
        )
    repairs, path = Counter(), files["all"]
    reading = {"columns": columns, "date_format": date_format, "missing": missing}
    rows, understood = read_columns(path, (USER, ITEM, TIME), repairs, layout=layout, **reading)
    (users, user_names), (items, item_names) = map(pd.factorize, (rows["user"], rows["item"]))
    kept, dropped = _kept(users, items, min_count, min_length)
    if not kept.any():
        raise ValueError(
            f"{path.name}: no interaction is left with `min_count` and `min_length`. "
            f"Received: min_count={min_count}, min_length={min_length}, {len(kept)} interactions "
            f"({understood})"
        )
    if split == "time" and "time" not in rows:
        raise ValueError(
            f"`split`: {path.name} must have a column of times to be split by 'time'. "
            f"Received: {understood}"
        )
    times = rows["time"].to_numpy() if "time" in rows else np.zeros(len(rows))
    order = np.flatnonzero(kept)
    order = order[np.lexsort((times[order], users[order]))]  # stable: ties stay as they are
    kept_users, sizes = np.unique(users[order], return_counts=True)
    lists = ItemLists(items[order], np.append(0, np.cumsum(sizes)))
    if split == "last":
        splits = leave_one_out(lists)
    else:
        splits = by_time(lists, times[order], valid_fraction, test_fraction)
        dropped["had_before"] = len(order) - sum(len(part.items) for part in splits)
    facts = _write(store, user_names[kept_users], item_names, splits, repairs)
    return facts | {"columns": understood, "dropped": dropped}


def _kept(
    users: np.ndarray, items: np.ndarray, min_count: int, min_length: int
) -> tuple[np.ndarray, dict[str, int]]:
    """Which rows (E,) are of items that are frequent enough and of users that have enough.

    And how many the others are, by what they lack.
    """
    kept, dropped = np.ones(len(users), bool), {"rare_items": 0, "short_users": 0}
    rules = ("rare_items", items, min_count), ("short_users", users, min_length)
    while True:
        before = kept.sum()
        for reason, ids, least in rules:
            enough = np.bincount(ids[kept], minlength=ids.max(initial=0) + 1) >= least
            left = kept & enough[ids]
            dropped[reason] += int(kept.sum() - left.sum())
            kept = left
        if kept.sum() == before:
            return kept, dropped


def write_interactions(
    store: Any,
    files: Mapping[str, Path],
    *,
    user_fraction: float = 1.0,
    split_seed: int = 0,
) -> dict:
    """Reads {"train", "test"}: users' items without an order, one user a line.

    One training interaction of each user who has two or more is for validation, so that it asks
    all users as the test does; a share of all interactions would ask for those of the active.

    Args:
        store: see `softbench.datasets.store`.
        files: {"train", "test"}; every user of the test is one of the training file.
        user_fraction: share of all users who are kept, with their items alone. A seeded hash of
            the number of a user chooses them.
        split_seed: of the hash, and of that which chooses the interaction of a user.

    Returns:
        {"num_classes", "num_users", "rows": {split: interactions}, "repairs"}.

    Raises:
        DataFileError: naming file and line.
        ValueError: unless `user_fraction` is in (0, 1] and leaves a user.
    """
    import pandas as pd

    repairs = Counter()
    train, test = [
        read_columns(files[role], (USER, ITEM), repairs, layout="lines")[0]
        for role in ("train", "test")
    ]
    users = pd.Index(train["user"].unique())
    unknown = ~test["user"].isin(users)
    if unknown.any():
        rule = "every user of the test must be one of the training file."
        fail(files["test"], test.index[unknown][0], rule, f"user {test['user'][unknown].iloc[0]!r}")
    users = users[row_hash(np.arange(len(users)), split_seed) * 2.0**-64 <= user_fraction]
    if not (0 < user_fraction <= 1 and len(users)):
        raise ValueError(
            f"`user_fraction` must be in (0, 1] and leave a user. Received: {user_fraction}"
        )
    events = [rows[rows["user"].isin(users)] for rows in (train, test)]
    items, names = pd.factorize(pd.concat(events)["item"])
    numbers = np.split(items, [len(events[0])])
    trained, tested = (
        item_lists(users.get_indexer(rows["user"]), ids, len(users))
        for rows, ids in zip(events, numbers, strict=True)
    )
    splits = [*_divided(trained, _one_of_each(trained, split_seed))[:2], tested]
    return _write(store, users, names, splits, repairs)


def _one_of_each(lists: ItemLists, seed: int) -> np.ndarray:
    """Index into `SPLITS` of each item: 1 of one item of those users who have two or more."""
    owners = np.repeat(np.arange(len(lists.ends) - 1), lists.sizes())
    order = np.lexsort((row_hash(np.arange(len(owners)), seed), owners))
    split_ids = np.zeros(len(owners), np.int8)
    split_ids[order[lists.ends[:-1][lists.sizes() > 1]]] = 1
    return split_ids


def _write(
    store: Any,
    users: Iterable[str],
    names: Sequence[str],
    splits: Sequence[ItemLists],
    repairs: Counter,
) -> dict:
    """Stores the lists of each split, with the items that are in them numbered by frequency."""
    names, counts = list(names), np.bincount(splits[0].items, minlength=len(names))
    used = np.unique(np.concatenate([lists.items for lists in splits]))
    order = np.array(sorted(used, key=lambda item: (-counts[item], names[item])), np.int64)
    for split, lists in zip(SPLITS, renumbered(splits, order), strict=True):
        for array, values in lists._asdict().items():
            store.append(f"{split}_{array}", values)
    store.append("counts", counts[order])
    store.write_strings("items", [names[item] for item in order])
    store.write_strings("users", users)
    rows = {split: len(lists.items) for split, lists in zip(SPLITS, splits, strict=True)}
    facts = {"num_classes": len(order), "num_users": len(users), "rows": rows}
    return facts | {"repairs": dict(+repairs)}


def item_lists(users: np.ndarray, items: np.ndarray, size: int) -> ItemLists:
    """The items of each of `size` users, in the order of the rows."""
    ends = np.append(0, np.cumsum(np.bincount(users, minlength=size)))
    order = np.argsort(users, kind="stable")
    return ItemLists(items[order].astype(np.int32), ends.astype(np.int64))


def leave_one_out(lists: ItemLists) -> list[ItemLists]:
    """The lists of each split: the last item is the test, the one before it for validation.

    Users with fewer than 3 items are for training alone.
    """
    split_ids = np.zeros(len(lists.items), np.int8)
    last = lists.ends[1:][lists.sizes() >= LEAST] - 1
    split_ids[last - 1], split_ids[last] = 1, 2
    return _divided(lists, split_ids)


def by_time(
    lists: ItemLists, times: np.ndarray, valid_fraction: float, test_fraction: float
) -> list[ItemLists]:
    """The lists of each split: all rows before a moment, those before another one, and the rest.

    No time is in two splits: each begins with the first row of its share and those of the same
    time, so the shares are the least. What a user has had in an earlier split, or before in the
    same one, is left out of validation and test: it is not recommended again.

    Args:
        lists: all rows, of N items.
        times: (N,), of the rows.
        valid_fraction, test_fraction: shares of the rows, more than 0.

    Raises:
        ValueError: if the fractions, or the times, leave no row for a split.
    """
    if not (min(valid_fraction, test_fraction) > 0 and valid_fraction + test_fraction < 1):
        raise ValueError(
            "`valid_fraction` and `test_fraction` must be more than 0, and less than 1 together. "
            f"Received: {valid_fraction}, {test_fraction}"
        )
    size = len(times)
    valid, test = (max(1, round(size * share)) for share in (valid_fraction, test_fraction))
    starts = np.sort(times)[[max(0, size - test - valid), size - test]]
    split_ids = np.searchsorted(starts, times, side="right").astype(np.int8)
    if len(np.unique(split_ids)) < len(SPLITS):
        raise ValueError(
            "`split` by 'time' must leave rows for every split: the times must differ more. "
            f"Received: {size:,} rows at {len(np.unique(times)):,} times"
        )
    users = np.repeat(np.arange(len(lists.ends) - 1), lists.sizes())
    pairs = users * (int(lists.items.max()) + 1) + lists.items
    is_first = np.zeros(size, bool)
    is_first[np.unique(pairs, return_index=True)[1]] = True
    return _divided(lists, np.where(is_first | (split_ids == 0), split_ids, -1))


def _divided(lists: ItemLists, split_ids: np.ndarray) -> list[ItemLists]:
    """The lists of each of `SPLITS`; `split_ids` (N,) are the indices of the items' splits."""
    masks = [split_ids == index for index in range(len(SPLITS))]
    return [
        ItemLists(lists.items[mask], np.append(0, np.cumsum(mask))[lists.ends]) for mask in masks
    ]


def renumbered(splits: Iterable[ItemLists], order: np.ndarray) -> list[ItemLists]:
    """The lists with new ids: item `order[i]` becomes i."""
    ids = np.zeros(order.max(initial=-1) + 1, np.int32)
    ids[order] = np.arange(len(order))
    return [lists._replace(items=ids[lists.items]) for lists in splits]


def load_interactions(store: Any, facts: Mapping, name: str) -> InteractionData:
    """Makes the data set from a store that one of the writers above filled."""
    arrays = {
        split: [store.read(f"{split}_{array}") for array in ItemLists._fields] for split in SPLITS
    }
    return InteractionData(
        name,
        **{split: ItemLists(*lists) for split, lists in arrays.items()},
        num_classes=facts["num_classes"],
        items=store.read_strings("items"),
        counts=store.read("counts"),
        users=store.read_strings("users"),
    )

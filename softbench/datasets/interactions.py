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
from softbench.datasets.interaction_files import read_interactions, read_lists
from softbench.datasets.lines import by_frequency, fail
from softbench.datasets.store import Splits

LEAST = 3  # items of a user of whom one is held out for validation and one for the test


class _Numbers(dict):
    """Numbers of names, from 0 on in the order in which they are looked up."""

    def __missing__(self, name: str) -> int:
        self[name] = number = len(self)
        return number


def write_histories(
    store: Any,
    files: Mapping[str, Path],
    *,
    min_count: int = 2,
    min_length: int = LEAST,
    layout: str = "auto",
    columns: str = "",
) -> dict:
    """Reads {"all"}: the items of each user by time, or in the order of the file.

    Items seen less often than `min_count` and users with fewer than `min_length` items are left
    out, again and again until none is left to leave out. The rest is split by `leave_one_out`. Item
    ids go by decreasing frequency in training, ties alphabetically; users are in the order of the
    file.

    Args:
        store: see `softbench.datasets.store`.
        files: {"all"}.
        min_count: of an item.
        min_length: of a user, 3 or more; 0 keeps all users.
        layout, columns: of `read_interactions`.

    Returns:
        {"num_classes", "num_users", "rows": {split: interactions}, "dropped": interactions that
        were left out, "repairs"}.

    Raises:
        DataFileError: naming file and line.
        ValueError: for arguments out of range, or if nothing is left.
    """
    check_positive(min_count=min_count)
    if min_length and min_length < LEAST:
        raise ValueError(
            f"0 keeps all users; else `min_length` must be {LEAST} or more. Received: {min_length}"
        )
    repairs, path, users, items = Counter(), files["all"], _Numbers(), _Numbers()
    read = read_interactions(path, repairs, layout, columns)
    rows = np.fromiter(
        ((users[user], items[item], time or 0.0) for user, item, time in read),
        [("user", np.int64), ("item", np.int64), ("time", np.float64)],
    )
    kept = _kept(rows["user"], rows["item"], min_count, min_length)
    if not kept.any():
        raise ValueError(
            f"{path.name}: no interaction is left with `min_count` and `min_length`. "
            f"Received: min_count={min_count}, min_length={min_length}, {len(kept)} interactions"
        )
    left = rows[kept]
    left = left[np.lexsort((left["time"], left["user"]))]  # stable: ties stay as they are
    kept_users, sizes = np.unique(left["user"], return_counts=True)
    splits = leave_one_out(ItemLists(left["item"], np.append(0, np.cumsum(sizes))))
    names = list(users)
    facts = _write(store, [names[user] for user in kept_users], items, splits, repairs)
    return facts | {"dropped": int((~kept).sum())}


def _kept(users: np.ndarray, items: np.ndarray, min_count: int, min_length: int) -> np.ndarray:
    """Which rows (E,) are of items that are frequent enough and of users that have enough."""
    kept = np.ones(len(users), bool)
    while True:
        often = np.bincount(items[kept], minlength=items.max(initial=0) + 1) >= min_count
        left = kept & often[items]
        long = np.bincount(users[left], minlength=users.max(initial=0) + 1) >= min_length
        left &= long[users]
        if left.sum() == kept.sum():
            return left
        kept = left


def write_interactions(
    store: Any,
    files: Mapping[str, Path],
    *,
    valid_fraction: float = 0.02,
    split_seed: int = 0,
) -> dict:
    """Reads {"train", "test"}: users' items without an order, one user a line.

    Args:
        store: see `softbench.datasets.store`.
        files: {"train", "test"}; every user of the test is one of the training file.
        valid_fraction: share of the training interactions that `Splits` holds out.
        split_seed: of `Splits`.

    Returns:
        {"num_classes", "num_users", "rows": {split: interactions}, "repairs"}.

    Raises:
        DataFileError: naming file and line.
    """
    repairs, items, test = Counter(), _Numbers(), {}
    read = read_lists(files["train"], repairs)
    train = {user: [items[item] for item in names] for _, user, names in read}
    for line, user, names in read_lists(files["test"], repairs):
        if user not in train:
            rule = "every user of the test must be one of the training file."
            fail(files["test"], line, rule, f"user {user!r}")
        test[user] = [items[item] for item in names]
    lists = item_lists(train.values())
    split_ids = Splits(split_seed, valid_fraction)(np.arange(len(lists.items)))
    splits = [*_divided(lists, split_ids)[:2], item_lists(test.get(user, []) for user in train)]
    return _write(store, list(train), items, splits, repairs)


def _write(
    store: Any, users: list[str], items: _Numbers, splits: Sequence[ItemLists], repairs: Counter
) -> dict:
    """Stores the lists of each split, with the items that are in them numbered by frequency."""
    names = list(items)
    counts = np.bincount(splits[0].items, minlength=len(names))
    used = np.unique(np.concatenate([lists.items for lists in splits]))
    ranked = by_frequency({names[item]: int(counts[item]) for item in used})
    order = np.array([items[name] for name in ranked], np.int64)
    for split, lists in zip(SPLITS, renumbered(splits, order), strict=True):
        for array, values in lists._asdict().items():
            store.append(f"{split}_{array}", values)
    store.append("counts", counts[order])
    store.write_strings("items", ranked)
    store.write_strings("users", users)
    rows = {split: len(lists.items) for split, lists in zip(SPLITS, splits, strict=True)}
    facts = {"num_classes": len(ranked), "num_users": len(users), "rows": rows}
    return facts | {"repairs": dict(+repairs)}


def item_lists(lists: Iterable[Iterable[int]]) -> ItemLists:
    """The `ItemLists` of the users' ids, one list each."""
    arrays = [np.fromiter(ids, np.int32) for ids in lists]
    ends = np.append(0, np.cumsum([len(array) for array in arrays])).astype(np.int64)
    return ItemLists(np.concatenate([np.zeros(0, np.int32), *arrays]), ends)


def leave_one_out(lists: ItemLists) -> list[ItemLists]:
    """The lists of each split: the last item is the test, the one before it for validation.

    Users with fewer than 3 items are for training alone.
    """
    split_ids = np.zeros(len(lists.items), np.int8)
    last = lists.ends[1:][lists.sizes() >= LEAST] - 1
    split_ids[last - 1], split_ids[last] = 1, 2
    return _divided(lists, split_ids)


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
        # Folders that were prepared before users had names have no `num_users`.
        users=store.read_strings("users") if "num_users" in facts else (),
    )

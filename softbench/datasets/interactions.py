"""Users' items, one user a line: `user item item ...`, to stored arrays.

Arrays: `<split>_items` int32 (N,), `<split>_ends` int64 (U + 1,), `counts`; strings `items`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from softbench.datasets.base import SPLITS, InteractionData, ItemLists
from softbench.datasets.lines import by_frequency, fail, read_text
from softbench.datasets.store import Splits

LEAST = 3  # items of a user of whom one is held out for validation and one for the test


def read_lists(path: Path, repairs: Counter) -> Iterator[tuple[int, str, list[str]]]:
    """Yields (number of the line, user, items) of a file's lines; a user may have no item.

    Blank lines (`blank_lines`) and carriage returns (`crlf_lines`) are counted in `repairs`.

    Raises:
        DataFileError: for an empty file, or a user who has two lines.
    """
    users = set()
    for line, text in read_text(path, repairs):
        if not text.strip():
            repairs["blank_lines"] += 1
            continue
        user, *items = text.split()
        if user in users:
            fail(path, line, "each user must have one line.", f"a second line of user {user!r}")
        users.add(user)
        yield line, user, items
    if not users:
        fail(path, 1, "the file must hold users, `user item item ...`.", "an empty file")


def write_histories(store: Any, files: Mapping[str, Path]) -> dict:
    """Reads {"all"}: users' items in the order of time, of which the last ones are held out.

    Leave-one-out: the last item of a user is the test, the one before it is for validation; users
    with fewer than 3 items are for training alone. Ids go by decreasing frequency in training,
    ties alphabetically.

    Returns:
        {"num_classes", "rows": {split: number of items}, "repairs"}.
    """
    repairs: Counter = Counter()
    lists = [items for _, _, items in read_lists(files["all"], repairs)]
    ends = [len(items) - 2 if len(items) >= LEAST else len(items) for items in lists]
    pairs = list(zip(lists, ends, strict=True))
    parts = {
        "train": [items[:end] for items, end in pairs],
        "valid": [items[end : end + 1] for items, end in pairs],
        "test": [items[end + 1 :] for items, end in pairs],
    }
    return _write(store, parts, repairs)


def write_interactions(
    store: Any,
    files: Mapping[str, Path],
    *,
    valid_fraction: float = 0.02,
    split_seed: int = 0,
) -> dict:
    """Reads {"train", "test"}: users' items without an order.

    Args:
        store: see `softbench.datasets.store`.
        files: {"train", "test"}; every user of the test is one of the training file.
        valid_fraction: part of the training interactions that `Splits` holds out.
        split_seed: of `Splits`.

    Returns:
        As `write_histories`.

    Raises:
        DataFileError: naming file and line.
    """
    repairs: Counter = Counter()
    known = {user: items for _, user, items in read_lists(files["train"], repairs)}
    test = {}
    for line, user, items in read_lists(files["test"], repairs):
        if user not in known:
            rule = "every user of the test must be one of the training file."
            fail(files["test"], line, rule, f"user {user!r}")
        test[user] = items
    splits = Splits(split_seed, valid_fraction)
    sizes = np.cumsum([len(items) for items in known.values()])
    held_out = np.split(splits(np.arange(sizes[-1])) == 1, sizes[:-1])
    pairs = list(zip(known.values(), held_out, strict=True))
    parts = {
        "train": [[i for i, out in zip(*pair, strict=True) if not out] for pair in pairs],
        "valid": [[i for i, out in zip(*pair, strict=True) if out] for pair in pairs],
        "test": [test.get(user, []) for user in known],
    }
    return _write(store, parts, repairs)


def _write(store: Any, parts: Mapping[str, list[list[str]]], repairs: Counter) -> dict:
    """Numbers the items and stores the lists of each split."""
    frequency = Counter(chain.from_iterable(parts["train"]))
    for split in SPLITS[1:]:
        frequency.update(dict.fromkeys(chain.from_iterable(parts[split]), 0))
    names = by_frequency(frequency)
    number = {name: i for i, name in enumerate(names)}
    for split in SPLITS:
        lists = item_lists([number[item] for item in items] for items in parts[split])
        for array, values in lists._asdict().items():
            store.append(f"{split}_{array}", values)
    store.append("counts", np.array([frequency[name] for name in names], np.int64))
    store.write_strings("items", names)
    return {
        "num_classes": len(names),
        "rows": {split: sum(map(len, parts[split])) for split in SPLITS},
        "repairs": dict(+repairs),
    }


def item_lists(lists: Iterable[Iterable[int]]) -> ItemLists:
    """The `ItemLists` of the users' ids, one list each."""
    arrays = [np.fromiter(ids, np.int32) for ids in lists]
    ends = np.append(0, np.cumsum([len(array) for array in arrays])).astype(np.int64)
    return ItemLists(np.concatenate([np.zeros(0, np.int32), *arrays]), ends)


def load_interactions(store: Any, facts: Mapping, name: str) -> InteractionData:
    """Makes the data set from a store that one of the two functions above filled."""
    arrays = {
        split: [store.read(f"{split}_{array}") for array in ItemLists._fields] for split in SPLITS
    }
    return InteractionData(
        name,
        **{split: ItemLists(*own) for split, own in arrays.items()},
        num_classes=facts["num_classes"],
        items=store.read_strings("items"),
        counts=store.read("counts"),
    )

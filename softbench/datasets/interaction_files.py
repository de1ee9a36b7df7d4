"""Interactions of users with items, from a file of the user's own, in the order of time.

Arrays: `items` int32 (E,), the items of the first user, then of the second, ...; `ends` int64
(U + 1,); `counts`; strings `users` and `items`. Shape letters: E interactions, U users, n items.
"""

import csv
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from softbench.common import check_positive
from softbench.datasets.base import SPLITS
from softbench.datasets.lines import by_frequency, fail, read_text

LEAST = 3  # items of a user: one to begin with, one held out for validation and one for the test
LAYOUTS = ("auto", "columns", "lines")
_SEPARATORS = ("\t", "::", ",", ";")
_USER = "user user_id userid uid session session_id sessionid customer_id visitorid reviewerid"
_ITEM = "item item_id itemid iid movieid movie_id productid product_id asin parent_asin sku book_id"
_TIME = "time timestamp datetime date ts unixreviewtime created_at"
_NAMES = tuple(frozenset(names.split()) for names in (_USER, _ITEM, _TIME))
Row = tuple[str, str, float | None]


class SessionData(NamedTuple):
    """What users had to do with, in order. The last item of each is the test, the one before it is
    for validation.

    Attributes:
        name: registry name.
        items: int32 `(E,)`, the items of a user after those of the user before.
        ends: int64 `(U + 1,)`; the items of user u are `items[ends[u]:ends[u + 1]]`, 3 or more.
        num_classes: n, the number of items.
        users, item_names: their names in the file.
        counts: int64 `(n,)`, occurrences of each item in training.
    """

    name: str
    items: np.ndarray
    ends: np.ndarray
    num_classes: int
    users: list[str]
    item_names: list[str]
    counts: np.ndarray


def read_interactions(
    path: Path, repairs: Counter, layout: str = "auto", columns: str = ""
) -> Iterator[Row]:
    """Yields (user, item, time or None) of a file, in its order.

    Args:
        path: `.parquet`, or text with a line for each interaction (fields between tabs, commas,
            semicolons or `::`), or with a line for each user, `user item item ...` between spaces.
        repairs: counts blank lines and carriage returns.
        layout: "columns" or "lines"; "auto" tells them by the separator.
        columns: names or numbers (from 0) of user, item and, maybe, time. "" takes usual names of
            the first line (user_id, item_id, timestamp, ...), else the first two or three fields.

    Raises:
        DataFileError: naming file and line.
        ValueError: for arguments out of range.
    """
    if layout not in LAYOUTS:
        raise ValueError(f"`layout` must be one of: {', '.join(LAYOUTS)}. Received: {layout!r}")
    if path.suffix == ".parquet":
        return _parquet(path, columns)
    lines = ((line, text.rstrip("\r\n")) for line, text in read_text(path, repairs))
    lines = ((line, text) for line, text in lines if text.strip())
    first = next(lines, None)
    if first is None:
        fail(path, 1, "the file must hold interactions.", "an empty file")
    separator = next((s for s in _SEPARATORS if s in first[1]), None)
    lines = chain([first], lines)
    if layout == "lines" or (layout == "auto" and separator is None):
        return _one_user_a_line(path, lines)
    return _columns(path, lines, separator, columns)


def _one_user_a_line(path: Path, lines: Iterable[tuple[int, str]]) -> Iterator[Row]:
    known = set()
    for line, text in lines:
        user, *items = text.split()
        if user in known:
            rule = "each user must have one line (`layout='columns'` reads `user item` lines)."
            fail(path, line, rule, f"a second line of user {user!r}")
        known.add(user)
        yield from ((user, item, None) for item in items)


def _columns(
    path: Path, lines: Iterable[tuple[int, str]], separator: str | None, columns: str
) -> Iterator[Row]:
    chosen = None
    for line, text in lines:
        fields = _fields(text, separator)
        if chosen is None:
            chosen, is_header = _chosen(path, line, fields, columns)
            if is_header:
                continue
        if len(fields) <= max(chosen):
            fail(path, line, f"a line must have {max(chosen) + 1} fields or more.", text)
        user, item, *time = (fields[place] for place in chosen)
        if not user or not item:
            fail(path, line, "user and item must not be empty.", text)
        yield user, item, _seconds(path, line, time[0]) if time else None


def _fields(text: str, separator: str | None) -> list[str]:
    if separator is None or len(separator) > 1:
        found = text.split(separator)
    else:
        found = next(csv.reader([text], delimiter=separator))
    return [field.strip() for field in found]


def _chosen(path: Path, line: int, fields: list[str], columns: str) -> tuple[list[int], bool]:
    """Places of user, item and maybe time, and whether the line is a header."""
    wanted = [name.strip() for name in columns.split(",") if name.strip()]
    if wanted and len(wanted) not in (2, 3):
        raise ValueError(
            f"`columns` must name user and item, or user, item and time. Received: {columns!r}"
        )
    if wanted and all(name.isdecimal() for name in wanted):
        return [int(name) for name in wanted], _is_header(fields)
    if wanted:
        missing = [name for name in wanted if name not in fields]
        if missing:
            fail(path, line, f"the first line must name the columns {columns}.", f"{fields}")
        return [fields.index(name) for name in wanted], True
    if _is_header(fields):
        lower = [field.lower() for field in fields]
        places = [[i for i, name in enumerate(lower) if name in known] for known in _NAMES]
        return [found[0] for found in places if found], True
    if not 2 <= len(fields) <= 3:
        rule = "a line without a header must be user, item and maybe time; `columns` says which"
        fail(path, line, f"{rule} fields they are, as in columns='0,1,3'.", f"{fields}")
    return list(range(len(fields))), False


def _is_header(fields: list[str]) -> bool:
    lower = {field.lower() for field in fields}
    return bool(lower & _NAMES[0]) and bool(lower & _NAMES[1])


def _seconds(path: Path, line: int, text: str) -> float:
    """A time as a number: of what the file counts, or of seconds where it has dates."""
    try:
        found = float(text)
    except ValueError:
        try:
            date = datetime.fromisoformat(text)
        except ValueError:
            rule = "a time must be a number or a date as 2024-05-31 or 2024-05-31T12:00:00 (of a "
            fail(path, line, f"{rule}header, `columns` says what is user, item and time).", text)
        found = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    if not math.isfinite(found):
        fail(path, line, "a time must be finite.", text)
    return found


def _parquet(path: Path, columns: str) -> Iterator[Row]:
    try:
        import pandas as pd

        table = pd.read_parquet(path)
    except ImportError:
        raise ValueError(
            "`path`: a Parquet file needs pandas and pyarrow (pip install pandas pyarrow). "
            f"Received: {path.name}"
        ) from None
    names = [str(name) for name in table.columns]
    chosen, _ = _chosen(path, 1, names, columns)
    parts = [table.iloc[:, place] for place in chosen]
    for line, (user, item, *time) in enumerate(zip(*parts, strict=True), 1):
        moment = _seconds(path, line, str(time[0])) if time else None
        yield str(user).replace("\n", " "), str(item).replace("\n", " "), moment


def write_sessions(
    store: Any,
    files: Mapping[str, Path],
    *,
    min_count: int = 2,
    min_length: int = LEAST,
    layout: str = "auto",
    columns: str = "",
) -> dict:
    """Reads {"all"} into a store: the items of each user by time, or in the order of the file.

    Items seen less often than `min_count` and users with fewer than `min_length` items are left
    out, again and again until none is left to leave out. Item ids go by decreasing frequency in
    training, ties alphabetically; users are in the order of the file.

    Args:
        store: see `softbench.datasets.store`.
        files: {"all"}.
        min_count: of an item.
        min_length: of a user, 3 or more: the last two items are held out.
        layout, columns: of `read_interactions`.

    Returns:
        {"num_classes", "num_users", "rows": {split: interactions}, "dropped": interactions that
        were left out, "repairs"}.

    Raises:
        DataFileError: naming file and line.
        ValueError: for arguments out of range, or if nothing is left.
    """
    check_positive(min_count=min_count)
    if min_length < LEAST:
        raise ValueError(f"`min_length` must be {LEAST} or more. Received: {min_length}")
    repairs, path = Counter(), files["all"]
    users, items, times = _numbered(read_interactions(path, repairs, layout, columns))
    kept = _kept(users.ids, items.ids, min_count, min_length)
    if not kept.any():
        raise ValueError(
            f"{path.name}: no interaction is left with `min_count` and `min_length`. "
            f"Received: min_count={min_count}, min_length={min_length}, {len(kept)} interactions"
        )
    order = np.lexsort((times[kept], users.ids[kept]))  # stable: ties stay as they are
    of_user, of_item = users.ids[kept][order], items.ids[kept][order]
    own, sizes = np.unique(of_user, return_counts=True)
    ends = np.append(0, np.cumsum(sizes))
    in_training = np.ones(len(of_item), bool)
    in_training[ends[1:] - 1] = in_training[ends[1:] - 2] = False
    counts = np.bincount(of_item[in_training], minlength=len(items.names))
    frequency = {items.names[i]: int(counts[i]) for i in np.unique(of_item)}
    names = by_frequency(frequency)
    number = {name: i for i, name in enumerate(names)}
    new = np.array([number.get(name, -1) for name in items.names], np.int32)
    store.append("items", new[of_item])
    store.append("ends", ends.astype(np.int64))
    store.append("counts", np.array([frequency[name] for name in names], np.int64))
    store.write_strings("item_names", names)
    store.write_strings("users", [users.names[i] for i in own])
    held_out = len(own)
    rows = dict(zip(SPLITS, (len(of_item) - 2 * held_out, held_out, held_out), strict=True))
    facts = {"num_classes": len(names), "num_users": len(own), "rows": rows}
    return facts | {"dropped": int((~kept).sum()), "repairs": dict(+repairs)}


class _Numbers(NamedTuple):
    """Names, and of each row the place of its name in them, int64 (E,)."""

    names: list[str]
    ids: np.ndarray


def _numbered(rows: Iterator[Row]) -> tuple[_Numbers, _Numbers, np.ndarray]:
    """Users, items, and times (E,): the order of the rows where they have none."""
    users: dict[str, int] = {}
    items: dict[str, int] = {}
    found = [
        (users.setdefault(user, len(users)), items.setdefault(item, len(items)), time or 0.0)
        for user, item, time in rows
    ]
    ids = np.array([row[:2] for row in found], np.int64).reshape(-1, 2)
    times = np.array([row[2] for row in found], np.float64)
    return _Numbers(list(users), ids[:, 0]), _Numbers(list(items), ids[:, 1]), times


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


def load_sessions(store: Any, facts: Mapping, name: str) -> SessionData:
    """Makes the data set from a store that `write_sessions` filled."""
    return SessionData(
        name,
        items=store.read("items"),
        ends=store.read("ends"),
        num_classes=facts["num_classes"],
        users=store.read_strings("users"),
        item_names=store.read_strings("item_names"),
        counts=store.read("counts"),
    )

"""Interactions of users with items in files: CSV, Parquet, or a user's items in a line."""

import csv
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

from softbench.datasets.lines import fail, filled_lines

LAYOUTS = ("auto", "columns", "lines")
_SEPARATORS = ("\t", "::", ",", ";")
_USER = "user user_id userid uid session session_id sessionid customer_id visitorid reviewerid"
_ITEM = "item item_id itemid iid movieid movie_id productid product_id asin parent_asin sku book_id"
_TIME = "time timestamp datetime date ts unixreviewtime created_at"
_NAMES = tuple(frozenset(names.split()) for names in (_USER, _ITEM, _TIME))
_FILLED = (
    "the file must hold interactions, one in a line, or it must hold users, `user item item ...`."
)
Row = tuple[str, str, float | None]


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
    lines = filled_lines(path, repairs, _FILLED)
    first = next(lines)
    separator = next((s for s in _SEPARATORS if s in first[1]), None)
    lines = chain([first], lines)
    if layout == "lines" or (layout == "auto" and separator is None):
        return ((user, i, None) for _, user, items in _user_lines(path, lines) for i in items)
    return _columns(path, lines, separator, columns)


def read_lists(path: Path, repairs: Counter) -> Iterator[tuple[int, str, list[str]]]:
    """Yields (number of the line, user, items) of lines `user item item ...`, or without an item.

    Blank lines (`blank_lines`) and carriage returns (`crlf_lines`) are counted in `repairs`.

    Raises:
        DataFileError: for an empty file, or a user who has two lines.
    """
    return _user_lines(path, filled_lines(path, repairs, _FILLED))


def _user_lines(
    path: Path, lines: Iterable[tuple[int, str]]
) -> Iterator[tuple[int, str, list[str]]]:
    users = set()
    for line, text in lines:
        user, *items = text.split()
        if user in users:
            rule = "each user must have one line (`layout='columns'` reads `user item` lines)."
            fail(path, line, rule, f"a second line of user {user!r}")
        users.add(user)
        yield line, user, items


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
        user, item, *time = (fields[column] for column in chosen)
        if not user or not item:
            fail(path, line, "user and item must not be empty.", text)
        yield user, item, _seconds(path, line, time[0]) if time else None


def _fields(text: str, separator: str | None) -> list[str]:
    if separator is None or len(separator) > 1:
        fields = text.split(separator)
    else:
        fields = next(csv.reader([text], delimiter=separator))
    return [field.strip() for field in fields]


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
        columns_by_role = [
            [i for i, field in enumerate(lower) if field in names] for names in _NAMES
        ]
        return [matches[0] for matches in columns_by_role if matches], True
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
        seconds = float(text)
    except ValueError:
        try:
            date = datetime.fromisoformat(text)
        except ValueError:
            rule = "a time must be a number or a date as 2024-05-31 or 2024-05-31T12:00:00 (of a "
            fail(path, line, f"{rule}header, `columns` says what is user, item and time).", text)
        seconds = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    if not math.isfinite(seconds):
        fail(path, line, "a time must be finite.", text)
    return seconds


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
    series = [table.iloc[:, column] for column in chosen]
    for line, (user, item, *time) in enumerate(zip(*series, strict=True), 1):
        moment = _seconds(path, line, str(time[0])) if time else None
        yield str(user).replace("\n", " "), str(item).replace("\n", " "), moment

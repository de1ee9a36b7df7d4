"""Which column of a table is what: users, items and times, or the three names of a triple.

An error names the row, and in backticks the option that helps, as `columns=customer,product`.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from softbench.datasets.tables import EMPTY, Table, open_table
from softbench.datasets.times import kind_of, parsed

if TYPE_CHECKING:
    import pandas as pd

MISSING = ("error", "drop")
_ABSENT = ("", "nan", "NaN", "None", "none", "null", "NULL", "NA", "N/A", "<NA>", "NaT")


class Role(NamedTuple):
    """What a column is for.

    Attributes:
        name: such as "user".
        usual: names that such columns have, in small letters and digits, the likelier first.
    """

    name: str
    usual: str


USER = Role(
    "user",
    "user userid uid username customer customerid client clientid member memberid account "
    "accountid visitor visitorid reviewer reviewerid buyer buyerid session sessionid",
)
ITEM = Role(
    "item",
    "item itemid iid items product productid asin parentasin movie movieid book bookid isbn sku "
    "track trackid song songid artist artistid article articleid video videoid game gameid "
    "business businessid place placeid location locationid poi poiid news newsid",
)
TIME = Role(
    "time",
    "time times timestamp timestamps datetime date ts when unixreviewtime reviewtime createdat",
)
HEAD = Role("head", "head headid h subject subjectid source")
RELATION = Role("relation", "relation relationid r predicate property")
TAIL = Role("tail", "tail tailid t object objectid target")


def read_columns(
    path: Path,
    roles: Sequence[Role],
    repairs: Counter,
    *,
    columns: str = "",
    missing: str = "error",
    date_format: str = "",
    layout: str = "auto",
) -> tuple[pd.DataFrame, str]:
    """Reads the columns of a file that have roles.

    Args:
        path: of a file for `open_table`.
        roles: of the columns; a file may lack `TIME`.
        repairs: counts `blank_lines`, `missing_values` and `duplicates`: rows that repeat all that
            is read of another, which are left out.
        columns: names or numbers (from 0) of the columns, between commas. "": those of usual names;
            or, without a header, the first ones, if the third can be a time.
        missing: what a row without one of the values is: an "error", or to "drop".
        date_format: of the times, as `strptime` has it. "": numbers, or dates in which day and
            month cannot be taken for each other.
        layout: of `open_table`.

    Returns:
        The rows in the order of the file, a categorical column of strings for each role but one to
        sort by for `TIME`; and how the columns were understood.

    Raises:
        DataFileError: naming file and row.
        ValueError: for arguments out of range.
        ImportError: for Parquet without pyarrow.
    """
    if missing not in MISSING:
        raise ValueError(f"`missing` must be one of: {', '.join(MISSING)}. Received: {missing!r}")
    wanted = _wanted(columns, roles)
    table = open_table(path, repairs, layout)
    row = int(table.frame.index[0])
    table = _with_names(table, roles, wanted)
    if not len(table.frame):
        table.fail(row, EMPTY, "a header alone")
    chosen = _chosen(table, row, roles, wanted)
    rows = table.frame[chosen]
    rows.columns = [role.name for role, _ in zip(roles, chosen, strict=False)]
    rows, is_lists = _exploded(table, rows)
    rows = _complete(table, rows, missing, repairs)
    how = ""
    if "time" in rows and len(rows):
        times, how = parsed(table, rows["time"], date_format)
        rows = rows.assign(time=times)
    if not is_lists:
        repeated = rows.duplicated()
        repairs["duplicates"] += int(repeated.sum())
        rows = rows[~repeated]
    shown = table.names or [f"column {column}" for column in table.frame]
    pairs = [f"{role} = {shown[column]}" for role, column in zip(rows, chosen, strict=True)]
    what = f" ({how})" if how else ""
    header = "" if table.names else " without a header"
    order = "; events in the order of the file" if TIME in roles and not how else ""
    return rows, f"{', '.join(pairs)}{what}; {table.form}{header}{order}"


def _wanted(columns: str, roles: Sequence[Role]) -> list[str]:
    """The names or numbers in `columns`."""
    names = [name.strip() for name in columns.split(",")] if isinstance(columns, str) else []
    required = len(roles) - (TIME in roles)
    if columns != "" and not required <= len(set(names)) == len(names) <= len(roles):
        text = ",".join(role.name for role in roles)
        numbers = ",".join(map(str, range(required)))
        raise ValueError(
            f"`columns` must be names or numbers of different columns, as '{text}' or '{numbers}'. "
            f"Received: {columns!r}"
        )
    return names if columns else []


def _with_names(table: Table, roles: Sequence[Role], wanted: list[str]) -> Table:
    """The table with its first row as names, if that is a header.

    It is one if it has wanted or usual names, or words where all other rows have numbers or times;
    in a table without these, words that no other row has, where others recur. (The names in triples
    need not recur.)
    """
    first, rest = table.frame.iloc[:1], table.frame.iloc[1:]
    names = [str(name).strip() for name in first.iloc[0]]
    if table.names:
        return table
    kinds = {column: kind_of(rest[column]) for column in rest}
    if (wanted and set(wanted) <= set(names)) or _by_usual_names(names, roles):
        is_header = True
    elif TIME not in roles or not len(rest):
        is_header = False
    elif any(kinds.values()):
        is_header = any(kind and not kind_of(first[column]) for column, kind in kinds.items())
    else:
        is_header = any(rest[column].duplicated().any() for column in rest) and not any(
            rest[column].isin(first[column]).any() for column in rest
        )
    return replace(table, frame=rest, names=names) if is_header else table


def _chosen(table: Table, row: int, roles: Sequence[Role], wanted: list[str]) -> list[int]:
    """Columns of the roles; an error of the first row shows the `columns` that may be meant."""
    names = table.names or table.frame.iloc[0].tolist()
    if table.names and wanted and set(wanted) <= set(names):
        return [names.index(name) for name in wanted]
    if wanted:
        numbers = [int(name) for name in wanted if name.isdecimal()]
        if len(numbers) < len(wanted) or max(numbers) >= len(names):
            rule = (
                f"`columns` must be names, or numbers below {len(names)}, not {','.join(wanted)}."
            )
            table.fail(row, rule, ", ".join(names))
        return numbers
    usual = _by_usual_names(names, roles) if table.names else []
    if usual:
        return usual
    times = [column for column in table.frame if kind_of(table.frame[column]) == "time"]
    others = [column for column in table.frame if column not in times]
    required = len(roles) - (TIME in roles)
    if len(others) < required:  # numbers of users may be as large as times
        others, times = list(table.frame), [column for column in times if column >= required]
    guess = others[:required] + (times[-1:] if TIME in roles else [])
    if not table.names and guess == list(table.frame):
        return guess
    flag = shlex.quote(",".join(names[c] if table.names else str(c) for c in guess))
    is_short = not table.names and TIME in roles and len(names) == 3 > len(guess)
    also = f", or `columns={flag},2` if the last one is the time" if is_short else ""
    what = ", ".join(role.name for role in roles)
    rule = f"say which columns are {what}, as in `columns={flag}`{also}."
    table.fail(row, rule, ", ".join(map(str, names)))


def _by_usual_names(names: list[str], roles: Sequence[Role]) -> list[int]:
    """Columns of the roles by the usual names; none unless all have one but `TIME`."""
    plain = ["".join(filter(str.isalnum, name.split(":")[0].lower())) for name in names]
    chosen = []
    for role in roles:
        column = next((plain.index(name) for name in role.usual.split() if name in plain), None)
        if column is not None:
            chosen.append(column)
        elif role is not TIME:
            return []
    return chosen


def _exploded(table: Table, rows: pd.DataFrame) -> tuple[pd.DataFrame, bool]:
    """A row for each item where a row has a user's list of them, and whether there are lists."""
    may_be = [name for name in ("item", "time") if name in rows and rows[name].dtype == object]
    lists = [name for name in may_be if rows[name].map(_is_list).any()]
    if not lists:
        return rows, False
    sizes = rows[lists].map(lambda value: len(value) if _is_list(value) else -1)
    wrong = (sizes < 0).any(axis=1) | (sizes.nunique(axis=1) > 1) | ("item" not in lists)
    if wrong.any():
        rule = "every row must have a list of items (and of times, if one has), equally long."
        table.fail(rows.index[wrong][0], rule, rows[wrong].iloc[0].tolist())
    repeated = rows["user"].duplicated()
    if repeated.any():
        user = rows["user"][repeated].iloc[0]
        rule = "each user must have one row of items."
        table.fail(rows.index[repeated][0], rule, f"a second row of user {user!r}")
    return rows[sizes["item"] > 0].explode(lists), True


def _is_list(value: object) -> bool:
    return isinstance(value, list | tuple | np.ndarray)


def _complete(table: Table, rows: pd.DataFrame, missing: str, repairs: Counter) -> pd.DataFrame:
    """Rows that have all values; users, items and other names as categories."""
    for name in (name for name in rows if rows[name].dtype == object):
        nested = rows[name].map(lambda value: isinstance(value, dict) or _is_list(value))
        if nested.any():
            rule = f"{name} must be a text or a number."
            table.fail(rows.index[nested][0], rule, rows[name][nested].iloc[0])
    names = {name: _names(rows[name]) for name in rows if name != "time"}
    whole = rows.assign(**names)
    lacks = whole.isna().any(axis=1)
    if "time" in rows:
        lacks |= rows["time"].isin(_ABSENT)
    repairs["missing_values"] += int(lacks.sum())
    if lacks.any() and missing == "error":
        row = rows.index[lacks][0]
        held = " and ".join([", ".join(rows.columns[:-1]), rows.columns[-1]])
        rule = f"a row must have {held} (`missing=drop` leaves out such rows: {lacks.sum():,})."
        table.fail(row, rule, ", ".join(map(str, table.frame.loc[row])))
    return whole[~lacks]


def _names(values: pd.Series) -> pd.Categorical:
    """Names as strings on one line; whole numbers have no point, whatever their type."""
    import pandas as pd

    codes, distinct = pd.factorize(values)
    distinct = pd.Series(distinct)
    if pd.api.types.is_float_dtype(distinct) and (distinct % 1 == 0).all():
        distinct = distinct.astype("int64")
    elif distinct.dtype == object:
        distinct = distinct.map(lambda v: v.decode("utf-8", "replace") if type(v) is bytes else v)
    text = distinct.astype(str).str.strip().str.replace(r"\s*[\r\n]+\s*", " ", regex=True)
    numbers, categories = pd.factorize(text.mask(text.isin(_ABSENT)))
    return pd.Categorical.from_codes(np.append(numbers, -1)[codes], categories)

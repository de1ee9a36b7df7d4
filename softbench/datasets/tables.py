"""Tables of users in files, read by pandas: CSV, JSON lines, Parquet (pyarrow), lists of items.

What a file is follows from its content. An error names the row, and the option that helps in
backticks, as `columns=customer,product`.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from softbench.datasets.lines import DataFileError, fail, filled_lines, open_bytes

if TYPE_CHECKING:
    import pandas as pd

LAYOUTS = ("auto", "columns", "lines")
MISSING = ("error", "drop")
_ABSENT = ("", "nan", "NaN", "None", "none", "null", "NULL", "NA", "N/A", "<NA>", "NaT")
_SEPARATORS = {"\t": "tabs", "::": "`::`", ",": "commas", ";": "semicolons", "|": "bars"}
_SAMPLE = 200  # rows by which separator, header and times are recognised
_EPOCH = 1e7  # a number from here on can be a time: seconds since 1970, or a date as 20240531
_EMPTY = "the file must hold rows, one in a line."


class Role(NamedTuple):
    """What a column is for.

    Attributes:
        name: such as "user".
        usual: names that such columns have, in small letters and digits, the likelier first.
    """

    name: str
    usual: tuple[str, ...]


_USER = """user userid uid username customer customerid client clientid member memberid account
accountid visitor visitorid reviewer reviewerid buyer buyerid session sessionid"""
_ITEM = """item itemid iid items product productid asin parentasin movie movieid book bookid isbn
sku track trackid song songid artist artistid article articleid video videoid game gameid business
businessid place placeid location locationid poi poiid news newsid"""
_TIME = "time timestamp timestamps datetime date ts when unixreviewtime reviewtime createdat times"
USER, ITEM, TIME = (
    Role(name, tuple(usual.split()))
    for name, usual in (("user", _USER), ("item", _ITEM), ("time", _TIME))
)
HEAD, RELATION, TAIL = (
    Role(name, tuple(usual.split()))
    for name, usual in (
        ("head", "head headid h subject subjectid source"),
        ("relation", "relation relationid r predicate property"),
        ("tail", "tail tailid t object objectid target"),
    )
)


@dataclass
class Table:
    """A file's table before its columns have roles.

    Attributes:
        path: of the file.
        frame: a column for each field, numbered; values as in the file. The index is the number of
            each row: of its line, or counted from 1 in Parquet.
        names: of the columns, or None while the first row may hold them.
        form: what the file is.
        is_lists: whether a row is a user with all items.
    """

    path: Path
    frame: pd.DataFrame
    names: list[str] | None
    form: str
    is_lists: bool = False

    def fail(self, row: Any, rule: str, received: object) -> NoReturn:
        """Raises `DataFileError` for a row, by its number in the index."""
        if self.form == "Parquet":
            raise DataFileError(f"{self.path}: row {row}: {rule} Received: {received!s:.120}")
        if self.form.startswith("CSV"):  # a quoted field may have several lines
            before = self.frame.loc[: row - 1]
            row += sum(int(before[c].str.count("\n").sum()) for c in before)
        fail(self.path, int(row), rule, str(received))

    def shown(self, row: Any) -> str:
        """A row as an error shows it."""
        return ", ".join(map(str, self.frame.loc[row]))


def read_table(
    path: Path,
    roles: Sequence[Role],
    repairs: Counter,
    *,
    columns: str = "",
    missing: str = "error",
    date_format: str = "",
    layout: str = "auto",
) -> tuple[pd.DataFrame, str]:
    """Reads the columns that have roles.

    Args:
        path: CSV of any separator, a JSON object a line, Parquet, or lines `user item item ...`;
            compressed or not.
        roles: of the columns; a last one that is `TIME` may be missing.
        repairs: counts `blank_lines`, `missing_rows` and `duplicate_rows`.
        columns: names or numbers (from 0) of the columns, between commas. "": those of usual names.
        missing: what a row without a value is: an "error", or to "drop".
        date_format: of the times, as `strptime` has it. "": numbers, or dates in which day and
            month cannot be taken for each other.
        layout: "lines" takes a text for lines `user item item ...`, "columns" for columns; "auto"
            tells them by their separators and users.

    Returns:
        The rows in the order of the file, a column of strings for each role but of numbers for
        `TIME`, and a sentence on how the columns were understood.

    Raises:
        DataFileError: naming file and row.
        ValueError: for arguments out of range.
        ImportError: for Parquet without pyarrow.
    """
    for name, value, choice in (("layout", layout, LAYOUTS), ("missing", missing, MISSING)):
        if value not in choice:
            raise ValueError(f"`{name}` must be one of: {', '.join(choice)}. Received: {value!r}")
    wanted = _wanted(columns, roles)
    table = _open(path, layout, repairs)
    chosen, has_header = _chosen(table, roles, wanted)
    rows = table.frame.iloc[int(has_header) :]
    blank = (rows.isna() | rows.isin(("",))).all(axis=1)
    repairs["blank_lines"] += int(blank.sum())
    rows = rows.loc[~blank, chosen]
    rows.columns = [role.name for role, _ in zip(roles, chosen, strict=False)]
    rows, is_lists = _each_item(table, rows)
    rows = _without_missing(table, rows, missing, repairs)
    how = ""
    if "time" in rows:
        rows["time"], how = _times(table, rows["time"], date_format)
    if not is_lists:
        repeated = rows.duplicated()
        repairs["duplicate_rows"] += int(repeated.sum())
        rows = rows[~repeated]
    return rows, _understood(table, roles, chosen, has_header, how)


def read_lists(path: Path, repairs: Counter) -> pd.DataFrame:
    """Reads lines `user item item ...`: columns user and item, a list that may be empty.

    The index is the number of the line. Blank lines are counted as `blank_lines`.

    Raises:
        DataFileError: for an empty file, or a user who has two lines.
    """
    lines = [(line, text.split()) for line, text in filled_lines(path, repairs, _EMPTY)]
    table = _lists(path, lines)
    table.frame.columns = ["user", "item"]
    return table.frame


def _open(path: Path, layout: str, repairs: Counter) -> Table:
    """A file as a table."""
    with open_bytes(path) as file:
        start = file.read(4096)
    if start.startswith(b"PAR1"):
        return _parquet(path)
    if start.startswith((b"PK\x03\x04", b"\xd0\xcf\x11\xe0")):
        fail(path, 1, "the file must be text or Parquet.", "an Excel workbook or a zip archive")
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"{"):
        return _json_lines(path, repairs)
    if text.startswith(b"[") and text[1:].lstrip().startswith(b"{"):
        fail(path, 1, "JSON must have one object a line (`jq -c '.[]'` makes that).", "an array")
    separator = None if layout == "lines" else _separator(path)
    if separator is not None:
        return _delimited(path, separator)
    lines = [(line, text.split()) for line, text in filled_lines(path, repairs, _EMPTY)]
    users = {fields[0] for _, fields in lines}
    widths = {len(fields) for _, fields in lines}
    if layout == "lines" or (layout == "auto" and (len(users) == len(lines) or len(widths) > 1)):
        return _lists(path, lines)
    numbers, rows = zip(*lines, strict=True)
    return Table(path, _frame(rows, numbers), None, "lines of columns between blanks")


def _frame(rows: Any, numbers: Any) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(rows, index=pd.Index(numbers), dtype=object)


def _lists(path: Path, lines: list[tuple[int, list[str]]]) -> Table:
    frame = _frame([(f[0], f[1:]) for _, f in lines], [line for line, _ in lines])
    return Table(path, frame, ["user", "items"], "lines of users with their items", True)


def _parquet(path: Path) -> Table:
    import pandas as pd

    try:
        frame = pd.read_parquet(path, engine="pyarrow")
    except ImportError:
        raise ImportError(
            "`path`: Parquet needs pyarrow (pip install 'softbench[data]'). "
            f"Received: {path.name}"
        ) from None
    except (ValueError, OSError) as error:
        raise DataFileError(f"{path}: the Parquet file must be whole. Received: {error}") from None
    if any(frame.index.names) or not pd.api.types.is_integer_dtype(frame.index):
        frame = frame.reset_index()
    names = [str(name) for name in frame]
    frame.index, frame.columns = range(1, len(frame) + 1), range(len(names))
    return Table(path, frame, names, "Parquet")


def _json_lines(path: Path, repairs: Counter) -> Table:
    import pandas as pd

    records, numbers = [], []
    for line, text in filled_lines(path, repairs, _EMPTY):
        try:
            record = json.loads(text)
        except ValueError:
            record = None
        if not isinstance(record, dict):
            fail(path, line, "each line must be one JSON object.", text)
        records.append(record)
        numbers.append(line)
    frame = pd.DataFrame(records, index=pd.Index(numbers))
    names = [str(name) for name in frame]
    frame.columns = range(len(names))
    return Table(path, frame, names, "JSON lines")


def _text(path: Path) -> io.TextIOBase:
    """A text file, opened; UTF-8, or what a byte order mark says."""
    file = open_bytes(path)
    start = file.read(2)
    file.seek(0)
    encoding = "utf-16" if start in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    return io.TextIOWrapper(file, encoding, newline="")


def _separator(path: Path) -> str | None:
    """That which the first rows have most regularly; None if they have blanks alone."""
    with _text(path) as file:
        try:
            lines = [line for line in itertools.islice(file, _SAMPLE) if line.strip()]
        except UnicodeDecodeError:
            _fail_on_bytes(path)
    best, most = None, (0, 1)
    for separator in _SEPARATORS:
        single = (line.replace(separator, "\x1f") for line in lines)
        widths = [len(row) for row in csv.reader(single, delimiter="\x1f")]
        score = widths.count(widths[0]) if widths else 0, widths[0] if widths else 0
        if score[1] > 1 and score > most:
            best, most = separator, score
    return best


def _fail_on_bytes(path: Path) -> NoReturn:
    """Raises the `DataFileError` of the first line that is not UTF-8."""
    for _ in filled_lines(path, Counter(), _EMPTY):
        pass
    fail(path, 1, "the text must be UTF-8.", "another encoding")


def _delimited(path: Path, separator: str) -> Table:
    import pandas as pd

    with _text(path) as file:
        try:
            source = file
            if len(separator) > 1:  # pandas' quick parser takes one character
                source, character = io.StringIO(file.read().replace(separator, "\x1f")), "\x1f"
            else:
                character = separator
            frame = pd.read_csv(
                source,
                sep=character,
                header=None,
                dtype=str,
                na_filter=False,
                index_col=False,
                skip_blank_lines=False,
                skipinitialspace=True,
            )
        except UnicodeDecodeError:
            _fail_on_bytes(path)
        except pd.errors.ParserError as error:
            rule = "the rows must have as many fields as the first, and quotes an end."
            fail(path, _line_of(str(error)), rule, str(error).removeprefix("Error tokenizing data. "))
    frame.index += 1
    return Table(path, frame, None, f"CSV with {_SEPARATORS[separator]}")


def _line_of(message: str) -> int:
    """The number after the word "line" or "row" in a message of pandas' parser."""
    words = message.replace(",", " ").split()
    numbers = [b for a, b in itertools.pairwise(words) if a in ("line", "row") and b.isdecimal()]
    return int(numbers[0]) if numbers else 1


def _wanted(columns: str, roles: Sequence[Role]) -> list[str]:
    """The names or numbers in `columns`."""
    names = [name.strip() for name in columns.split(",")] if isinstance(columns, str) else []
    required = len(roles) - (roles[-1] is TIME)
    if columns != "" and not required <= len(names) <= len(roles):
        text = ",".join(role.name for role in roles)
        raise ValueError(
            f"`columns` must be names or numbers of columns, as '{text}' or "
            f"'{','.join(map(str, range(required)))}'. Received: {columns!r}"
        )
    return names if columns != "" else []


def _chosen(table: Table, roles: Sequence[Role], wanted: list[str]) -> tuple[list[int], bool]:
    """Columns of the roles, and whether the first row is a header."""
    names, row = table.names, table.frame.index[0] if len(table.frame) else 0
    if not len(table.frame):
        raise DataFileError(f"{table.path}: {_EMPTY} Received: an empty file")
    first = names or [str(name).strip() for name in table.frame.iloc[0]]
    usual = _by_usual_names(first, roles)
    if wanted:
        if set(wanted) <= set(first) and (names or not all(map(str.isdecimal, wanted))):
            return [first.index(name) for name in wanted], names is None
        if not all(map(str.isdecimal, wanted)):
            rule = f"the columns must be {','.join(wanted)}: `columns` names others, or numbers."
            table.fail(row, rule, ", ".join(first))
        chosen = [int(number) for number in wanted]
        if max(chosen) >= len(first):
            table.fail(row, f"`columns` must be numbers below {len(first)}.", ",".join(wanted))
        return chosen, names is None and bool(usual or _is_header(table, roles))
    if usual:
        return usual, names is None
    required = len(roles) - (roles[-1] is TIME)
    is_header = names is not None or _is_header(table, roles)
    guess = _guess(table, required, is_header)
    if is_header:
        text = shlex.quote(",".join(first[column] for column in guess))
        needed = ", ".join(role.name for role in roles[:required])
        rule = f"say which columns are {needed}{' and time' * (required < len(roles))}: "
        table.fail(row, f"{rule}`columns={text}`?", f"columns {', '.join(first)}")
    if len(first) == required or (len(first) == len(guess) == len(roles)):
        return list(range(len(first))), False
    numbers = ",".join(map(str, guess))
    if required < len(roles):
        both = "" if len(guess) > required else f" (`columns={numbers},2` if column 2 is the time)"
        rule = f"without a header, say which columns are user, item and time: `columns={numbers}`"
        table.fail(row, f"{rule}{both}.", ", ".join(first))
    table.fail(row, f"a row must be `{','.join(r.name for r in roles)}`.", ", ".join(first))


def _by_usual_names(names: list[str], roles: Sequence[Role]) -> list[int]:
    """Columns of the roles by the usual names; none unless all have one that must."""
    plain = ["".join(filter(str.isalnum, name.split(":")[0].lower())) for name in names]
    chosen = []
    for role in roles:
        column = next((plain.index(name) for name in role.usual if name in plain), None)
        if column is not None:
            chosen.append(column)
        elif role is not TIME:
            return []
    return chosen


def _is_header(table: Table, roles: Sequence[Role]) -> bool:
    """Whether the first row has words where all others have numbers or times.

    Of a table without these: words that no other row has, where others recur.
    """
    if roles[-1] is not TIME:
        return False
    first, rest = table.frame.iloc[0], table.frame.iloc[1:]
    if not len(rest):
        return False
    sample = rest.iloc[:_SAMPLE]
    kinds = [_kind(sample[column]) for column in rest]
    if any(kinds):
        others = [_kind(first[[column]]) for column in rest]
        return any(kind and not other for kind, other in zip(kinds, others, strict=True))
    recurs = [rest[column].duplicated().any() for column in rest]
    return any(recurs) and not any(first[column] in set(rest[column]) for column in rest)


def _kind(values: pd.Series) -> str:
    """ "time" or "number" if all values are such, else ""."""
    import pandas as pd
    from pandas.tseries.api import guess_datetime_format

    if pd.api.types.is_datetime64_any_dtype(values):
        return "time"
    if values.map(lambda value: hasattr(value, "__len__") and not isinstance(value, str)).any():
        return ""
    text = values.dropna().astype(str).str.strip()
    text = text[text != ""]
    numbers = pd.to_numeric(text, errors="coerce")
    if not len(text):
        return ""
    if numbers.notna().all():
        return "time" if numbers.min() >= _EPOCH else "number"
    return "time" if all(map(guess_datetime_format, text)) else ""


def _guess(table: Table, required: int, has_header: bool) -> list[int]:
    """The columns that may be meant: the first ones, and one of times."""
    sample = table.frame.iloc[int(has_header and table.names is None) :][:_SAMPLE]
    times = [column for column in sample if _kind(sample[column]) == "time"]
    others = [column for column in sample if column not in times]
    if required == 2 and len(others) >= required and times:
        return others[:required] + times[:1]
    if required == 2 and len(times) > 1 and times[-1] >= required:  # numbers of users are large too
        return [0, 1, times[-1]]
    return list(range(min(required, len(sample.columns))))


def _each_item(table: Table, rows: pd.DataFrame) -> tuple[pd.DataFrame, bool]:
    """A row for each item of a user, where a row has them all."""
    if "item" not in rows:
        return rows, False
    is_list = rows["item"].map(lambda value: hasattr(value, "__len__") and not _is_name(value))
    if not is_list.any():
        return rows, False
    if not is_list.all():
        table.fail(rows.index[~is_list][0], "every row must have a list of items.", "one without")
    repeated = rows["user"].duplicated()
    if repeated.any():
        row = rows.index[repeated][0]
        rule = "each user must have one line (`layout=columns` reads a line for each event)."
        table.fail(row, rule, f"a second line of user {rows['user'][row]!r}")
    rows = rows[rows["item"].map(len) > 0]
    listed = ["item"]
    if "time" in rows and len(rows) and hasattr(rows["time"].iloc[0], "__len__"):
        listed += ["time"] * (not _is_name(rows["time"].iloc[0]))
    if len(listed) > 1:
        sizes = [rows[name].map(len) for name in listed]
        unequal = rows.index[sizes[0] != sizes[1]]
        if len(unequal):
            table.fail(unequal[0], "a list of times must be as long as that of items.", "another")
    return rows.explode(listed), True


def _is_name(value: Any) -> bool:
    return isinstance(value, str | bytes | dict)


def _without_missing(
    table: Table, rows: pd.DataFrame, missing: str, repairs: Counter
) -> pd.DataFrame:
    """Rows that have all values, users and items as strings."""
    names = {c: _strings(rows[c]) for c in rows if c != "time"}
    times = {"time": rows["time"]} if "time" in rows else {}
    absent = rows.isna().any(axis=1).to_numpy()
    for values in (*names.values(), *times.values()):
        absent = absent | values.isin(_ABSENT).to_numpy()
    repairs["missing_rows"] += int(absent.sum())
    if absent.any() and missing == "error":
        row = rows.index[absent][0]
        needed = ", ".join(rows.columns[:-1]) + f" and {rows.columns[-1]}"
        rule = f"a row must have {needed} (`missing=drop` leaves out the {absent.sum():,} without)."
        table.fail(row, rule, table.shown(row))
    return rows.assign(**names)[~absent]


def _strings(values: pd.Series) -> pd.Series:
    """Names as strings, on one line; whole numbers have no point, whatever their type."""
    import pandas as pd

    if pd.api.types.is_float_dtype(values) and (values.dropna() % 1 == 0).all():
        values = values.astype("Int64")
    elif values.map(lambda value: isinstance(value, bytes)).any():
        values = values.map(lambda v: v.decode("utf-8", "replace") if isinstance(v, bytes) else v)
    text = values.astype(str).str.strip()
    return text.str.replace(r"\s*[\r\n]+\s*", " ", regex=True)


def _times(table: Table, values: pd.Series, date_format: str) -> tuple[pd.Series, str]:
    """Times to sort by, and what they are."""
    import numpy as np
    import pandas as pd

    if pd.api.types.is_datetime64_any_dtype(values):
        return _as_dates(values), "dates"
    text = values.astype(str).str.strip()
    numbers = pd.to_numeric(text, errors="coerce")
    if not date_format and numbers.notna().any():
        wrong = ~np.isfinite(numbers.astype(float))
        if wrong.any():
            row = values.index[wrong][0]
            table.fail(row, "a time must be a finite number, as others are.", text[wrong].iloc[0])
        return numbers, "numbers"
    form = date_format or _date_format(table, text)
    dates = pd.to_datetime(text, format=form, errors="coerce", utc=True)
    if not date_format and dates.isna().any():
        is_day_first = form is not None and form.startswith("%d")
        rest = text[dates.isna()]
        mixed = {"format": "mixed", "dayfirst": is_day_first, "errors": "coerce", "utc": True}
        dates = dates.fillna(pd.to_datetime(rest, **mixed))
    if dates.isna().any():
        wrong = dates.isna().to_numpy()
        what = f"of the form {date_format}" if date_format else "or a date"
        rule = f"a time must be a number, or a date as 2024-05-31 12:00 (`date_format` says {form})."
        rule = rule if not date_format else f"a time must be {what}."
        table.fail(values.index[wrong][0], rule, text[wrong].iloc[0])
    return _as_dates(dates), f"dates as {form}" if form else "dates"


def _as_dates(values: pd.Series) -> pd.Series:
    return values.dt.tz_convert(None) if values.dt.tz is not None else values


def _date_format(table: Table, text: pd.Series) -> str | None:
    """The format of dates; an error if day and month could be taken for each other."""
    from pandas.tseries.api import guess_datetime_format

    pairs = text.str.extract(r"^(\d{1,2})[/.-](\d{1,2})[/.-]\d{2,4}\b").astype(float)
    forms = [guess_datetime_format(text.iloc[0], dayfirst=day_first) for day_first in (False, True)]
    if pairs[0].isna().all():
        return forms[0]
    day_first, month_first = pairs[0] > 12, pairs[1] > 12
    if day_first.any() == month_first.any():
        flags = " or ".join(f"`date_format={shlex.quote(form)}`" for form in forms if form)
        row = text.index[(day_first | ~month_first).to_numpy()][0]
        table.fail(row, f"day or month may come first: {flags}.", text[row])
    return forms[int(day_first.any())]


def _understood(
    table: Table, roles: Sequence[Role], chosen: list[int], has_header: bool, how: str
) -> str:
    """How the columns were taken, as a person reads it."""
    names = table.names or (list(table.frame.iloc[0]) if has_header else None)
    shown = [f"column {c}" if names is None else f"{names[c]!s}" for c in chosen]
    pairs = [f"{role.name} = {name}" for role, name in zip(roles, shown, strict=False)]
    pairs[-1] += f" ({how})" if how else ""
    header = "" if table.names else " with a header" if has_header else " without a header"
    order = "" if how or roles[-1] is not TIME else "; events in the order of the file"
    return f"{', '.join(pairs)}; {table.form}{header}{order}"



"""Files of rows as tables, by pandas: CSV, JSON lines, Parquet, and lines of a user's items.

What a file is follows from its content, whatever its name.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from softbench.datasets.lines import BROKEN, DataFileError, fail, filled_lines, open_bytes

if TYPE_CHECKING:
    import pandas as pd

LAYOUTS = ("auto", "columns", "lines")
EMPTY = "the file must hold rows, one in a line."
_SEPARATORS = {"\t": "tabs", "::": "`::`", ",": "commas", ";": "semicolons", "|": "bars"}
_INSIDE = "\x1f"  # instead of a separator of two: pandas' quick parser takes one
_SAMPLE = 200  # lines by which the separator is recognised
_ARCHIVES = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")


@dataclass
class Table:
    """The rows of a file, before its columns have roles.

    Attributes:
        path: of the file.
        frame: columns 0, 1, ...; values as in the file. The index is the number of each row, from
            1: in a CSV file with those before it, else of its line.
        names: of the columns, or None where the first row may hold them.
        form: what the file is.
    """

    path: Path
    frame: pd.DataFrame
    names: list[str] | None
    form: str

    def fail(self, row: int, rule: str, received: object) -> NoReturn:
        """Raises `DataFileError` for a row, by its number in the index."""
        if self.form == "Parquet":
            raise DataFileError(f"{self.path}: row {row}: {rule} Received: {received!s:.120}")
        before = self.frame.loc[: row - 1]  # quoted fields may have line breaks
        breaks = sum(int(before[c].str.count("\n").sum()) for c in before if self.form[:3] == "CSV")
        fail(self.path, int(row) + breaks, rule, str(received))


def open_table(path: Path, repairs: Counter, layout: str = "auto") -> Table:
    """Reads a file, compressed or not.

    Args:
        path: of the file.
        repairs: counts `blank_lines`.
        layout: "lines" takes a text for lines `user item item ...`, "columns" for columns; "auto"
            takes lines without separators for columns if they are equally long and a first word
            recurs.

    Raises:
        DataFileError: naming the line where the file has no such form.
        ImportError: for Parquet without pyarrow.
    """
    if layout not in LAYOUTS:
        raise ValueError(f"`layout` must be one of: {', '.join(LAYOUTS)}. Received: {layout!r}")
    try:
        with open_bytes(path) as file:
            start = file.read(4096)
        text = start.removeprefix(b"\xef\xbb\xbf").lstrip()
        if start.startswith(b"PAR1"):
            table = _parquet(path)
        elif start.startswith(_ARCHIVES):
            fail(path, 1, "the file must be text or Parquet.", "an Excel workbook or an archive")
        elif text.startswith(b"{"):
            table = _json_lines(path, repairs)
        elif re.match(rb"\[\s*\{", text):
            fail(path, 1, "JSON must have one object a line (`jq -c '.[]'` does it).", "an array")
        elif layout != "lines" and (separator := _separator(path)):
            table = _delimited(path, separator, repairs)
        else:
            table = _words(path, layout, repairs)
    except BROKEN as error:
        fail(path, 1, "the compressed file must be whole.", str(error))
    if not len(table.frame):
        fail(path, 1, EMPTY, "an empty file")
    return table


def _parquet(path: Path) -> Table:
    import pandas as pd

    try:
        frame = pd.read_parquet(path, engine="pyarrow")
    except ImportError:
        rule = "`path`: Parquet needs pyarrow: pip install 'softbench[data]'."
        raise ImportError(f"{rule} Received: {path.name}") from None
    except (ValueError, OSError) as error:
        raise DataFileError(f"{path}: the Parquet file must be whole. Received: {error}") from None
    if any(frame.index.names) or not pd.api.types.is_integer_dtype(frame.index):
        frame = frame.reset_index()
    names = [str(name) for name in frame]
    frame.index, frame.columns = range(1, len(frame) + 1), range(len(names))
    return Table(path, frame, names, "Parquet")


def _json_lines(path: Path, repairs: Counter) -> Table:
    import pandas as pd

    records = {}
    for line, text in filled_lines(path, repairs, EMPTY):
        try:
            records[line] = json.loads(text)
        except ValueError:
            records[line] = None
        if not isinstance(records[line], dict):
            fail(path, line, "each line must be one JSON object.", text)
    frame = pd.DataFrame(list(records.values()), index=list(records))
    names = [str(name) for name in frame]
    frame.columns = range(len(names))
    return Table(path, frame, names, "JSON lines")


def _words(path: Path, layout: str, repairs: Counter) -> Table:
    """Lines of words between blanks."""
    import pandas as pd

    lines = {line: text.split() for line, text in filled_lines(path, repairs, EMPTY)}
    words = list(lines.values())
    repeats = len({row[0] for row in words}) < len(words)
    if layout == "columns" or (layout == "auto" and repeats and len(set(map(len, words))) == 1):
        frame = pd.DataFrame(words, index=list(lines), dtype=str)
        return Table(path, frame, None, "columns between blanks")
    users = set()
    for line, (user, *_) in lines.items():
        if user in users:
            rule = "each user must have one line (`layout=columns` reads a line for each event)."
            fail(path, line, rule, f"a second line of user {user!r}")
        users.add(user)
    frame = pd.DataFrame([(row[0], row[1:]) for row in words], index=list(lines))
    return Table(path, frame, ["user", "items"], "lines of a user and the user's items")


def _text(path: Path) -> io.TextIOWrapper:
    return io.TextIOWrapper(open_bytes(path), "utf-8-sig", newline="")


def _separator(path: Path) -> str | None:
    """That which makes most lines equally long, and these longest; None: there is none."""
    with _text(path) as file:
        try:
            lines = [line for line in itertools.islice(file, _SAMPLE) if line.strip()]
        except UnicodeDecodeError:
            _fail_on_bytes(path)
    scores = {}
    for separator in _SEPARATORS:
        rows = csv.reader((line.replace(separator, _INSIDE) for line in lines), delimiter=_INSIDE)
        width, count = Counter(map(len, rows)).most_common(1)[0] if lines else (1, 0)
        scores[separator] = (count, width) if width > 1 else (0, 0)
    best = max(scores, key=scores.__getitem__)
    return best if any(scores[best]) else None


def _fail_on_bytes(path: Path) -> NoReturn:
    """Raises the `DataFileError` of the first line that is not UTF-8."""
    for _ in filled_lines(path, Counter(), EMPTY):
        pass
    fail(path, 1, "the text must be UTF-8.", "another encoding")


def _delimited(path: Path, separator: str, repairs: Counter) -> Table:
    import pandas as pd

    reading: dict[str, Any] = {"header": None, "index_col": False, "skip_blank_lines": False}
    reading |= {"dtype": str, "na_filter": False, "skipinitialspace": True}
    with _text(path) as file:
        try:
            if len(separator) == 1:
                frame = pd.read_csv(file, sep=separator, **reading)
            else:
                text = io.StringIO(file.read().replace(separator, _INSIDE))
                frame = pd.read_csv(text, sep=_INSIDE, **reading)
        except UnicodeDecodeError:
            _fail_on_bytes(path)
        except pd.errors.ParserError as error:
            rule = "rows must have as many fields as the first one, and quotes must end."
            numbered = re.search(r"(line|row) (\d+)", str(error))  # rows are counted from 0
            line = int(numbered[2]) + (numbered[1] == "row") if numbered else 1
            fail(path, line, rule, str(error).split("error: ")[-1].strip())
    frame.index += 1
    maybe = frame[frame[0].isna() | (frame[0] == "")]
    blank = maybe.index[(maybe.isna() | (maybe == "")).all(axis=1)]
    repairs["blank_lines"] += len(blank)
    return Table(
        path, frame.drop(blank) if len(blank) else frame, None, f"CSV with {_SEPARATORS[separator]}"
    )

"""Times in a column: recognised, and read as what sorts."""

from __future__ import annotations

import shlex
import warnings
from typing import TYPE_CHECKING

import numpy as np

from softbench.datasets.tables import Table

if TYPE_CHECKING:
    import pandas as pd

_SAMPLE = 200  # rows by which times are recognised
# Numbers that are times: days as 20240531; since 1970 seconds, and thousandths of these and so on.
_CLOCKS = ((19e6, 21.1e6), *((10.0**e, 5 * 10.0 ** (e + 1)) for e in (8, 11, 14, 17)))


def kind_of(values: pd.Series) -> str:
    """ "time" or "number" if the first values are such, else ""."""
    import pandas as pd

    if pd.api.types.is_datetime64_any_dtype(values):
        return "time"
    text = values.iloc[:_SAMPLE].dropna().astype(str).str.strip()
    text = text[text != ""]
    numbers = pd.to_numeric(text, errors="coerce")
    if not len(text):
        return ""
    if numbers.notna().all():
        is_time = any(low <= numbers.min() and numbers.max() <= high for low, high in _CLOCKS)
        return "time" if is_time else "number"
    return "time" if all(map(_format, text)) else ""


def parsed(table: Table, values: pd.Series, date_format: str) -> tuple[pd.Series, str]:
    """Times to sort by, and what they are."""
    import pandas as pd

    if pd.api.types.is_datetime64_any_dtype(values):
        return _without_zone(values), "dates"
    text = values if pd.api.types.is_numeric_dtype(values) else values.astype(str)
    numbers = pd.to_numeric(text, errors="coerce")
    if not date_format and numbers.notna().any():
        times, wrong, how = numbers, ~np.isfinite(numbers.astype(float)), "numbers"
        rule = "a time must be a finite number, as others are."
    else:
        text = text.astype(str).str.strip()
        form = date_format or _date_format(table, text)
        times = pd.to_datetime(text, format=form, errors="coerce", utc=True)
        if not date_format and times.isna().any():  # not all are of the form of the first
            first = bool(form) and form.startswith("%d")
            rest = text[times.isna()]
            more = pd.to_datetime(rest, format="mixed", dayfirst=first, errors="coerce", utc=True)
            times = times.fillna(more)
        times, wrong, how = _without_zone(times), times.isna(), f"dates, {form or 'mixed'}"
        rule = (
            f"a time must be a number or a date (`date_format={shlex.quote(form or '%Y-%m-%d')}`)."
        )
    if wrong.any():
        table.fail(values.index[wrong][0], rule, text[wrong].iloc[0])
    return times, how


def _without_zone(values: pd.Series) -> pd.Series:
    return values.dt.tz_convert(None) if values.dt.tz is not None else values


def _date_format(table: Table, text: pd.Series) -> str | None:
    """The format of dates; an error if day and month could be taken for each other."""
    pairs = text.str.extract(r"^(\d{1,2})[/.-](\d{1,2})[/.-]\d{2,4}\b").astype(float)
    day_first, month_first = (pairs > 12).T.to_numpy()
    if pairs[0].notna().any() and day_first.any() == month_first.any():
        forms = (_format(text.iloc[0], day_first=first) for first in (False, True))
        flags = " or ".join(f"`date_format={shlex.quote(form)}`" for form in forms if form)
        row = text.index[day_first | ~month_first][0]
        table.fail(row, f"day or month may come first: {flags}.", text[row])
    return _format(text.iloc[0], day_first=bool(day_first.any()))


def _format(text: str, day_first: bool = False) -> str | None:
    """The format of a date by pandas; None of what is none."""
    from pandas.tseries.api import guess_datetime_format

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that another order of day and month would fit
        return guess_datetime_format(text, dayfirst=day_first)

"""Tables: texts for a page, and the numbers behind them for a CSV file. Needs no Keras."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import pandas as pd
import tabulate  # noqa: F401, pandas writes Markdown by it; missed here, before any page
from scipy import stats

from softbench.report.markdown import Markdown, cell

Columns = Mapping[str, str | tuple]


class Table(NamedTuple):
    """A titled table.

    Attributes:
        title: its heading.
        page: its texts, which are shown literally but for those that are `Markdown`.
        data: its numbers, one column for each quantity; None without a CSV file.
        words: text between title and table, in Markdown.
        records: links to the records of each row, in Markdown; none where rows share records.
    """

    title: str
    page: pd.DataFrame
    data: pd.DataFrame | None = None
    words: str = ""
    records: Sequence[str] = ()

    @property
    def header(self) -> list[str]:
        """The texts above the columns."""
        return list(self.page.columns)

    @property
    def rows(self) -> list[list[str]]:
        """The texts of the rows."""
        return self.page.to_numpy().tolist()

    def markdown(self, links: bool = False) -> str:
        """Returns the table in Markdown, columns with numbers aligned to the right.

        Args:
            links: whether a last column has the records of each row.
        """
        shown = self.page
        if links and self.records:
            shown = shown.assign(records=pd.Series(self.records, shown.index, dtype=object))
        columns = [shown.iloc[:, i] for i in range(shown.shape[1])]
        right = [i > 0 and any(map(_is_number, column)) for i, column in enumerate(columns)]
        align = ["right" if numbers else "left" for numbers in right]
        page = shown.astype(object).map(cell)
        page.columns = [cell(Markdown(heading)) for heading in shown.columns]
        return page.to_markdown(index=False, disable_numparse=True, colalign=align)

    def csv(self) -> str:
        """Returns the numbers as a CSV file."""
        return self.data.convert_dtypes().to_csv(
            index=False, float_format="%.7g", lineterminator="\n"
        )


def _is_number(text: str) -> bool:
    return text[:1].isdigit() or (text[:1] in "+-" and text[1:2].isdigit())


def table(title: str, frame: pd.DataFrame, columns: Columns) -> Table:
    """Returns a table of the columns that `show` reads, the CSV file with their numbers."""
    used = [name for what in columns.values() for name in _split(what)[1]]
    return Table(title, show(frame, columns), frame.reindex(columns=list(dict.fromkeys(used))))


def show(frame: pd.DataFrame, columns: Columns) -> pd.DataFrame:
    """Returns the texts of a page.

    Args:
        frame: the numbers.
        columns: {heading: column of `frame`, or (format, *columns)}. A format is one of Python's,
            which shows "-" where a number is missing, or a function of the columns' values. A
            column that `frame` lacks is missing in every row.
    """
    texts = {}
    for heading, what in columns.items():
        form, names = _split(what)
        rows = frame.reindex(columns=names).itertuples(index=False, name=None)
        texts[heading] = [_fill(form, row) for row in rows]
    return pd.DataFrame(texts, dtype=object)


def _split(what: str | tuple) -> tuple[str | Callable, list[str]]:
    return (text, [what]) if isinstance(what, str) else (what[0], list(what[1:]))


def _fill(form: str | Callable, values: tuple) -> str:
    if callable(form):
        return form(*values)
    return "-" if any(map(pd.isna, values)) else form.format(*values)


def growth(frame: pd.DataFrame, value: str, what: str | tuple, heading: str) -> pd.DataFrame:
    """Returns texts of methods against n, as these appear, and the last value over the first.

    Args:
        frame: with `method`, `num_classes` and `value`.
        value: the column of the numbers.
        what: their texts, see `show`.
        heading: with `{}` for n.
    """
    texts = frame.assign(text=show(frame, {"text": what})["text"].to_numpy())
    wide = texts.pivot(index="method", columns="num_classes", values=["text", value])
    wide = wide.reindex(frame["method"].unique())
    page = wide["text"].fillna("-").rename(columns=lambda n: heading.format(f"{n:,}"))
    numbers = wide[value].astype(float)
    return page.assign(growth=numbers.iloc[:, -1] / numbers.iloc[:, 0])


def number(value: float) -> str:
    """Returns four significant digits, whole numbers from 1000 on with separators."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def text(value: object) -> str:
    """Returns a number by `number`, a text as it is, and "-" for what is missing."""
    if isinstance(value, str):
        return value
    return "-" if pd.isna(value) else number(value)


def or_infinite(value: float | None) -> str:
    """Returns a number by `number`; a record spells infinity as null."""
    return "inf" if pd.isna(value) else number(value)


def percent(value: float | None) -> str:
    """Returns a share in percent; "-" for what is missing."""
    return "-" if pd.isna(value) else f"{100 * value:.2f} %"


def quantiles(median: float, low: float, high: float) -> str:
    """Returns `1.5 (1.4-1.6)`; "-" when it was not measured."""
    return "-" if pd.isna(median) else f"{number(median)} ({number(low)}-{number(high)})"


def half_interval(values: Sequence[float]) -> float:
    """Returns half of the 95 % interval of the mean, by Student's t; 0 for one value."""
    if len(values) < 2:
        return 0.0
    return float(stats.t.ppf(0.975, len(values) - 1) * stats.sem(values))


def ordered(plan: Mapping, names: Iterable[str]) -> list[str]:
    """Returns names in the order of the config's methods, then others by name."""
    names = set(names)
    listed = [name for name in plan["methods"] if name in names]
    return [*listed, *sorted(names - set(listed))]


def in_order(plan: Mapping, frame: pd.DataFrame, column: str = "method") -> pd.DataFrame:
    """Returns the rows in the order of `ordered`, those of one name as they were."""
    order = ordered(plan, frame[column])
    return frame.sort_values(column, key=lambda names: names.map(order.index), kind="stable")

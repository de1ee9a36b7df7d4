"""A page on which a reader compares methods: quality against price, and a table. Needs no Keras.

The reader picks an experiment's data set, a backend, a measure of quality, a price and methods; a
plot shows them with the frontier, a table sorts them. The same page is one file for a reader's
records, which loads nothing and runs its own scripts alone (`document`), and a part of a page of
the site (`fragment`).
"""

import base64
import functools
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from softbench.report import colours, extra, measures
from softbench.report.frame import Frame
from softbench.report.intervals import interval

_PRICES = ("price", "step_ms")
_NAMED = {"group", "dataset", "backend", "variant", "method"}  # of a frame's columns
_MOST = len(colours.LOOKS)
_FILES = Path(__file__).with_name("templates")
_GROUP = ["experiment", "problem"]
# Markers of `colours` as paths of an SVG picture, in a square from -1 to 1.
_PATHS = {
    "o": "M0.9,0A0.9,0.9,0,1,1,-0.9,0A0.9,0.9,0,1,1,0.9,0Z",
    "s": "M-0.8,-0.8H0.8V0.8H-0.8Z",
    "D": "M0,-1L0.8,0L0,1L-0.8,0Z",
    "^": "M0,-1L0.95,0.8H-0.95Z",
    "v": "M0,1L0.95,-0.8H-0.95Z",
    "<": "M-1,0L0.8,-0.95V0.95Z",
    ">": "M1,0L-0.8,-0.95V0.95Z",
    "P": "M-0.35,-1H0.35V-0.35H1V0.35H0.35V1H-0.35V0.35H-1V-0.35H-0.35Z",
    "X": "M0,-0.5L0.5,-1L1,-0.5L0.5,0L1,0.5L0.5,1L0,0.5L-0.5,1L-1,0.5L-0.5,0L-1,-0.5L-0.5,-1Z",
    "d": "M0,-1L0.55,0L0,1L-0.55,0Z",
    "*": "M0,-1L0.2,-0.3H0.95L0.4,0.1L0.6,0.8L0,0.4L-0.6,0.8L-0.4,0.1L-0.95,-0.3H-0.2Z",
    "p": "M0,-1L0.95,-0.3L0.6,0.85H-0.6L-0.95,-0.3Z",
}


class Column(NamedTuple):
    """A column of numbers that the reader can pick.

    Attributes:
        words: what it is, with its unit.
        role: "quality", "price", or "" of what is shown in the table alone.
        lower: whether less is better; None where neither is.
        log: whether its axis is logarithmic.
    """

    words: str
    role: str = "quality"
    lower: bool | None = False
    log: bool = False


def document(runs: pd.DataFrame, columns: Mapping[str, Column]) -> str:
    """Returns the page as one HTML file; see `fragment` for the arguments."""
    scripts = [bundle(), script()]
    return _template("document").render(
        fragment=fragment(runs, columns),
        style=style(),
        scripts=scripts,
        # The page's policy names what may run: neither a record's text nor `eval`.
        policy=" ".join(f"'{_digest(text)}'" for text in scripts),
    )


def fragment(runs: pd.DataFrame, columns: Mapping[str, Column]) -> str:
    """Returns the page without its style and its scripts: HTML to be put into another page.

    Args:
        runs: a row for each run: experiment, problem (data set and model), backend, method, seed,
            and numbers. Rows of one method differ in the seed alone.
        columns: {column of `runs`: what it is}, in the order in which the reader is offered them.
            Those without a number are left out.
    """
    columns = {name: what for name, what in columns.items() if runs[name].notna().any()}
    data = {
        "plot": plot(),
        "columns": {name: what._asdict() for name, what in columns.items()},
        "groups": [
            {"experiment": experiment, "problem": problem, "rows": _rows(group, list(columns))}
            for (experiment, problem), group in runs.groupby(_GROUP, sort=False)
        ],
    }
    return _template("explorer").render(data=data)


def style() -> str:
    """Returns the style sheet of a fragment."""
    return (_FILES / "explorer.css").read_text()


def script() -> str:
    """Returns the script that brings the fragments of a page to life, to be run behind them."""
    return (_FILES / "explorer.js").read_text()


@functools.cache  # a second and a half
def bundle() -> str:
    """Returns the script that draws: Vega, Vega-Lite and vega-embed, as vl-convert ships them."""
    with extra("the page"):
        import vl_convert
    source = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return source.replace("</script", "<\\/script")


def plot() -> dict:
    """Returns the plot in Vega-Lite; the script puts in the rows, the axes' titles and scales."""
    with extra("the page"):
        import altair as alt
    base = alt.Chart(alt.NamedData("rows")).encode(
        x=alt.X("x:Q").axis(tickCount=5), y=alt.Y("y:Q").axis(tickCount=6)
    )
    line = base.transform_filter("datum.frontier").encode(order="x:Q")
    line = line.mark_line(strokeDash=[5, 4], color="#8a8a94", strokeWidth=1.5)
    seeds = base.mark_rule(strokeWidth=1.5, clip=True).encode(
        y="low:Q", y2="high:Q", color=alt.Color("colour:N").scale(None)
    )
    points = base.mark_point(size=110, strokeWidth=1.8, opacity=1).encode(
        shape=alt.Shape("path:N").scale(None),
        stroke=alt.Stroke("colour:N").scale(None).legend(None),
        fill=alt.Fill("fill:N").scale(None).legend(None),
        tooltip=[alt.Tooltip(f"{name}:N", title=name) for name in ("method", "quality", "price")],
    )
    names = base.transform_filter("datum.named")
    names = names.mark_text(dy=-13, limit=180, fontSize=12, color="currentColor").encode(
        text="method:N"
    )
    chart = alt.layer(line, seeds, points, names).properties(width="container", height=380)
    chart = chart.configure(background="transparent", font="inherit")
    chart = chart.configure_view(stroke=None).configure_axis(
        labelColor="currentColor",
        titleColor="currentColor",
        domainColor="#8a8a94",
        tickColor="#8a8a94",
        gridColor="#8a8a9440",
        labelFontSize=12,
        titleFontSize=13,
        titleFontWeight="normal",
        titlePadding=10,
    )
    return chart.to_dict()


def _rows(runs: pd.DataFrame, columns: Sequence[str]) -> list[dict]:
    """The methods of a problem: on each backend their means over seeds, and half the intervals."""
    marks = _marks(list(runs["method"].unique()))
    rows = []
    for (backend, method), seeds in runs.groupby(["backend", "method"], sort=False):
        values = {name: interval(seeds[name]) for name in columns}
        rows.append(
            {
                "backend": backend,
                "method": method,
                "seeds": len(seeds),
                "values": {
                    name: [value.mean, value.half if value.count > 1 else None]
                    for name, value in values.items()
                    if value.count
                },
                **marks[method],
            }
        )
    return rows


def _marks(methods: Sequence[str]) -> dict[str, dict]:
    """How the plot shows each method: the looks of all pictures, then those again, but open."""
    marks = {}
    for start in range(0, len(methods), _MOST):
        for method, look in colours.styles(methods[start : start + _MOST]).items():
            colour, fill = look["color"], "transparent" if start else look["color"]
            marks[method] = {"colour": colour, "path": _PATHS[look["marker"]], "fill": fill}
    return marks


def _template(name: str):
    with extra("the page"):
        import jinja2
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FILES), autoescape=True, undefined=jinja2.StrictUndefined
    )
    environment.policies["json.dumps_kwargs"] = {"sort_keys": False}  # options in their order
    return environment.get_template(f"{name}.html")


def _digest(source: str) -> str:
    """The hash of a script as a Content-Security-Policy names it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()


def runs_of(frames: Iterable[Frame]) -> tuple[pd.DataFrame, dict[str, Column]]:
    """Returns the runs of experiments, and the columns of their pages, as `fragment` takes them.

    Times that other programs made longer are left out. Where rows of one name differ in more than
    the seed, the name says on which device they are.
    """
    tables = [pd.DataFrame(columns=[*_GROUP, "backend", "method", "seed"])]
    columns = {}
    for frame in frames:
        view, runs = frame.view, frame.runs[frame.runs["status"] == "ok"]
        names = list(dict.fromkeys([*(view.columns or frame.plan["columns"]), *_PRICES]))
        names = [name for name in names if name in runs]
        columns |= {name: _column(name) for name in names}
        values = runs[names].apply(pd.to_numeric, errors="coerce")
        timed = [name for name in names if measures.of(name).of_machine]
        values[timed] = values[timed].mask(runs["shared_clock"].astype(bool))
        apart = [key for key in view.keys if key not in _NAMED]
        problem = runs["group"].astype(str)
        for key in apart:
            problem += ", " + measures.words(key) + " " + runs[key].astype(str)
        rows = runs[["backend", "seed", "method"]].assign(problem=problem, experiment=frame.name)
        several = runs.groupby([problem, "backend", "method"])["variant"].transform("nunique") > 1
        device = rows["method"] + ", " + runs["device"].astype(str)
        rows["method"] = rows["method"].mask(several, device)
        tables.append(pd.concat([rows, values], axis=1))
    runs = pd.concat([table for table in tables if len(table)] or tables, ignore_index=True)
    return runs.reindex(columns=[*tables[0], *columns]), columns


def _column(name: str) -> Column:
    measure = measures.of(name)
    quality = measures.is_quality(name) and not measure.exact and name not in _PRICES
    role = "price" if name in _PRICES else "quality" if quality else ""
    lower = measures.lower_is_better(name) if measure.better else None
    return Column(measures.words(name), role, True if role == "price" else lower, measure.log)

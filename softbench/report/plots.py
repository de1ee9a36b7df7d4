"""How pictures look: one style, SVG; see `softbench.report.colours` for methods."""

import hashlib
import io
import itertools
import json
from collections.abc import Mapping

from softbench.report import colours, extra
from softbench.report.markdown import one_line

VERSION = 6  # raise it when a picture comes to look otherwise: committed ones are then out of date
BOUNDS = ("oracle", "class frequencies")  # names of `levels` that all lines lie between
INK, GRID, PAPER = "#1d1d1f", "#d9d9de", "#fefefe"
_RC = {
    "axes.edgecolor": INK,
    "axes.facecolor": PAPER,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 12,
    "figure.facecolor": PAPER,
    "font.size": 11,
    "grid.color": GRID,
    "legend.edgecolor": GRID,
    "legend.facecolor": PAPER,
    "legend.fontsize": 9,
    "svg.fonttype": "none",
    "svg.hashsalt": "softbench",
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


def digest(caption: str, data: Mapping) -> str:
    """Returns a hash of all that a picture shows; its file carries it: a stale one is noticed."""
    styles = colours.styles(data["lines"], data.get("of"))
    return hashlib.sha256(json.dumps([VERSION, caption, data, styles]).encode()).hexdigest()


def svg(caption: str, data: Mapping) -> bytes:
    """Returns a picture, the same for the same data, with `digest` as its description.

    Args:
        caption: the title.
        data: {"x", "y": labels of the axes, "log": those of "xy" that are logarithmic, "lines":
            {name: [[x, y], ...]}, "marks": whether their points are not joined, "of": {name:
            method} of names that are no methods', if any, "dashed": {name: [[x, y], ...]} of lines
            that are no measurements, if any, "levels": {name: y} of horizontal lines, if any}. A
            line of one point is a mark; [x, y, half of the interval] gives a bar.

    Raises:
        ConfigError: when Matplotlib is not installed.
    """
    with extra("a picture"):
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    with matplotlib.rc_context(_RC):
        figure = Figure(figsize=(8, 4.6), dpi=110, layout="constrained")
        FigureCanvasAgg(figure)
        _draw(figure, caption, data)
        metadata = {"Creator": None, "Date": None, "Description": digest(caption, data)}
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", metadata=metadata)
    return buffer.getvalue()


def _plain(text: str) -> str:
    """A text that Matplotlib shows as it is: no mathematics, no name hidden from the legend."""
    text = one_line(text).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def _draw(figure: object, caption: str, data: Mapping) -> None:
    axes, dashed = figure.add_subplot(), data.get("dashed", {})
    styles = colours.styles(data["lines"], data.get("of"))
    bars = []
    guide = {"color": INK, "linestyle": (0, (3, 2)), "linewidth": 1, "zorder": 1.5}
    for name, line in {**dashed, **data["lines"]}.items():
        style = guide if name in dashed else styles[name] | {"markersize": 5}
        if len(line) == 1 or data.get("marks"):
            style = style | {"markersize": 8, "linestyle": "none"}
        x, y, *half = zip(*line, strict=True)
        axes.plot(x, y, label=_plain(name), **style)
        if half:
            bars.append((x, y, *half, style["color"]))
    axes.set_title(_plain(caption), loc="left")
    axes.set(xlabel=_plain(data["x"]), ylabel=_plain(data["y"]))
    for axis in data["log"]:
        getattr(axes, f"set_{axis}scale")("log")
    axes.margins(y=0.12)
    axes.autoscale_view()
    axes.autoscale(False)  # the axis is that of the lines: a bar may be cut off
    for *bar, colour in bars:
        axes.errorbar(*bar, fmt="none", ecolor=colour, capsize=2, linewidth=0.9)
    _draw_levels(axes, data.get("levels", {}))
    whole = all(float(point[0]).is_integer() for line in data["lines"].values() for point in line)
    if whole and "x" not in data["log"]:
        axes.locator_params("x", integer=True)
    for name in "xy":
        _label(getattr(axes, f"{name}axis"), name in data["log"])
    axes.grid(which="major", linewidth=0.7)
    axes.set_axisbelow(True)
    if len(data["lines"]) > 6:
        figure.legend(loc="outside right center", frameon=False)
    else:
        axes.legend(loc="best")


def _draw_levels(axes: object, levels: Mapping[str, float]) -> None:
    """Horizontal lines; one far from all that was measured is named with its value alone.

    With both `BOUNDS` the axis ends at them.
    """
    low, high = axes.get_ylim()
    is_log = axes.get_yscale() == "log"
    reach = high / low if is_log else high - low
    half = reach**0.5 if is_log else reach / 2
    outer = (low / half, high * half) if is_log else (low - half, high + half)
    dashes = itertools.cycle(((0, (3, 2)), (0, (1, 1.5))))
    for name, value in levels.items():
        inside = outer[0] <= value <= outer[1]
        label = _plain(f"{name}: {value:.4g}" + ("" if inside else ", outside"))
        axes.plot(
            [0, 1],
            [value] * 2,
            transform=axes.get_yaxis_transform(),
            color=INK,
            linestyle=next(dashes),
            linewidth=1.1,
            label=label,
            zorder=1.5,
            scaley=False,
        )
        if inside:
            edge = (value / reach**0.03, value * reach**0.03)
            edge = edge if is_log else (value - 0.03 * reach, value + 0.03 * reach)
            low, high = min(low, edge[0]), max(high, edge[1])
    bounds = [levels[name] for name in BOUNDS if name in levels]
    if len(bounds) == 2:  # what is beyond them, as bars and first points may be, is cut off
        margin = 0.08 * (max(bounds) - min(bounds))
        low, high = max(low, min(bounds) - margin), min(high, max(bounds) + margin)
    axes.set_ylim(low, high)


def _label(axis: object, is_log: bool) -> None:
    """Numbers written out, and more of them where a log axis spans less than two decades."""
    from matplotlib import ticker

    low, high = axis.get_view_interval()
    if is_log and high < 100 * low:
        subs = (1, 2, 5) if high > 10 * low else (1, 1.5, 2, 3, 5, 7)
        if high < 3 * low:
            subs = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8)
        axis.set_major_locator(ticker.LogLocator(subs=subs))
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_minor_formatter(ticker.NullFormatter())

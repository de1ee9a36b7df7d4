"""How plots look: one style, SVG and PNG; see `softbench.report.colours` for methods."""

import hashlib
import io
import itertools
import json
from collections.abc import Mapping

from softbench.report import colours, extra
from softbench.report.markdown import one_line

VERSION = 4  # raise it when a plot comes to look otherwise: committed ones are then out of date
FORMATS = ("svg", "png")
BOUNDS = ("oracle", "class frequencies")  # names of `levels` that all lines lie between
# Inks that the HTML report replaces by those of its light or dark page.
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
    """Returns a hash of all that a plot shows; its files carry it: a stale one is noticed."""
    return hashlib.sha256(json.dumps([VERSION, caption, data]).encode()).hexdigest()


def pictures(caption: str, data: Mapping) -> dict[str, bytes]:
    """Returns {"svg", "png": content}, the same for the same data, with `digest` as description.

    Args:
        caption: the title.
        data: {"x", "y": labels of the axes, "log": those of "xy" that are logarithmic, "lines":
            {name: [[x, y], ...]}, "dashed": names of lines that are no measurements, if any, "of":
            {name: method} of names that are no methods', if any, "levels": {name: y} of horizontal
            lines, if any}. A line of one point is a mark; [x, y, half of the interval] gives a bar.
            Or {"panels": [what `panel` returns, ...]}. Lines have the ids `line-0`, ..., of panels
            `line-0-0`, ..., in this order.

    Raises:
        ConfigError: when Matplotlib is not installed.
    """
    with extra("a plot"):
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    images = {}
    with matplotlib.rc_context(_RC):
        for kind in FORMATS:
            figure = Figure(figsize=(8, 4.6), dpi=110, layout="constrained")
            FigureCanvasAgg(figure)
            draw = _draw_panels if "panels" in data else _draw
            draw(figure, caption, data)
            unset = ("Software",) if kind == "png" else ("Creator", "Date")
            metadata = dict.fromkeys(unset) | {"Description": digest(caption, data)}
            buffer = io.BytesIO()
            figure.savefig(buffer, format=kind, metadata=metadata)
            images[kind] = buffer.getvalue()
    return images


def _plain(text: str) -> str:
    """A text that Matplotlib shows as it is: no mathematics, no name hidden from the legend."""
    text = one_line(text).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def _draw(figure: object, caption: str, data: Mapping) -> None:
    axes = figure.add_subplot()
    measured = [name for name in data["lines"] if name not in data.get("dashed", ())]
    styles = colours.styles(measured, data.get("of"))
    for index, (name, line) in enumerate(data["lines"].items()):
        style = {"color": INK, "linestyle": (0, (3, 2)), "linewidth": 1, "zorder": 1.5}
        if name in measured:
            style = styles[name] | {"markersize": 4.5}
            if len(line) == 1:
                style |= {"markersize": 8, "linestyle": "none"}
        x, y, *half = zip(*line, strict=True)
        axes.plot(x, y, label=_plain(name), gid=f"line-{index}", **style)
        if half:
            axes.errorbar(x, y, *half, fmt="none", ecolor=style["color"], capsize=2, linewidth=0.9)
    axes.set_title(_plain(caption), loc="left")
    axes.set(xlabel=_plain(data["x"]), ylabel=_plain(data["y"]))
    for axis in data["log"]:
        getattr(axes, f"set_{axis}scale")("log")
        _label_log(getattr(axes, f"{axis}axis"))
    _draw_levels(axes, data.get("levels", {}))
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
    outer = (low / reach, high * reach) if is_log else (low - reach, high + reach)
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


def _label_log(axis: object) -> None:
    """Numbers written out, and more of them where the axis spans less than two decades."""
    from matplotlib import ticker

    low, high = axis.get_view_interval()
    if high < 100 * low:
        subs = (1, 2, 5) if high > 10 * low else (1, 1.5, 2, 3, 5, 7)
        if high < 3 * low:
            subs = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8)
        axis.set_major_locator(ticker.LogLocator(subs=subs))
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_minor_formatter(ticker.NullFormatter())


def against_n(frame: object, y: str, words: str) -> dict:
    """Returns the data of a plot of `y` against the number of classes, a line for each method.

    A method with a single n has a mark.
    """
    lines = {
        name: sorted(map(list, zip(line["num_classes"], line[y], strict=True)))
        for name, line in frame.groupby("method", sort=False)
    }
    return {"x": "number of classes", "y": words, "log": "xy", "lines": lines}


def panel(
    title: str, x: str, y: str, log: str, lines: Mapping, ticks: list, legend: str = "upper right"
) -> dict:
    """Returns the data of one panel.

    Args:
        title, x, y: its title and the labels of its axes.
        log: "x", "y", "xy" or "".
        lines: {label: {"points": [[x, y, half of the interval], ...], "kind"}}; `kind` "measured"
            (the default), "reference" (black, dashed) or "theory" (no markers, the colour of
            `of`, the label of another line, or grey).
        ticks: values marked on the x axis.
        legend: where the legend is, in Matplotlib's words.
    """
    axes = {"title": title, "x": x, "y": y, "log": log}
    return axes | {"lines": dict(lines), "ticks": ticks, "legend": legend}


def _draw_panels(figure: object, caption: str, data: Mapping) -> None:
    """Draws the panels side by side into a Matplotlib figure."""
    count = len(data["panels"])
    columns = min(count, 2)
    rows = -(-count // columns)
    figure.set_size_inches(5.2 * columns, 4.3 * rows)
    figure.suptitle(_plain(caption), fontsize=13)
    for index, panel in enumerate(data["panels"]):
        _draw_panel(figure.add_subplot(rows, columns, index + 1), panel, f"line-{index}")


def _draw_panel(axes: object, panel: Mapping, ids: str) -> None:
    from matplotlib.ticker import NullLocator

    kinds = {name: line.get("kind", "measured") for name, line in panel["lines"].items()}
    styles = colours.styles(name for name, kind in kinds.items() if kind == "measured")
    guides = 0
    for index, (name, line) in enumerate(panel["lines"].items()):
        x, y, half = zip(*line["points"], strict=True)
        style = {"color": INK, "linestyle": "--"}
        if kinds[name] == "theory":
            colour = styles.get(line.get("of"), {"color": colours.GREY})["color"]
            style = {"color": colour, "linestyle": ":" if line.get("of") or guides else "-."}
            guides += not line.get("of")
        elif kinds[name] == "measured":
            style = styles[name] | {"markersize": 5}
        style = {"linewidth": 1.5} | style
        axes.plot(x, y, label=_plain(name), gid=f"{ids}-{index}", **style)
        if any(half):
            axes.errorbar(x, y, half, fmt="none", ecolor=style["color"], capsize=2.5)
    axes.set_title(_plain(panel["title"]), fontsize=12)
    axes.set_xlabel(_plain(panel["x"]), fontsize=11)
    axes.set_ylabel(_plain(panel["y"]), fontsize=11)
    for axis in panel["log"]:
        getattr(axes, f"set_{axis}scale")("log")
        _label_log(getattr(axes, f"{axis}axis"))
    axes.set_xticks(panel["ticks"], [f"{tick:,}" for tick in panel["ticks"]])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(which="major", linewidth=0.7)
    axes.legend(fontsize=9, loc=panel["legend"], ncols=2 if len(panel["lines"]) > 6 else 1)

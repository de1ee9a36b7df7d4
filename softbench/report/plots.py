"""How plots look: one style, colours that the colour-blind tell apart, SVG and PNG."""

import hashlib
import io
import json
from collections.abc import Mapping

from softbench.report import extra
from softbench.report.markdown import one_line

VERSION = 1  # raise it when a plot comes to look otherwise: committed ones are then out of date
FORMATS = ("svg", "png")
# Inks that the HTML report replaces by those of its light or dark page.
INK, GRID, PAPER = "#1d1d1f", "#d9d9de", "#fefefe"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # Okabe and Ito
_GREY = "#767680"
MARKERS, _DASHES = "osD^vPX", ("-", (0, (5, 1.5)), (0, (1.5, 1.2)))
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
            {name: [[x, y], ...]}, "dashed": names of lines that are no measurements, if any}. A
            line of one point is a mark; [x, y, half of the interval] gives a band. Or {"panels":
            [what `panel` returns, ...]}.

    Raises:
        ConfigError: when Matplotlib is not installed.
    """
    with extra("a plot"):
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    found = {}
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
            found[kind] = buffer.getvalue()
    return found


def _plain(text: str) -> str:
    """A text that Matplotlib shows as it is: no mathematics, no name hidden from the legend."""
    text = one_line(text).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def _draw(figure: object, caption: str, data: Mapping) -> None:
    axes = figure.add_subplot()
    measured = [name for name in data["lines"] if name not in data.get("dashed", ())]
    for name, line in data["lines"].items():
        if name in measured:
            style = _style(measured.index(name)) | {"markersize": 4.5}
            if len(line) == 1:
                style |= {"markersize": 8, "linestyle": "none"}
        else:
            style = {"color": INK, "linestyle": (0, (3, 2)), "linewidth": 1, "zorder": 1.5}
        x, y, *half = zip(*line, strict=True)
        axes.plot(x, y, label=_plain(name), **style)
        if half:
            low, high = ([v + s * h for v, h in zip(y, *half, strict=True)] for s in (-1, 1))
            axes.fill_between(x, low, high, color=style["color"], alpha=0.2, linewidth=0)
    axes.set_title(_plain(caption), loc="left")
    axes.set(xlabel=_plain(data["x"]), ylabel=_plain(data["y"]))
    for axis in data["log"]:
        getattr(axes, f"set_{axis}scale")("log")
        _label_log(getattr(axes, f"{axis}axis"))
    axes.grid(which="major", linewidth=0.7)
    axes.set_axisbelow(True)
    if len(data["lines"]) > 6:
        figure.legend(loc="outside right upper", frameon=False)
    else:
        axes.legend(loc="best")


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


def _style(index: int) -> dict:
    """Colour, marker and dashes: no two of the first 42 lines have the same pair of the first."""
    return {
        "color": COLOURS[index % len(COLOURS)],
        "marker": MARKERS[index % len(MARKERS)],
        "linestyle": _DASHES[index // len(COLOURS) % len(_DASHES)],
        "linewidth": 1.4,
    }


def against_n(frame: object, y: str, words: str) -> dict:
    """Returns the data of a plot of `y` against the number of classes, a line for each method."""
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
        title, x, y: what stands above and beside it.
        log: "x", "y", "xy" or "".
        lines: {label: {"points": [[x, y, half of the interval], ...], "kind"}}; `kind` "measured"
            (the default), "reference" (black, dashed) or "theory" (no markers, the colour of
            `of`, the label of another line, or grey).
        ticks: values marked on the x axis.
        legend: where the legend is, in Matplotlib's words.
    """
    found = {"title": title, "x": x, "y": y, "log": log, "lines": dict(lines)}
    return found | {"ticks": ticks, "legend": legend}


def _draw_panels(figure: object, caption: str, data: Mapping) -> None:
    """Draws the panels side by side into a Matplotlib figure."""
    count = len(data["panels"])
    columns = min(count, 2)
    rows = -(-count // columns)
    figure.set_size_inches(5.2 * columns, 4.3 * rows)
    figure.suptitle(_plain(caption), fontsize=13)
    for index, part in enumerate(data["panels"]):
        _draw_panel(figure.add_subplot(rows, columns, index + 1), part)


def _draw_panel(axes: object, part: Mapping) -> None:
    from matplotlib.ticker import NullLocator

    measured = [
        name for name, line in part["lines"].items() if line.get("kind", "measured") == "measured"
    ]
    guides = 0
    colours = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(measured)}
    for name, line in part["lines"].items():
        x, y, half = zip(*line["points"], strict=True)
        kind = line.get("kind", "measured")
        if kind == "theory":
            colour = colours.get(line.get("of"), _GREY)
            style = ":" if line.get("of") or guides else "-."
            guides += not line.get("of")
            axes.plot(x, y, color=colour, linewidth=1.3, linestyle=style, label=_plain(name))
            continue
        style = {"color": INK, "linestyle": "--"}
        if kind == "measured":
            marker = MARKERS[measured.index(name) % len(MARKERS)]
            style = {"color": colours[name], "marker": marker, "markersize": 5}
        error = half if any(half) else None
        axes.errorbar(x, y, yerr=error, linewidth=1.5, capsize=2.5, label=_plain(name), **style)
    axes.set_title(_plain(part["title"]), fontsize=12)
    axes.set_xlabel(_plain(part["x"]), fontsize=11)
    axes.set_ylabel(_plain(part["y"]), fontsize=11)
    axes.set_xscale("log" if "x" in part["log"] else "linear")
    axes.set_yscale("log" if "y" in part["log"] else "linear")
    axes.set_xticks(part["ticks"], [f"{tick:,}" for tick in part["ticks"]])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(which="major", linewidth=0.7)
    axes.legend(fontsize=9, loc=part["legend"], ncols=2 if len(part["lines"]) > 6 else 1)

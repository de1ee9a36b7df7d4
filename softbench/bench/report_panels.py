"""Plots in panels, with intervals, from plain data, in colours that the colour-blind tell apart."""

from collections.abc import Mapping
from pathlib import Path

# Okabe and Ito's colours, black for the reference.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
_MARKERS = "osD^vPX"


def panels(*parts: Mapping) -> dict:
    """Returns the data of a plot with one panel for each of `parts`, see `panel`."""
    return {"panels": list(parts)}


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


def draw(path: Path, caption: str, data: Mapping, digest: str) -> None:
    """Writes the panels side by side as PNG, with `digest` in its metadata."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    count = len(data["panels"])
    columns = min(count, 2)
    rows = -(-count // columns)
    figure = Figure(figsize=(5.2 * columns, 4.3 * rows), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(caption, fontsize=13)
    for index, part in enumerate(data["panels"]):
        _panel(figure.add_subplot(rows, columns, index + 1), part)
    figure.savefig(path, metadata={"Software": None, "Description": digest})


def _panel(axes: object, part: Mapping) -> None:
    from matplotlib.ticker import NullLocator

    measured = [
        name for name, line in part["lines"].items() if line.get("kind", "measured") == "measured"
    ]
    guides = 0
    colours = {name: _COLOURS[i % len(_COLOURS)] for i, name in enumerate(measured)}
    for name, line in part["lines"].items():
        x, y, half = zip(*line["points"], strict=True)
        kind = line.get("kind", "measured")
        if kind == "theory":
            colour = colours.get(line.get("of"), "0.45")
            style = ":" if line.get("of") or guides else "-."
            guides += not line.get("of")
            axes.plot(x, y, color=colour, linewidth=1.3, linestyle=style, label=name)
            continue
        style = {"color": "black", "linestyle": "--"}
        if kind == "measured":
            marker = _MARKERS[measured.index(name) % len(_MARKERS)]
            style = {"color": colours[name], "marker": marker, "markersize": 5}
        error = half if any(half) else None
        axes.errorbar(x, y, yerr=error, linewidth=1.5, capsize=2.5, label=name, **style)
    axes.set_title(part["title"], fontsize=12)
    axes.set_xlabel(part["x"], fontsize=11)
    axes.set_ylabel(part["y"], fontsize=11)
    axes.set_xscale("log" if "x" in part["log"] else "linear")
    axes.set_yscale("log" if "y" in part["log"] else "linear")
    axes.set_xticks(part["ticks"], [f"{tick:,}" for tick in part["ticks"]])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(alpha=0.3, which="both")
    axes.legend(fontsize=9, loc=part["legend"], ncols=2 if len(part["lines"]) > 6 else 1)

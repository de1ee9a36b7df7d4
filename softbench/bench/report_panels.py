"""Plots in panels, with intervals, from plain data, in colours that the colour-blind tell apart."""

from collections.abc import Mapping

from softbench.bench.report_style import COLOURS, INK, MARKERS

_GREY = "#767680"


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


def draw(figure: object, caption: str, data: Mapping) -> None:
    """Draws the panels side by side into a Matplotlib figure."""
    count = len(data["panels"])
    columns = min(count, 2)
    rows = -(-count // columns)
    figure.set_size_inches(5.2 * columns, 4.3 * rows)
    figure.suptitle(caption, fontsize=13)
    for index, part in enumerate(data["panels"]):
        _panel(figure.add_subplot(rows, columns, index + 1), part)


def _panel(axes: object, part: Mapping) -> None:
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
            axes.plot(x, y, color=colour, linewidth=1.3, linestyle=style, label=name)
            continue
        style = {"color": INK, "linestyle": "--"}
        if kind == "measured":
            marker = MARKERS[measured.index(name) % len(MARKERS)]
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
    axes.grid(which="major", linewidth=0.7)
    axes.legend(fontsize=9, loc=part["legend"], ncols=2 if len(part["lines"]) > 6 else 1)

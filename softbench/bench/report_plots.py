"""Plots from records: learning curves against wall-clock time, step time against n."""

from collections.abc import Mapping
from pathlib import Path

from softbench.bench import report_panels
from softbench.bench.config import ConfigError
from softbench.bench.report_nce_plots import nce_plots
from softbench.bench.report_tables import group_name

_SCORES = ("valid_perplexity", "valid_precision_at_1")


def plots(records: list[dict]) -> dict[str, tuple[str, dict]]:
    """Returns {file name: (caption, data)}; `data` is all that a plot shows.

    `data` is {"x", "y", "log", "lines": {label: [[x, y], ...]}}, or what `report_panels` draws.
    """
    found: dict[str, tuple[str, dict]] = {}
    for record in sorted(records, key=lambda item: item["cell"]):
        task = record["config"]["task"]
        if task == "step_time" and record["status"] == "ok":
            _add_steps(found, record)
        elif task == "wall_time" and record["status"] == "ok":
            _add_wall(found, record)
        elif task == "train":
            _add_curves(found, record)
    for _, data in found.values():
        data["lines"] = {name: sorted(line) for name, line in data["lines"].items()}
    return dict(sorted(found.items())) | nce_plots(records)


def _add_steps(found: dict, record: Mapping) -> None:
    backend = record["config"]["backend"]
    empty = {"x": "number of classes", "y": "step, ms", "log": "xy", "lines": {}}
    _, data = found.setdefault(f"steps-{backend}.png", (f"Step time, {backend}", empty))
    for name, step in record["steps"].items():
        if step["step_ms"]["median"] is not None:
            point = [record["num_classes"], step["step_ms"]["median"]]
            data["lines"].setdefault(name, []).append(point)


def _add_wall(found: dict, record: Mapping) -> None:
    backend, label = record["config"]["backend"], record["config"]["model"]["label"]
    empty = {"x": "number of classes", "y": "loss, ms", "log": "xy", "lines": {}}
    caption = f"Sampled softmax loss, {label}, {backend}"
    _, data = found.setdefault(f"loss-{label}-{backend}.png", (caption, empty))
    for name, parts in record["wall_time"].items():
        median = parts["loss"]["step_ms"]["median"]
        if median is not None:
            line = data["lines"].setdefault(name, [])
            if record["num_classes"] not in [n for n, _ in line]:
                line.append([record["num_classes"], median])


def _add_curves(found: dict, record: Mapping) -> None:
    group = group_name(record["config"])
    (method,) = record["config"]["methods"]
    parts = [method, record["config"]["backend"], f"seed {record['seed']}"]
    parts.append(record["cell"].rsplit("-", 1)[-1][:4])
    for score in _SCORES:
        points = [
            [point["seconds"], point[score]]
            for point in record.get("curve") or []
            if point.get(score) is not None
        ]
        if points:
            log = "y" if score == "valid_perplexity" else ""
            empty = {"x": "training time, s", "y": score, "log": log, "lines": {}}
            name = f"{group}-{score}.png"
            _, data = found.setdefault(name, (f"{group}: {score} against training time", empty))
            data["lines"][", ".join(parts)] = points


def draw(path: Path, caption: str, data: Mapping, digest: str) -> None:
    """Writes one plot as PNG, with `digest` in its metadata.

    Raises:
        ConfigError: when Matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise ConfigError(
            "plots need Matplotlib: install the `report` extra, pip install 'softbench[report]'"
        ) from None
    if "panels" in data:
        report_panels.draw(path, caption, data, digest)
        return
    figure = Figure(figsize=(8, 5), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for name, line in data["lines"].items():
        axes.plot(*zip(*line, strict=True), marker="o", markersize=3, linewidth=1.2, label=name)
    axes.set(title=caption, xlabel=data["x"], ylabel=data["y"])
    axes.set_xscale("log" if "x" in data["log"] else "linear")
    axes.set_yscale("log" if "y" in data["log"] else "linear")
    axes.grid(alpha=0.3, which="both")
    axes.legend(fontsize=7)
    figure.savefig(path, metadata={"Software": None, "Description": digest})

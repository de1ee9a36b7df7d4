"""What plots show, from records: learning curves against wall-clock time, cost against n."""

from collections import Counter
from collections.abc import Mapping

from softbench.bench.report_information import information_plots
from softbench.bench.report_nce_plots import nce_plots
from softbench.bench.report_tables import group_name

_SCORES = {
    "valid_perplexity": "validation perplexity",
    "valid_precision_at_1": "validation precision@1",
}


def plots(records: list[dict]) -> dict[str, tuple[str, dict]]:
    """Returns {file name without ending: (caption, data)}.

    `data` is all that a plot shows, see `report_style.pictures`.
    """
    found: dict[str, tuple[str, dict]] = {}
    ordered = sorted(records, key=lambda item: item["cell"])
    names = _line_names([r for r in ordered if r["config"]["task"] == "train"])
    for record in ordered:
        task = record["config"]["task"]
        if task == "step_time" and record["status"] == "ok":
            _add_steps(found, record)
        elif task == "wall_time" and record["status"] == "ok":
            _add_wall(found, record)
        elif task == "train":
            _add_curves(found, record, names[record["cell"]])
    for _, data in found.values():
        data["lines"] = {name: sorted(line) for name, line in data["lines"].items()}
    return dict(sorted((found | information_plots(records) | nce_plots(records)).items()))


def _line_names(records: list[dict]) -> dict[str, str]:
    """Returns {cell: name}: the method, and what tells cells of one method apart."""
    count = Counter(map(_group_and_method, records))
    found = {}
    for record in records:
        name = _group_and_method(record)[1]
        if count[_group_and_method(record)] > 1:
            digest = record["cell"].rsplit("-", 1)[-1][:4]
            name += f", {record['config']['backend']}, seed {record['seed']}, {digest}"
        found[record["cell"]] = name
    return found


def _group_and_method(record: Mapping) -> tuple[str, str]:
    (method,) = record["config"]["methods"]
    return group_name(record["config"]), method


def _add_steps(found: dict, record: Mapping) -> None:
    backend = record["config"]["backend"]
    empty = {"x": "number of classes", "y": "step, ms", "log": "xy", "lines": {}}
    _, data = found.setdefault(f"steps-{backend}", (f"Step time, {backend}", empty))
    for name, step in record["steps"].items():
        if step["step_ms"]["median"] is not None:
            point = [record["num_classes"], step["step_ms"]["median"]]
            data["lines"].setdefault(name, []).append(point)


def _add_wall(found: dict, record: Mapping) -> None:
    backend, label = record["config"]["backend"], record["config"]["model"]["label"]
    empty = {"x": "number of classes", "y": "loss, ms", "log": "xy", "lines": {}}
    caption = f"Sampled softmax loss, {label}, {backend}"
    _, data = found.setdefault(f"loss-{label}-{backend}", (caption, empty))
    for name, parts in record["wall_time"].items():
        median = parts["loss"]["step_ms"]["median"]
        if median is not None:
            line = data["lines"].setdefault(name, [])
            if record["num_classes"] not in [n for n, _ in line]:
                line.append([record["num_classes"], median])


def _add_curves(found: dict, record: Mapping, label: str) -> None:
    group = group_name(record["config"])
    for score, words in _SCORES.items():
        points = [
            [point["seconds"], point[score]]
            for point in record.get("curve") or []
            if point.get(score) is not None
        ]
        if points:
            log = "y" if score == "valid_perplexity" else ""
            empty = {"x": "training time, s", "y": words, "log": log, "lines": {}}
            caption = f"{group}: {words} against training time"
            _, data = found.setdefault(f"{group}-{score}", (caption, empty))
            data["lines"][label] = points

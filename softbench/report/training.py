"""Tables and plots of the task "train", from records. Needs no Keras."""

from collections import Counter
from collections.abc import Mapping

from softbench.report import curves, reach
from softbench.report.tables import Table, group_name, sorted_lines, training_tables

_SCORES = {
    "valid_perplexity": "validation perplexity",
    "valid_precision_at_1": "validation precision@1",
}


def tables(plan: Mapping, records: list[dict]) -> list[Table]:
    """Returns the results, the validation perplexity on the way, and who reached what when.

    Args:
        plan: the content of `experiment.json`.
        records: records of the task, those of failed cells too.
    """
    return [
        *training_tables(plan, records),
        *curves.curve_tables(plan, records),
        *reach.reach_tables(plan, records),
    ]


def plots(plan: Mapping, records: list[dict]) -> dict[str, tuple[str, dict]]:
    """Returns {file name: (caption, data)}: learning curves, unless all columns are of costs."""
    columns = plan["columns"]
    if columns and not any(name.startswith(("test_", "valid_")) for name in columns):
        return {}
    found: dict[str, tuple[str, dict]] = {}
    names = _line_names(records)
    for record in records:
        _add_curves(found, record, names[record["cell"]])
    return sorted_lines(found)


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

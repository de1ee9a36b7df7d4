"""Tables from records: pure functions of plain data. Needs neither Keras nor a plotting library."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from scipy import stats

# Column name -> dotted place in a record; another name is looked up under `final`.
_PLACES = {
    "epochs": "config.epochs",
    "step_ms": "step_ms.median",
    "head_ms": "head_ms.median",
    "examples/s": "examples_per_second",
    "tokens/s": "examples_per_second",
    "compile_s": "compile_seconds",
    "memory_mb": "peak_memory_mb.host",
}


class Table(NamedTuple):
    """A titled table of strings."""

    title: str
    header: list[str]
    rows: list[list[str]]


def group_name(config: Mapping) -> str:
    """Returns `dataset-model` of a cell's config."""
    return "-".join(label(config[part]) for part in ("dataset", "model"))


def row_name(record: Mapping) -> str:
    """Returns `dataset-model-method`, the name of a row in the paper's numbers."""
    methods = record["config"]["methods"]
    return f"{group_name(record['config'])}-{next(iter(methods))}"


def label(part: Mapping) -> str:
    """Returns the readable name of a data set or model."""
    name = (part.get("label") or part.get("name", "none")).replace("/", "_")
    return f"{name}_{part['preset']}" if "preset" in part else name


def lookup(record: Mapping, column: str) -> object:
    """Returns a column's value in a record, or None."""
    value: object = record
    for key in _PLACES.get(column, f"final.{column}").split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def number(value: float) -> str:
    """Returns four significant digits, whole numbers from 1000 on with separators."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def cell_text(values: Iterable[object]) -> str:
    """Returns one value, or mean and range of several: `1.5 (1.4-1.6)`; "-" when there is none."""
    found = [value for value in values if value is not None]
    if not found:
        return "-"
    if len(found) == 1 or len(set(found)) == 1:
        return number(found[0])
    mean = sum(found) / len(found)
    return f"{number(mean)} ({number(min(found))}-{number(max(found))})"


def training_tables(plan: Mapping, records: list[dict]) -> list[Table]:
    """Returns one table per data set and model: a row per method, the paper's numbers beside ours.

    Args:
        plan: the content of `experiment.json`.
        records: records of task "train".
    """
    groups = grouped(records)
    papers: dict[str, dict[str, dict]] = {}
    for name, numbers in plan["paper"].items():
        group, _, method = name.rpartition("-")
        papers.setdefault(group, {})[method] = numbers
    order = list(plan["methods"])
    names = [*groups, *(group for group in papers if group not in groups)]
    return [_table(plan, order, name, groups.get(name, {}), papers.get(name, {})) for name in names]


def grouped(records: list[dict]) -> dict[str, dict[str, list[list[dict]]]]:
    """Returns {group: {method: [the records of one row, its seeds]}}."""
    groups: dict[str, dict[str, list[list[dict]]]] = {}
    for record in records:
        (method,) = record["config"]["methods"]
        rows = groups.setdefault(group_name(record["config"]), {}).setdefault(method, [])
        same = next((row for row in rows if _variant(row[0]) == _variant(record)), None)
        if same is None:
            rows.append([record])
        else:
            same.append(record)
    return groups


def _variant(record: Mapping) -> str:
    """Returns what must agree for two records to be seeds of one row."""
    config = {key: value for key, value in record["config"].items() if key != "seed"}
    return json.dumps([config, record.get("device")], sort_keys=True)


def _table(plan: Mapping, order: list[str], group: str, found: Mapping, paper: Mapping) -> Table:
    columns = list(plan["columns"])
    with_paper = {name for numbers in paper.values() for name in numbers}
    header = ["method", "backend"]
    for column in columns:
        header.append(column)
        if column in with_paper:
            header.append(f"{column} (paper)")
            header += [] if column == "epochs" else [f"{column} / paper"]
    rows = []
    known = [name for name in order if name in found or name in paper]
    for method in [*known, *sorted({*found, *paper} - {*order})]:
        variants = found.get(method) or [[]]
        for records in sorted(variants, key=lambda row: row[0]["cell"] if row else ""):
            row = [method, records[0]["config"]["backend"] if records else "-"]
            for column in columns:
                row.append(_measured(records, column))
                if column in with_paper:
                    numbers = paper.get(method, {})
                    row.append(cell_text([numbers.get(column)]))
                    row += [] if column == "epochs" else [_ratio(records, column, numbers)]
            rows.append(row)
    return Table(group, header, [*rows, *_most_frequent(header, found)])


def _most_frequent(header: list[str], found: Mapping) -> list[list[str]]:
    """What the most frequent classes score as the answer to every input, where records have it."""
    records = [record for variants in found.values() for row in variants for record in row]
    scores = next((r["most_frequent"] for r in records if r.get("most_frequent")), None)
    if not scores or not scores.keys() & set(header):
        return []
    return [["(most frequent)", "-", *(cell_text([scores.get(c)]) for c in header[2:])]]


def _ratio(records: list[dict], column: str, paper: Mapping) -> str:
    """Ours over the paper's, over the seeds; "-" of runs that are not as many epochs long."""
    found = [
        value / paper[column]
        for record in records
        if record["status"] == "ok"
        and column in paper
        and paper.get("epochs") in (None, lookup(record, "epochs"))
        and (value := lookup(record, column)) is not None
    ]
    return cell_text(found)


def _measured(records: list[dict], column: str) -> str:
    if not records:
        return "not run"
    ok = [record for record in records if record["status"] == "ok"]
    if ok:
        return cell_text(lookup(record, column) for record in ok)
    return records[0]["status"].replace("_", " ")


def markdown(table: Table) -> str:
    """Returns the table in Markdown, columns aligned: to the right where one holds numbers."""
    lines = [table.header, *table.rows]
    columns = list(zip(*lines, strict=True))
    widths = [max(3, *map(len, column)) for column in columns]
    right = [i > 0 and any(map(_is_number, column[1:])) for i, column in enumerate(columns)]

    def line(cells: Iterable[str]) -> str:
        places = zip(cells, widths, right, strict=True)
        aligned = [cell.rjust(w) if numbers else cell.ljust(w) for cell, w, numbers in places]
        return f"| {' | '.join(aligned)} |"

    rule = [
        "-" * (w - 1) + (":" if numbers else "-") for w, numbers in zip(widths, right, strict=True)
    ]
    return "\n".join([line(table.header), f"| {' | '.join(rule)} |", *map(line, table.rows)])


def _is_number(text: str) -> bool:
    return text[:1].isdigit() or (text[:1] in "+-" and text[1:2].isdigit())


def ordered(plan: Mapping, names: Mapping) -> list[str]:
    known = [name for name in plan["methods"] if name in names]
    return [*known, *sorted(set(names) - set(known))]


def interval(values: list[float]) -> str:
    """Returns the mean and half of its 95 % interval: `2.1e-03 ± 2e-04`."""
    mean = sum(values) / len(values)
    return f"{mean:.2e}" if len(values) < 2 else f"{mean:.2e} ± {half_interval(values):.0e}"


def half_interval(values: Sequence[float]) -> float:
    """Returns half of the 95 % interval of the mean, by Student's t; 0 for one value."""
    if len(values) < 2:
        return 0.0
    return float(stats.t.ppf(0.975, len(values) - 1) * stats.sem(values))


def sorted_lines(plots: dict[str, tuple[str, dict]]) -> dict[str, tuple[str, dict]]:
    """Returns plots with the points of every line in the order of x."""
    for _, data in plots.values():
        data["lines"] = {name: sorted(line) for name, line in data["lines"].items()}
    return plots

"""Tables of the task "wall_time" from records. Needs neither Keras nor a plotting library."""

from collections.abc import Mapping

from softbench.bench.report_tables import Table, number

_PARTS = ("draw", "loss", "update")
_REFERENCE = "exp"


def wall_tables(plan: Mapping, records: list[dict]) -> list[Table]:
    """Returns the tables of wall time: one per backend, device, model and n, then the growth.

    Columns: median (p20-p80) of each part; the paper's time of the loss; the exact sampler's loss
    over the row's, by medians and (less moved by what else the machine does) by 20th percentiles,
    and in the paper; memory and block size of the sums. Records of one n that
    were made in several processes are joined, each row's ratio being to the exact sampler of its
    own process.

    Args:
        plan: the content of `experiment.json`.
        records: records of task "wall_time".
    """
    order = {name: i for i, name in enumerate(plan["methods"])}
    groups: dict[tuple, dict[int, dict]] = {}
    for record in sorted(records, key=lambda item: (item["num_classes"], item["cell"])):
        config = record["config"]
        key = (config["backend"], record["device"]["name"], config["model"]["label"])
        rows = groups.setdefault(key, {}).setdefault(record["num_classes"], {})
        for name, row in _rows(plan, record).items():
            rows.setdefault(name, row)
    found = []
    for key, sizes in sorted(groups.items()):
        for rows in sizes.values():
            for name in sorted(rows, key=lambda name: order.get(name, len(order))):
                rows[name] = rows.pop(name)
        found += [_table(key, units, rows) for units, rows in sizes.items()]
        if len(sizes) > 1:
            found.append(_growth(key, sizes))
    return found


def _rows(plan: Mapping, record: Mapping) -> dict[str, dict]:
    """Returns {method: what its row shows}."""
    units, times = record["num_classes"], record["wall_time"]
    prefix = f"random{units}-{record['config']['model']['label']}-"
    paper = {
        name.removeprefix(prefix): numbers["loss_ms"]
        for name, numbers in plan["paper"].items()
        if name.startswith(prefix)
    }
    rows = {}
    for name, parts in times.items():
        rows[name] = {
            "times": {part: parts[part]["step_ms"] for part in parts},
            "paper": paper.get(name),
            "ratio": _ratio(_loss(times.get(_REFERENCE)), _loss(parts)),
            "ratio_p20": _ratio(_loss(times.get(_REFERENCE), "p20"), _loss(parts, "p20")),
            "paper_ratio": _ratio(paper.get(_REFERENCE), paper.get(name)),
            "sums": record["sums"].get(name, {}),
        }
    return rows


def _loss(parts: Mapping | None, which: str = "median") -> float | None:
    return parts["loss"]["step_ms"][which] if parts else None


def _ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above and below else None


def _text(value: float | None) -> str:
    return "-" if value is None else number(value)


def _times(summary: Mapping | None) -> str:
    if not summary or summary["median"] is None:
        return "-"
    return f"{number(summary['median'])} ({number(summary['p20'])}-{number(summary['p80'])})"


def _table(key: tuple, units: int, rows: Mapping) -> Table:
    with_paper = any(row["paper"] for row in rows.values())
    header = ["method", *(f"{part}, ms (p20-p80)" for part in _PARTS)]
    header += ["loss (paper)"] if with_paper else []
    header += [f"{_REFERENCE} / this", "by p20"]
    header += [f"{_REFERENCE} / this (paper)"] if with_paper else []
    header += ["sums, MB", "block"]
    lines = []
    for name, row in rows.items():
        line = [name, *(_times(row["times"].get(part)) for part in _PARTS)]
        line += [_text(row["paper"])] if with_paper else []
        line += [_text(row[key]) for key in ("ratio", "ratio_p20")]
        if with_paper:
            line += [_text(row["paper_ratio"])]
        line += [_text(row["sums"].get("megabytes")), _text(row["sums"].get("block_size"))]
        lines.append(line)
    backend, device, label = key
    return Table(f"n = {units:,}, {label}: {backend}, {device}", header, lines)


def _growth(key: tuple, sizes: Mapping[int, dict]) -> Table:
    """The loss against n: medians, and the largest n's over the smallest's."""
    units = list(sizes)
    names = list(dict.fromkeys(name for rows in sizes.values() for name in rows))
    lines = []
    for name in names:
        medians = [sizes[n].get(name, {}).get("times", {}).get("loss", {}) for n in units]
        medians = [summary.get("median") for summary in medians]
        growth = _ratio(medians[-1], medians[0])
        lines.append([name, *map(_text, medians), _text(growth)])
    backend, device, label = key
    header = ["method", *(f"n = {n:,}" for n in units), "growth"]
    return Table(f"Loss, ms, against n, {label}: {backend}, {device}", header, lines)

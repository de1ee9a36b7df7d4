"""Tables of the task "wall_time" from records. Needs neither Keras nor a plotting library."""

from collections.abc import Iterable, Mapping

from softbench.report.choices import sampler_name
from softbench.report.costs import KERNELS, Section, answer_from, link, place, where
from softbench.report.page import Page
from softbench.report.tables import Table, number, sorted_lines

_PARTS = ("draw", "loss", "update")
_REFERENCE = "exp"


def tables(plan: Mapping, records: list[dict]) -> list[Table]:
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


_EXACT = "exp"
_DRAWS = """\
The forward loss with draws from the softmax itself, and with draws from a kernel's sums over blocks
of classes. Above 1 in the last ratio, the sums pay."""


def front(pages: Iterable[Page]) -> Section:
    """The loss with draws by a kernel's sums against that with exact draws, at each n."""
    rows, ratios, links = [], {}, {}
    for page in pages:
        for record in sorted(page.ok("wall_time"), key=place):
            times = {k: v["loss"]["step_ms"]["median"] for k, v in record["wall_time"].items()}
            methods, exact = record["config"]["methods"], times.get(_EXACT)
            kernels = {
                name: time
                for name, time in times.items()
                if time and sampler_name(methods[name]) in KERNELS
            }
            if not kernels or not exact:
                continue
            least, most = (choose(kernels, key=kernels.get) for choose in (min, max))
            low, high = exact / kernels[most], exact / kernels[least]
            ratios.setdefault(record["num_classes"], []).extend([low, high])
            links[link(page)] = None
            row = [*where(record), record["config"]["model"]["label"], number(exact)]
            row += [f"`{least}` {number(kernels[least])}", f"`{most}` {number(kernels[most])}"]
            rows.append([*row, f"{number(low)} to {number(high)}", link(page)])
    header = ["backend", "n", "batch, m", "exact draws, ms", "least of the kernels, ms"]
    header += ["most, ms", "exact / kernel", "page"]
    what = "the loss with any of the kernels is {} times cheaper than with exact draws"
    answer = answer_from(ratios, what, links)
    return Section(answer, _DRAWS, Table("Draws that follow the scores", header, rows))


def plots(plan: Mapping, records: list[dict]) -> dict[str, tuple[str, dict]]:
    """Returns {file name: (caption, data)}: the loss against n for each batch and backend."""
    found: dict[str, tuple[str, dict]] = {}
    for record in records:
        _add_wall(found, record)
    return sorted_lines(found)


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

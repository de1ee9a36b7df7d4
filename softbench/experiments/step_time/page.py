"""Tables of the task "step_time" from records. Needs neither Keras nor a plotting library."""

from collections.abc import Iterable, Mapping

from softbench.report.choices import REFERENCE
from softbench.report.costs import Section, answer_from, link, place, where
from softbench.report.page import Page
from softbench.report.tables import Table, number, sorted_lines


def tables(plan: Mapping, records: list[dict]) -> list[Table]:
    """Returns tables of step times against n, one per backend and device.

    Columns: median (p20-p80) at each n, the growth from the smallest to the largest n, and the
    peer's median divided by the row's at the largest n, for each peer in the run.
    """
    places: dict[tuple, dict[int, dict]] = {}
    for record in sorted(records, key=lambda item: item["cell"]):
        if record["status"] == "ok":
            key = (record["config"]["backend"], record["device"]["name"])
            places.setdefault(key, {})[record["num_classes"]] = record["steps"]
    return [_step_table(*key, sizes) for key, sizes in sorted(places.items())]


def _step_table(backend: str, device: str, sizes: dict[int, dict]) -> Table:
    order = sorted(sizes)
    first, last = order[0], order[-1]
    names = list(dict.fromkeys(name for n in order for name in sizes[n]))
    peers = [name for name in names if name.startswith("peer_")]

    def median(n: int, name: str) -> float | None:
        return sizes[n].get(name, {}).get("step_ms", {}).get("median")

    def ratio(above: float | None, below: float | None) -> str:
        return f"{above / below:.3g}" if above and below else "-"

    rows = []
    for name in names:
        row = [name]
        for n in order:
            times = sizes[n].get(name, {}).get("step_ms", {})
            low, high = times.get("p20"), times.get("p80")
            row.append(
                f"{number(times['median'])} ({number(low)}-{number(high)})"
                if times.get("median")
                else "-"
            )
        row.append(ratio(median(last, name), median(first, name)))
        row += [ratio(median(last, peer), median(last, name)) for peer in peers]
        rows.append(row)
    header = ["method", *(f"n = {n:,}, ms (p20-p80)" for n in order), "growth"]
    header += [f"{peer} / this" for peer in peers]
    return Table(f"{backend}, {device}", header, rows)


_STEPS = """\
A whole step, forward, backward and update; the methods of a row of this table took turns in one
process. `full` / fastest tells what sampling saves, the last ratio what updating only the touched
rows saves on the same sampled softmax."""


def front(pages: Iterable[Page]) -> Section:
    """The fastest step for each backend, device and n, against the full softmax.

    The last ratio is of rows that differ in the optimizer alone: `keras_x` over `rows_x`.
    """
    rows, ratios, links = [], {}, {}
    for page in pages:
        for record in sorted(page.ok("step_time"), key=place):
            times = {name: step["step_ms"]["median"] for name, step in record["steps"].items()}
            own = {k: time for k, time in times.items() if time and not k.startswith("peer_")}
            if REFERENCE not in own or len(own) < 2:
                continue
            best = min(own, key=own.get)
            twins = {k: f"rows_{k.removeprefix('keras_')}" for k in own if k.startswith("keras_")}
            pairs = [own[name] / own[twin] for name, twin in twins.items() if twin in own]
            ratio = own[REFERENCE] / own[best]
            ratios.setdefault(record["num_classes"], []).append(ratio)
            links[link(page)] = None
            row = [*where(record), number(own[REFERENCE]), f"`{best}`", number(own[best])]
            row += [number(ratio), number(max(pairs)) if pairs else "-", link(page)]
            rows.append(row)
    header = ["backend", "n", f"`{REFERENCE}`, ms", "fastest", "ms", f"`{REFERENCE}` / fastest"]
    header += ["Keras' optimizer / row optimizer", "page"]
    what = f"a step of the fastest row is {{}} times shorter than one of `{REFERENCE}`"
    answer = answer_from(ratios, what, links)
    return Section(answer, _STEPS, Table("The cost of a training step", header, rows))


def plots(plan: Mapping, records: list[dict]) -> dict[str, tuple[str, dict]]:
    """Returns {file name: (caption, data)}: step time against n for each backend."""
    found: dict[str, tuple[str, dict]] = {}
    for record in records:
        _add_steps(found, record)
    return sorted_lines(found)


def _add_steps(found: dict, record: Mapping) -> None:
    backend = record["config"]["backend"]
    empty = {"x": "number of classes", "y": "step, ms", "log": "xy", "lines": {}}
    _, data = found.setdefault(f"steps-{backend}", (f"Step time, {backend}", empty))
    for name, step in record["steps"].items():
        if step["step_ms"]["median"] is not None:
            point = [record["num_classes"], step["step_ms"]["median"]]
            data["lines"].setdefault(name, []).append(point)

"""Tables and plots of the task "wall_time". Needs no Keras."""

from collections.abc import Iterator, Mapping

import pandas as pd

from softbench.bench.records import sampler_kinds
from softbench.report import frame, measures
from softbench.report.page import Page
from softbench.report.tables import (
    Section,
    Table,
    answer_from,
    in_order,
    number,
    quantiles,
    section,
    table,
    wide,
)

_PARTS = ("draw", "loss", "update")
_REFERENCE = "exp"
_LOSS = "loss_ms_p50"


def _rows(record: Mapping) -> Iterator[dict]:
    """A row for each method: its times, and the exact sampler's loss over its own."""
    times, kinds = record["wall_time"], sampler_kinds(record)
    exact = measures.times(times.get(_REFERENCE, {}).get("loss", {}).get("step_ms"), "exact")
    for name, parts in times.items():
        row = {"method": name, "kind": kinds[name]}
        for part in _PARTS:
            row |= measures.times(parts.get(part, {}).get("step_ms"), f"{part}_ms")
        row["exact_ms"] = exact["exact_p50"]
        row["ratio"] = _ratio(exact["exact_p50"], row[_LOSS])
        row["ratio_p20"] = _ratio(exact["exact_p20"], row["loss_ms_p20"])
        sums = record.get("sums", {}).get(name, {})
        yield row | {"sums_mb": sums.get("megabytes"), "block": sums.get("block_size")}


def _ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above and below else None


def _losses(records: list[dict]) -> pd.DataFrame:
    found = frame.long(records, _rows)
    return found.sort_values(["num_classes", "cell"], kind="stable")


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
    losses = _losses(records)
    rows = losses["group"] + "-" + losses["method"]
    paper = {name: numbers["loss_ms"] for name, numbers in plan["paper"].items()}
    losses["paper_ms"] = rows.map(paper).astype(float)
    exact = (losses["group"] + f"-{_REFERENCE}").map(paper).astype(float)
    losses["ratio_paper"] = exact / losses["paper_ms"]
    found = []
    for place, own in losses.groupby(["backend", "device", "model"]):
        own = own.drop_duplicates(["num_classes", "method"])
        sizes = [in_order(plan, size) for _, size in own.groupby("num_classes")]
        found += [_table(place, size) for size in sizes]
        if len(sizes) > 1:
            found.append(_growth(place, pd.concat(sizes)))
    return found


def _table(place: tuple, own: pd.DataFrame) -> Table:
    backend, device, model = place
    columns = {"method": "method"}
    for part in _PARTS:
        times = [f"{part}_ms_{quantile}" for quantile in ("p50", "p20", "p80")]
        columns[f"{part}, ms (p20-p80)"] = (quantiles, *times)
    with_paper = own["paper_ms"].notna().any()
    columns |= {"loss (paper)": "paper_ms"} if with_paper else {}
    columns |= {f"{_REFERENCE} / this": "ratio", "by p20": "ratio_p20"}
    columns |= {f"{_REFERENCE} / this (paper)": "ratio_paper"} if with_paper else {}
    columns |= {"sums, MB": "sums_mb", "block": "block"}
    title = f"n = {own['num_classes'].iloc[0]:,}, {model}: {backend}, {device}"
    return table(title, own, columns)


def _growth(place: tuple, own: pd.DataFrame) -> Table:
    """The loss against n: medians, and the largest n's over the smallest's."""
    backend, device, model = place
    page = wide(own, "method", "num_classes", _LOSS)
    medians = own.pivot(index="method", columns="num_classes", values=_LOSS).loc[page.index]
    page.columns = [f"n = {n:,}" for n in page]
    growth = medians.iloc[:, -1] / medians.iloc[:, 0]
    page["growth"] = ["-" if pd.isna(value) else number(value) for value in growth]
    title = f"Loss, ms, against n, {model}: {backend}, {device}"
    return Table(title, page.reset_index(), own[["method", "num_classes", _LOSS]])


_DRAWS = """\
The forward loss with draws from the softmax itself, and with draws from a kernel's sums over blocks
of classes. Above 1 in the last ratio, the sums pay."""


def front(pages: list[Page]) -> Section:
    """The loss with draws by a kernel's sums against that with exact draws, at each n."""
    columns = {
        "backend": "backend",
        "n": ("{:,}", "num_classes"),
        "batch, m": "model",
        "exact draws, ms": "exact_ms",
        "least of the kernels, ms": (_named, "least", "least_ms"),
        "most, ms": (_named, "most", "most_ms"),
        "exact / kernel": (lambda low, high: f"{number(low)} to {number(high)}", "low", "high"),
        "page": "page",
    }
    what = "the loss with any of the kernels is {} times cheaper than with exact draws"
    return section(
        "Draws that follow the scores",
        _DRAWS,
        [row for page in pages if "wall_time" in page.tasks for row in _kernels(page)],
        columns,
        lambda found: answer_from(found, ["low", "high"], what),
    )


def _named(name: str, ms: float) -> str:
    return f"`{name}` {number(ms)}"


def _kernels(page: Page) -> Iterator[dict]:
    """For each record with exact draws and kernels the cheapest and the dearest of these."""
    losses = _losses(page.tasks["wall_time"])
    kernels = losses[(losses["kind"] == "kernel") & (losses[_LOSS] > 0) & (losses["exact_ms"] > 0)]
    kernels = kernels.sort_values(["backend", "num_classes", "cell"], kind="stable")
    for _, own in kernels.groupby("record", sort=False):
        least, most = (own.loc[own[_LOSS].agg(end)] for end in ("idxmin", "idxmax"))
        yield {
            "backend": least["backend"],
            "num_classes": least["num_classes"],
            "model": least["model"],
            "exact_ms": least["exact_ms"],
            "least": least["method"],
            "least_ms": least[_LOSS],
            "most": most["method"],
            "most_ms": most[_LOSS],
            "low": most["ratio"],
            "high": least["ratio"],
            "page": page.link,
        }


def plots(plan: Mapping, records: list[dict]) -> dict[str, tuple[str, dict]]:
    """Returns {file name: (caption, data)}: the loss against n for each batch and backend."""
    losses = frame.long(records, _rows).dropna(subset=_LOSS)
    losses = losses.drop_duplicates(["model", "backend", "method", "num_classes"])
    found = {}
    for (model, backend), own in losses.groupby(["model", "backend"]):
        lines = {
            name: sorted(map(list, zip(line["num_classes"], line[_LOSS], strict=True)))
            for name, line in own.groupby("method", sort=False)
        }
        data = {"x": "number of classes", "y": "loss, ms", "log": "xy", "lines": lines}
        found[f"loss-{model}-{backend}"] = (f"Sampled softmax loss, {model}, {backend}", data)
    return found

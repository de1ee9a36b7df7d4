"""Table and picture of the task "full_softmax". Needs no Keras."""

from collections.abc import Iterator, Mapping

import pandas as pd

from softbench.report import frame, measures
from softbench.report.plots import panel
from softbench.report.tables import Table, in_order, quantiles, table

_MS = "step_ms_p50"
_PROBLEM = ["device", "backend", "dtype", "batch", "num_classes", "dim"]
_COLUMNS = {
    "backend": "backend",
    "dtype": "dtype",
    "B x n x d": ("{:,} x {:,} x {:,}", "batch", "num_classes", "dim"),
    "method": "method",
    "step, ms (p20-p80)": (quantiles, _MS, "step_ms_p20", "step_ms_p80"),
    "steps": "count",
    "of products": ("{:.2f}", "of_products"),
    "of keras": ("{:.2f}", "of_keras"),
    "memory, MiB": ("{:,.0f}", "peak_mib"),
    "TFLOP/s": ("{:.3g}", "tflops"),
    "of the device's": ("{:.0%}", "of_peak"),
}
_WORDS = """\
Forward and backward of the exact softmax, no update; the methods of a problem took turns in one
process. Memory: the peak of a step beyond inputs, table and their gradients, in a process of its
own. TFLOP/s: of the 6 B n d operations of the three products, whatever else a method does."""


def tables(plan: Mapping, records: list[dict]) -> list[Table]:
    """Returns one table for each device: every method of every problem.

    Columns: the median step (p20-p80) and how many were timed, the median over that of the three
    products alone and over that of plain Keras, peak memory, and operations in a second; their
    part of the device's where the config names it.
    """
    rows = _rows_of(plan, records)
    if rows["of_peak"].isna().all():
        columns = {key: what for key, what in _COLUMNS.items() if "of_peak" not in what}
    else:
        columns = _COLUMNS
    return [
        table(device, group, columns)._replace(words=_WORDS)
        for device, group in rows.groupby("device", sort=False)
    ]


def plots(plan: Mapping, records: list[dict]) -> dict[str, tuple[str, dict]]:
    """Returns {file name: (caption, data)}: time and memory against n, a row for each dtype.

    Nothing where there is one n.
    """
    rows = _rows_of(plan, records)
    panels = []
    for (backend, dtype, batch, dim), group in rows.groupby(["backend", "dtype", "batch", "dim"]):
        if group["num_classes"].nunique() > 1:
            title = f"{backend}, {dtype}, B = {batch}, d = {dim}"
            panels += [
                _panel(title, "step, ms", _MS, group),
                _panel(title, "memory, MiB", "peak_mib", group),
            ]
    caption = "Forward and backward of the exact softmax"
    return {"full-softmax": (caption, {"panels": panels})} if panels else {}


def _panel(title: str, words: str, column: str, group: pd.DataFrame) -> dict:
    shown = group[group[column] > 0].assign(half=0.0)[["method", "num_classes", column, "half"]]
    # The products have no memory: last, so that the others have the same colours in all panels.
    shown = shown.sort_values("method", key=lambda names: names == "products", kind="stable")
    lines = {
        name: {"points": line.drop(columns="method").astype(float).to_numpy().tolist()}
        for name, line in shown.groupby("method", sort=False)
    }
    ticks = sorted(int(n) for n in group["num_classes"].unique())
    return panel(title, "number of classes", words, "xy", lines, ticks, "upper left")


def _rows_of(plan: Mapping, records: list[dict]) -> pd.DataFrame:
    """A row for each method of each problem, with its ratios to others of the same process."""
    rows = in_order(plan, frame.long(records, _rows)).sort_values(_PROBLEM, kind="stable")
    for name in ("products", "keras"):
        of = rows[rows["method"] == name].set_index("record")[_MS]
        rows[f"of_{name}"] = rows[_MS] / rows["record"].map(of)
    return rows


def _rows(record: Mapping) -> Iterator[dict]:
    model = record["config"]["model"]
    operations = 6.0 * model["batch_size"] * record["num_classes"] * model["dim"]
    for name, step in record["steps"].items():
        times = measures.times(step["step_ms"], "step_ms")
        tflops = operations / times[_MS] / 1e9
        yield {
            "method": name,
            "dtype": model["dtype"],
            "batch": model["batch_size"],
            "dim": model["dim"],
            **times,
            "count": step["step_ms"]["count"],
            "peak_mib": record["memory"].get(name, {}).get("peak_mib"),
            "tflops": tflops,
            "of_peak": tflops / model["peak_tflops"] if model["peak_tflops"] else None,
        }

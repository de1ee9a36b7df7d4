"""Tables and plots of the task "step_time". Needs no Keras."""

from collections.abc import Iterator, Mapping

from softbench.report import frame, measures
from softbench.report.markdown import literal
from softbench.report.page import Page
from softbench.report.plots import against_n
from softbench.report.tables import Table, growth, quantiles

_MS = "step_ms_p50"
_TIMES = [_MS, "step_ms_p20", "step_ms_p80"]
_MEMORY = {"resident_mb": "n = {}, MB while it steps", "peak_mb": "n = {}, peak MB"}


def _rows(record: Mapping) -> Iterator[dict]:
    """A row for each method."""
    memory = dict.fromkeys(_MEMORY)
    if len(record["steps"]) == 1:  # a separate process
        peak = (record.get("peak_memory_mb") or {}).get("host")
        memory = {"resident_mb": record.get("resident_mb"), "peak_mb": peak}
    for name, step in record["steps"].items():
        yield {
            "method": name,
            "is_peer": "peer" in record["config"]["methods"][name],
            **memory,
            **measures.times(step["step_ms"], "step_ms"),
        }


def tables(plan: Mapping, records: list[dict]) -> list[Table]:
    """Returns tables of step times against n, one per backend and device.

    Columns: median (p20-p80) at each n (of several runs, the median of each), the growth from the
    smallest to the largest n, and the peer's median divided by the row's at the largest n, for each
    peer in the run; where every method had a separate process, its resident set at the end of the
    steps and at most.
    """
    result = []
    for (backend, device), group in frame.long(records, _rows).groupby(["backend", "device"]):
        times = group.groupby(["num_classes", "method"])[_TIMES].transform("median")
        group = group.assign(**times).drop_duplicates(["num_classes", "method"], keep="last")
        group = group.sort_values("num_classes", kind="stable")
        page = growth(group, _MS, (quantiles, *_TIMES), "n = {}, ms (p20-p80)")
        last = group[group["num_classes"] == group["num_classes"].max()].set_index("method")[_MS]
        for peer in group.loc[group["is_peer"], "method"].unique():
            page[f"{literal(peer)} / this"] = last[peer] / last
        ratios = list(page)[group["num_classes"].nunique() :]
        page[ratios] = page[ratios].map("{:.3g}".format).replace("nan", "-")
        kept = [name for name in _MEMORY if group[name].notna().all()]
        for name in kept:
            memory = growth(group, name, name, _MEMORY[name]).drop(columns="growth")
            page = page.join(memory)
        data = group[["method", "num_classes", *_TIMES, *kept]]
        result.append(Table(f"{backend}, {device}", page.reset_index(), data))
    return result


def plots(plan: Mapping, records: list[dict]) -> dict[str, tuple[str, dict]]:
    """Returns {file name: (caption, data)}: step time against n for each backend."""
    steps = frame.long(records, _rows).dropna(subset=_MS)
    return {
        f"steps-{backend}": (f"Step time, {backend}", against_n(group, _MS, "step, ms"))
        for backend, group in steps.groupby("backend")
    }


# The rows of README's picture, in words for somebody who meets them first.
_OVERVIEW = {
    "full": "full softmax",
    "keras_log_uniform_shared": "sampled softmax, Keras' Adagrad",
    "peer_tf": "tf.nn.sampled_softmax_loss, sparse Adagrad by hand",
    "rows_log_uniform_shared": "softbench: sampled softmax, RowAdagrad",
}


def overview(pages: list[Page]) -> dict[str, tuple[str, dict]]:
    """Returns README's picture, if a page has its rows: one training step against n."""
    for page in pages:
        steps = frame.long(page.tasks["step_time"], _rows).dropna(subset=_MS)
        group = steps[(steps["backend"] == "tensorflow") & steps["method"].isin(_OVERVIEW)]
        if group["method"].nunique() == len(_OVERVIEW):
            group = group.assign(method=group["method"].map(_OVERVIEW))
            of = {"of": {words: name for name, words in _OVERVIEW.items()}}
            caption = "One training step on two CPU cores: d = 128, batch 256, 100 samples"
            return {"readme-steps": (caption, against_n(group, _MS, "milliseconds") | of)}
    return {}

"""Tables and plots of the task "step_time". Needs no Keras."""

import json
from collections.abc import Iterator, Mapping

from softbench.report import frame, measures
from softbench.report.markdown import code, literal
from softbench.report.page import Page
from softbench.report.plots import against_n
from softbench.report.tables import (
    FEWEST_STEPS,
    Section,
    Table,
    answer_from,
    growth,
    quantiles,
    section,
    timed,
)
from softbench.report.which_one import REFERENCE

_MS = "step_ms_p50"
_TIMES = [_MS, "step_ms_p20", "step_ms_p80"]
_MEMORY = {"resident_mb": "n = {}, MB while it steps", "peak_mb": "n = {}, peak MB"}


def _rows(record: Mapping) -> Iterator[dict]:
    """A row for each method; `twin` is the same for methods that differ in the optimizer alone."""
    memory = dict.fromkeys(_MEMORY)
    if len(record["steps"]) == 1:  # a separate process
        peak = (record.get("peak_memory_mb") or {}).get("host")
        memory = {"resident_mb": record.get("resident_mb"), "peak_mb": peak}
    for name, step in record["steps"].items():
        method = record["config"]["methods"][name]
        kwargs = dict(method.get("kwargs", {}))
        optimizer = kwargs.pop("row_optimizer", None)
        yield {
            "method": name,
            "is_peer": "peer" in method,
            "by_rows": optimizer is not None,
            "twin": json.dumps(method | {"kwargs": kwargs}, sort_keys=True),
            "count": step["step_ms"].get("count", FEWEST_STEPS),
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


_STEPS = f"""\
A whole step, forward, backward and update; the methods of a row of this table took turns in one
process; steps: timed ones, where these are fewer than {FEWEST_STEPS}. `full` / fastest tells what
sampling saves, the last ratio what updating only the touched rows saves on the same sampled
softmax."""


def front(pages: list[Page]) -> Section:
    """The fastest step for each backend, device and n, against the full softmax.

    The last ratio is the largest of rows that differ in the optimizer alone.
    """
    rows: list[dict] = []
    ratios: dict[int, list[float]] = {}
    for page in pages:
        steps = frame.long(page.tasks["step_time"], _rows)
        steps = steps[~steps["is_peer"] & (steps[_MS] > 0)]
        for (backend, n, _), group in steps.groupby(["backend", "num_classes", "cell"]):
            ms = group.set_index("method")[_MS]
            if REFERENCE not in ms or len(ms) < 2:
                continue
            by_rows = group["by_rows"]
            pairs = group[~by_rows].merge(group[by_rows], on="twin", suffixes=("", "_rows"))
            ratio = ms[REFERENCE] / ms.min()
            count = group.loc[group["method"] == REFERENCE, "count"].iloc[0]
            if count >= FEWEST_STEPS:
                ratios.setdefault(n, []).append(ratio)
            rows.append(
                {
                    "backend": backend,
                    "n": f"{n:,}",
                    f"`{REFERENCE}`, ms": timed(ms[REFERENCE], count),
                    "fastest": code(ms.idxmin()),
                    "ms": ms.min(),
                    f"`{REFERENCE}` / fastest": ratio,
                    "Keras' optimizer / row optimizer": (pairs[_MS] / pairs[f"{_MS}_rows"]).max(),
                    "page": page.link,
                }
            )
    what = f"a step of the fastest row is {{}} times shorter than one of `{REFERENCE}`"
    answer = answer_from(rows, ratios, what)
    return section("The cost of a training step", _STEPS, rows, answer)


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

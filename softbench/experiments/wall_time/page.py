"""Tables and plots of the task "wall_time". Needs no Keras."""

from collections.abc import Iterator, Mapping

import pandas as pd

from softbench.bench.records import sampler_name
from softbench.report import frame, measures
from softbench.report.plots import against_n
from softbench.report.tables import Table, growth, in_order, quantiles, table, text

_SHARED = "A row whose draws the batch shares is compared with `exp_shared`."
_PHASES = ("draw", "loss", "update")
_REFERENCE = "exp"
_MS = "loss_ms_p50"
_LINE = ["backend", "model", "num_classes", "method"]  # one each; others ran in other processes


def _rows(record: Mapping) -> Iterator[dict]:
    """A row for each method: its times, and memory and block size of its sums."""
    for name, phases in record["wall_time"].items():
        method = record["config"]["methods"][name]
        sampler = method.get("sampler", {})
        config = sampler.get("config", {}) if isinstance(sampler, Mapping) else {}
        shared = bool(config.get("share_draws"))
        row = {"method": name, "exact": sampler_name(method) == _REFERENCE, "shared": shared}
        for phase in _PHASES:
            row |= measures.times(phases.get(phase, {}).get("step_ms"), f"{phase}_ms")
        sums = record.get("sums", {}).get(name, {})
        yield row | {"sums_mb": sums.get("megabytes"), "block": sums.get("block_size")}


def _losses(records: list[dict]) -> pd.DataFrame:
    """The rows of all records, and the exact sampler's loss in the same process over the row's.

    Of draws that the batch shares it is that of the exact sampler whose draws are shared.
    """
    rows = frame.long(records, _rows).sort_values(["num_classes", "cell"], kind="stable")
    keys, times = ["record", "shared"], {_MS: "exact_ms", "loss_ms_p20": "exact_p20"}
    exact = rows[rows["exact"]].drop_duplicates(keys)[[*keys, *times]].rename(columns=times)
    rows = rows.merge(exact, on=keys, how="left")
    rows["ratio"] = rows["exact_ms"] / rows[_MS]
    rows["ratio_p20"] = rows["exact_p20"] / rows["loss_ms_p20"]
    return rows


def tables(plan: Mapping, records: list[dict]) -> list[Table]:
    """Returns the tables of wall time: one per backend, device, model and n, then the growth.

    Columns: median (p20-p80) of each phase; the paper's time of the loss; the exact sampler's loss
    over the row's, by medians and (less moved by what else the machine does) by 20th percentiles,
    and in the paper; memory and block size of the sums. Records of one n that were made in several
    processes are joined, each row's ratio being to the exact sampler of the same process.
    """
    losses = _losses(records)
    paper = {name: numbers["loss_ms"] for name, numbers in plan["paper"].items()}
    losses["paper_ms"] = (losses["group"] + "-" + losses["method"]).map(paper).astype(float)
    exact = (losses["group"] + f"-{_REFERENCE}").map(paper).astype(float)
    losses["ratio_paper"] = exact / losses["paper_ms"]
    losses = in_order(plan, losses.drop_duplicates(["device", *_LINE]))
    result = []
    for (backend, device, model), group in losses.groupby(["backend", "device", "model"]):
        where = f"{model}: {backend}, {device}"
        result += [_table(f"n = {n:,}, {where}", size) for n, size in group.groupby("num_classes")]
        if group["num_classes"].nunique() > 1:
            group = group.sort_values("num_classes", kind="stable")
            page = growth(group, _MS, _MS, "n = {}")
            page["growth"] = page["growth"].map(text)
            data = group[["method", "num_classes", _MS]]
            result.append(Table(f"Loss, ms, against n, {where}", page.reset_index(), data))
    return result


def _table(title: str, group: pd.DataFrame) -> Table:
    columns = {"method": "method"}
    for phase in _PHASES:
        times = [f"{phase}_ms_{quantile}" for quantile in ("p50", "p20", "p80")]
        columns[f"{phase}, ms (p20-p80)"] = (quantiles, *times)
    columns |= {"loss (paper)": "paper_ms", f"{_REFERENCE} / this": "ratio", "by p20": "ratio_p20"}
    columns |= {f"{_REFERENCE} / this (paper)": "ratio_paper", "sums, MB": "sums_mb"}
    if group["paper_ms"].isna().all():
        columns = {key: what for key, what in columns.items() if "paper" not in key}
    shown = table(title, group, columns | {"block": "block"})
    return shown._replace(words=_SHARED) if group["shared"].any() else shown


def plots(plan: Mapping, records: list[dict]) -> dict[str, tuple[str, dict]]:
    """Returns {file name: (caption, data)}: the loss against n for each batch and backend.

    Where there is one n, the table says it all.
    """
    losses = frame.long(records, _rows).dropna(subset=_MS)
    losses = losses.drop_duplicates(_LINE)
    return {
        f"loss-{model}-{backend}": (
            f"Sampled softmax loss, {model}, {backend}",
            against_n(group, _MS, "loss, ms"),
        )
        for (model, backend), group in losses.groupby(["model", "backend"])
        if group["num_classes"].nunique() > 1
    }

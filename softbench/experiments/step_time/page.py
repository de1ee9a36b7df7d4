"""Tables and plots of the task "step_time". Needs no Keras."""

import json
from collections.abc import Iterator, Mapping

import pandas as pd

from softbench.report import frame, measures
from softbench.report.choices import REFERENCE
from softbench.report.page import Page
from softbench.report.tables import Section, Table, answer_from, quantiles, section, wide

_MS = "step_ms_p50"


def _rows(record: Mapping) -> Iterator[dict]:
    """A row for each method; `twin` is the same for methods that differ in the optimizer alone."""
    for name, step in record["steps"].items():
        method = record["config"]["methods"].get(name, {})
        kwargs = dict(method.get("kwargs", {}))
        optimizer = kwargs.pop("row_optimizer", None)
        yield {
            "method": name,
            "is_peer": "peer" in method,
            "by_rows": optimizer is not None,
            "twin": json.dumps(method | {"kwargs": kwargs}, sort_keys=True),
            **measures.times(step["step_ms"], "step_ms"),
        }


def tables(plan: Mapping, records: list[dict]) -> list[Table]:
    """Returns tables of step times against n, one per backend and device.

    Columns: median (p20-p80) at each n, the growth from the smallest to the largest n, and the
    peer's median divided by the row's at the largest n, for each peer in the run.
    """
    steps = frame.long(records, _rows)
    return [_step_table(*place, own) for place, own in steps.groupby(["backend", "device"])]


def _step_table(backend: str, device: str, own: pd.DataFrame) -> Table:
    own = own.drop_duplicates(["num_classes", "method"], keep="last")
    own = own.sort_values("num_classes", kind="stable")
    page = wide(own, "method", "num_classes", (quantiles, _MS, "step_ms_p20", "step_ms_p80"))
    medians = own.pivot(index="method", columns="num_classes", values=_MS).loc[page.index]
    last = medians.iloc[:, -1]
    page.columns = [f"n = {n:,}, ms (p20-p80)" for n in page]
    ratios = {"growth": last / medians.iloc[:, 0]}
    peers = own.loc[own["is_peer"], "method"].unique()
    ratios |= {f"{peer} / this": last[peer] / last for peer in peers}
    for heading, ratio in ratios.items():
        page[heading] = ["-" if pd.isna(value) else f"{value:.3g}" for value in ratio]
    data = own[["method", "num_classes", _MS, "step_ms_p20", "step_ms_p80"]]
    return Table(f"{backend}, {device}", page.reset_index(), data)


_STEPS = """\
A whole step, forward, backward and update; the methods of a row of this table took turns in one
process. `full` / fastest tells what sampling saves, the last ratio what updating only the touched
rows saves on the same sampled softmax."""


def front(pages: list[Page]) -> Section:
    """The fastest step for each backend, device and n, against the full softmax.

    The last ratio is the largest of rows that differ in the optimizer alone.
    """
    columns = {
        "backend": "backend",
        "n": ("{:,}", "num_classes"),
        f"`{REFERENCE}`, ms": "reference_ms",
        "fastest": ("`{}`", "fastest"),
        "ms": "fastest_ms",
        f"`{REFERENCE}` / fastest": "ratio",
        "Keras' optimizer / row optimizer": "optimizers",
        "page": "page",
    }
    what = f"a step of the fastest row is {{}} times shorter than one of `{REFERENCE}`"
    return section(
        "The cost of a training step",
        _STEPS,
        [row for page in pages if "step_time" in page.tasks for row in _comparisons(page)],
        columns,
        lambda found: answer_from(found, ["ratio"], what),
    )


def _comparisons(page: Page) -> Iterator[dict]:
    """For each record the reference and the fastest of our own methods."""
    steps = frame.long(page.tasks["step_time"], _rows)
    steps = steps.sort_values(["backend", "num_classes", "cell"], kind="stable")
    for _, own in steps.groupby("record", sort=False):
        own = own[~own["is_peer"] & (own[_MS] > 0)]
        ms = own.set_index("method")[_MS]
        if REFERENCE not in ms or len(ms) < 2:
            continue
        pairs = own[~own["by_rows"]].merge(own[own["by_rows"]], on="twin", suffixes=("", "_rows"))
        yield {
            "backend": own["backend"].iloc[0],
            "num_classes": own["num_classes"].iloc[0],
            "reference_ms": ms[REFERENCE],
            "fastest": ms.idxmin(),
            "fastest_ms": ms.min(),
            "ratio": ms[REFERENCE] / ms.min(),
            "optimizers": (pairs[_MS] / pairs[f"{_MS}_rows"]).max(),
            "page": page.link,
        }


def plots(plan: Mapping, records: list[dict]) -> dict[str, tuple[str, dict]]:
    """Returns {file name: (caption, data)}: step time against n for each backend."""
    steps = frame.long(records, _rows).dropna(subset=_MS)
    return {
        f"steps-{backend}": (
            f"Step time, {backend}",
            {
                "x": "number of classes",
                "y": "step, ms",
                "log": "xy",
                "lines": {
                    name: sorted(map(list, zip(line["num_classes"], line[_MS], strict=True)))
                    for name, line in own.groupby("method", sort=False)
                },
            },
        )
        for backend, own in steps.groupby("backend", sort=False)
    }

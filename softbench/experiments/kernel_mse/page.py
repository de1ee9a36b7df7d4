"""Tables of the task "kernel_mse". Needs no Keras."""

from collections.abc import Iterator, Mapping

import pandas as pd

from softbench.report import frame
from softbench.report.tables import Table, half_interval, in_order, show

_REFERENCE = "rff_D1024"  # on the same pairs
_TARGETS = {"mse": "exp(o)", "gaussian": "exp(o - 1)"}


def _rows(record: Mapping) -> Iterator[dict]:
    for name, errors in record["errors"].items():
        method = record["config"]["methods"][name]
        for tau, own in errors.items():
            base = record["errors"].get(_REFERENCE, {}).get(tau)
            yield {
                "method": name,
                "source": "USPS" if record["source"] == "usps" else "generated images",
                "tau": float(tau),
                "target": _TARGETS.get(method.get("scored")),
                "scored": own.get(method.get("scored")),
                "paper": method.get("paper"),
                "mse": own["mse"],
                "relative": own["relative"],
                "over_reference": own["mse"] / base["mse"] if base else None,
            }


def tables(plan: Mapping, records: list[dict]) -> list[Table]:
    """Returns the paper's reading beside its numbers, then all maps on one target for each tau.

    Args:
        plan: the content of `experiment.json`.
        records: records of the task that ended well.
    """
    errors = in_order(plan, frame.long(records, _rows))
    found = []
    for source, own in errors.groupby("source", sort=False):
        scored = own[own["paper"].notna() & (own["tau"] == 1)]
        found += [_paper_table(source, scored)] if len(scored) else []
        found += [_error_table(source, *part) for part in own.groupby("tau", sort=False)]
    return found


def _paper_table(source: str, own: pd.DataFrame) -> Table:
    rows = own.groupby("method", sort=False).agg(
        target=("target", "first"),
        mean=("scored", "mean"),
        text=("scored", interval),
        paper=("paper", "first"),
    )
    rows["ratio"] = rows["mean"] / rows["paper"]
    columns = {
        "map": "method",
        "scored on": "target",
        "MSE": "text",
        "MSE (paper)": ("{:.1e}", "paper"),
        "ours / paper": ("{:.3g}", "ratio"),
    }
    page = show(rows.reset_index(), columns)
    data = own[["method", "seed", "target", "scored", "paper"]]
    return Table(f"The paper's reading, tau = 1: {source}", page, data)


def _error_table(source: str, tau: float, own: pd.DataFrame) -> Table:
    columns = {"mse": "MSE", "relative": "MSE / mean squared target"}
    if own["over_reference"].notna().any():
        columns["over_reference"] = f"MSE / that of {_REFERENCE}"
    page = own.groupby("method", sort=False)[list(columns)].agg(interval)
    page = page.rename(columns=columns).rename_axis("map").reset_index()
    return Table(
        f"One target for all, exp({tau:g} o): {source}", page, own[["method", "seed", *columns]]
    )


def interval(values: pd.Series) -> str:
    """Returns the mean and half of its 95 % interval: `2.1e-03 ± 2e-04`."""
    mean = values.mean()
    return f"{mean:.2e}" if len(values) < 2 else f"{mean:.2e} ± {half_interval(values):.0e}"

"""Tables of the task "kernel_mse". Needs no Keras."""

from collections.abc import Iterator, Mapping

import pandas as pd

from softbench.report import frame
from softbench.report.tables import Table, half_interval, in_order, show

_REFERENCE = "rff_D1024"  # on the same pairs
_ERRORS = {
    "mse": "MSE",
    "relative": "MSE / mean squared target",
    "over_reference": f"MSE / that of {_REFERENCE}",
}
_TARGETS = {"mse": "exp(o)", "gaussian": "exp(o - 1)"}


def _rows(record: Mapping) -> Iterator[dict]:
    for name, errors in record["errors"].items():
        method = record["config"]["methods"][name]
        for tau, error in errors.items():
            base = record["errors"].get(_REFERENCE, {}).get(tau)
            yield {
                "method": name,
                "source": "USPS" if record["source"] == "usps" else "generated images",
                "tau": float(tau),
                "target": _TARGETS.get(method.get("scored")),
                "scored": error.get(method.get("scored")),
                "paper": method.get("paper"),
                "mse": error["mse"],
                "relative": error["relative"],
                "over_reference": error["mse"] / base["mse"] if base else None,
            }


def tables(plan: Mapping, records: list[dict]) -> list[Table]:
    """Returns the paper's reading next to its numbers, then all maps on one target for each tau."""
    errors = in_order(plan, frame.long(records, _rows))
    result = []
    for source, rows in errors.groupby("source", sort=False):
        scored = rows[rows["paper"].notna() & (rows["tau"] == 1)]
        result += [_paper_table(source, scored)] if len(scored) else []
        for tau, group in rows.groupby("tau", sort=False):
            title = f"One target for all, exp({tau:g} o): {source}"
            columns = [name for name in _ERRORS if group[name].notna().any()]
            page = group.groupby("method", sort=False)[columns].agg(interval)
            page = page.rename(columns=_ERRORS).rename_axis("map").reset_index()
            result.append(Table(title, page, group[["method", "seed", *columns]]))
    return result


def _paper_table(source: str, errors: pd.DataFrame) -> Table:
    groups = errors.groupby("method", sort=False)
    rows = groups[["target", "paper"]].first().assign(text=groups["scored"].agg(interval))
    rows["ratio"] = groups["scored"].mean() / rows["paper"]
    columns = {
        "map": "method",
        "scored on": "target",
        "MSE": "text",
        "MSE (paper)": ("{:.1e}", "paper"),
        "ours / paper": ("{:.3g}", "ratio"),
    }
    data = errors[["method", "seed", "target", "scored", "paper"]]
    title = f"The paper's reading, tau = 1: {source}"
    return Table(title, show(rows.reset_index(), columns), data)


def interval(values: pd.Series) -> str:
    """Returns the mean and half of its 95 % interval: `2.1e-03 ± 2e-04`."""
    mean = values.mean()
    return f"{mean:.2e}" if len(values) < 2 else f"{mean:.2e} ± {half_interval(values):.0e}"

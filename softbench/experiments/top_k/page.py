"""Tables of the task "top_k". Needs no Keras."""

from collections.abc import Iterator, Mapping

from softbench.report import frame, measures
from softbench.report.tables import Table, in_order, table

_COLUMNS = {
    "method": "method",
    "recall": ("{:.4f}", "recall"),
    "ms (median)": "step_ms_p50",
    "p20": "step_ms_p20",
    "p80": "step_ms_p80",
    "of the exact time": ("{:.4f}", "share"),
    "cells": ("{:,.0f}", "cells"),
    "index, s": "index_seconds",
}


def tables(plan: Mapping, records: list[dict]) -> list[Table]:
    """Returns a table of the methods for each record."""
    return [_table(plan, record) for record in sorted(records, key=lambda r: r["cell"])]


def _table(plan: Mapping, record: Mapping) -> Table:
    rows = in_order(plan, frame.long([record], _rows))
    model = record["config"]["model"]
    sizes = f"n = {record['num_classes']:,}, d = {record['dim']}, B = {model['queries']}"
    sizes = f"{rows['dataset'].iloc[0]}, {sizes}"
    where = f"{rows['backend'].iloc[0]}, {rows['device'].iloc[0]}, seed {record['seed']}"
    return table(f"The {model['k']} best: {sizes}, {where}", rows, _COLUMNS)


def _rows(record: Mapping) -> Iterator[dict]:
    """A row for each method; the exact time is that of the faster exact one."""
    methods = record["top_k"]
    exact = [v["step_ms"]["median"] for v in methods.values() if v["index_seconds"] is None]
    for name, method in methods.items():
        yield {
            "method": name,
            "recall": method["recall"],
            **measures.times(method["step_ms"], "step_ms"),
            "share": method["step_ms"]["median"] / min(exact) if exact else None,
            "cells": method["cells"],
            "index_seconds": method["index_seconds"],
        }

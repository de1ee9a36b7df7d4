"""The learning rates that rows of training were chosen among. Needs no Keras."""

import json
from collections.abc import Mapping

import pandas as pd

from softbench.report import frame
from softbench.report.markdown import Markdown
from softbench.report.tables import Table, number, ordered, text

EDGE = "best at the edge of its grid"
_WORDS = """\
Validation {measure} after a short run with each learning rate, the same for all methods, with seed
{seed}. The row's results above are with the rate in **bold**."""


def tables(plan: Mapping, records: list[dict]) -> list[Table]:
    """Returns a table for each data set and model whose records have `rates`: a row per method."""
    groups: dict[str, dict[tuple, dict]] = {}
    for record in records:
        if record.get("rates"):
            config = record["config"]
            group = "-".join(frame.label(config[section]) for section in ("dataset", "model"))
            grid = json.dumps(record["rates"], sort_keys=True)  # the same for all seeds
            key = (next(iter(config["methods"])), config["backend"], grid)
            groups.setdefault(group, {}).setdefault(key, record)
    return [_table(plan, group, rows) for group, rows in groups.items()]


def _table(plan: Mapping, group: str, rows: Mapping[tuple, dict]) -> Table:
    order = ordered(plan, [method for method, *_ in rows])
    lines, data = [], []
    in_order = sorted(rows.items(), key=lambda row: order.index(row[0][0]))
    for (method, backend, _), record in in_order:
        rates = record["rates"]
        line = {"method": method, "backend": backend}
        for tried in rates["grid"]:
            shown = text(tried["value"]) if tried["value"] is not None else tried["status"]
            best = tried["rate"] == rates["chosen"]
            line[number(tried["rate"])] = Markdown(f"**{shown}**") if best else shown
            data.append({"method": method, "backend": backend, **tried, "chosen": best})
        lines.append(line | {"note": EDGE if _is_at_the_edge(rates) else ""})
    page = pd.DataFrame(lines, dtype=object).fillna("-")
    page["note"] = page.pop("note")
    words = _WORDS.format(measure=rates["measure"], seed=record["config"]["rate_budget"]["seed"])
    return Table(f"{group}: learning rates", page, pd.DataFrame(data), words)


def _is_at_the_edge(rates: Mapping) -> bool:
    tried = [row["rate"] for row in rates["grid"]]
    return len(tried) > 1 and rates["chosen"] in (min(tried), max(tried))

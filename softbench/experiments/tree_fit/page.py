"""Tables of the task "tree_fit". Needs no Keras."""

from collections.abc import Iterator, Mapping

import pandas as pd

from softbench.report import frame, measures
from softbench.report.tables import Table, in_order, table

_FIT = {
    "tree": "method",
    "seconds": "seconds",
    "processor seconds": "processor_seconds",
    "log p_n, train": "log_likelihood_train",
    "log p_n, test": "log_likelihood_test",
    "most alternations": "alternations",
    "levels settled": ("{:.0f} of {:.0f}", "settled", "levels"),
}


def tables(plan: Mapping, records: list[dict]) -> list[Table]:
    """Returns a table of fits for each data set and backend, then one of draws for each backend.

    Args:
        plan: the content of `experiment.json`.
        records: all records of a page.
    """
    fits = sorted((r for r in records if "fits" in r), key=lambda r: (r["num_points"], r["cell"]))
    draws = sorted((r for r in records if "draws" in r), key=lambda r: r["cell"])
    return [_fit_table(plan, r) for r in fits] + [_draw_table(r) for r in draws]


def _fit_table(plan: Mapping, record: Mapping) -> Table:
    """A row for the label frequencies (each count one more), then one for each method."""
    rows = in_order(plan, frame.long([record], _fits))
    frequency = {f"log_likelihood_{split}": value for split, value in record["frequency"].items()}
    first = pd.DataFrame([{"method": "label frequency", **frequency}])
    sizes = f"N = {record['num_points']:,}, n = {record['num_classes']:,}"
    where = f"{rows['backend'].iloc[0]}, seed {record['seed']}"
    title = f"Fit, {sizes}: {record['config']['dataset']['name']}, {where}"
    return table(title, pd.concat([first, rows], ignore_index=True), _FIT)


def _fits(record: Mapping) -> Iterator[dict]:
    for name, found in record["fits"].items():
        levels = found["levels"]
        likelihood = found["log_likelihood"].items()
        yield {
            "method": name,
            "seconds": found["seconds"],
            "processor_seconds": found["processor_seconds"],
            **{f"log_likelihood_{split}": value for split, value in likelihood},
            "alternations": max((level["alternations"] for level in levels), default=0),
            "settled": sum(level["settled"] for level in levels),
            "levels": len(levels),
        }


def _draw_table(record: Mapping) -> Table:
    draws = [
        {"num_classes": int(size), **measures.times(found["step_ms"], "draw_ms")}
        for size, found in record["draws"].items()
    ]
    draws = pd.DataFrame(draws).sort_values("num_classes")
    first = draws.iloc[0]
    draws["growth"] = draws["draw_ms_p50"] / first["draw_ms_p50"]
    columns = {
        "n": ("{:,}", "num_classes"),
        "draw, ms (median)": "draw_ms_p50",
        "p20": "draw_ms_p20",
        "p80": "draw_ms_p80",
        f"over n = {first['num_classes']:,.0f}": ("{:.3g}", "growth"),
    }
    model, backend = record["config"]["model"], record["config"]["backend"]
    options = f"B = {model['batch_size']}, m = {model['num_sampled']}, k = {model['dim']}"
    device = record["device"]["name"]
    return table(f"Draws against n, {options}: {backend}, {device}", draws, columns)

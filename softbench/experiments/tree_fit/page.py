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
    """Returns a table of fits for each data set and backend, then one of draws for each backend."""
    fits = sorted((r for r in records if "fits" in r), key=lambda r: (r["num_points"], r["cell"]))
    draws = sorted((r for r in records if "draws" in r), key=lambda r: r["cell"])
    return [_fit_table(plan, r) for r in fits] + [_draw_table(r) for r in draws]


def _fit_table(plan: Mapping, record: Mapping) -> Table:
    """A row for the label frequencies (each count one more), then one for each method."""
    config, rows = record["config"], in_order(plan, frame.long([record], _fits))
    first = pd.DataFrame([{"method": "label frequency", **_likelihood(record["frequency"])}])
    sizes = f"N = {record['num_points']:,}, n = {record['num_classes']:,}"
    title = f"Fit, {sizes}: {config['dataset']['name']}, {config['backend']}, seed {record['seed']}"
    return table(title, pd.concat([first, rows], ignore_index=True), _FIT)


def _fits(record: Mapping) -> Iterator[dict]:
    for name, fit in record["fits"].items():
        levels = fit["levels"]
        yield {
            "method": name,
            "seconds": fit["seconds"],
            "processor_seconds": fit["processor_seconds"],
            **_likelihood(fit["log_likelihood"]),
            "alternations": max((level["alternations"] for level in levels), default=0),
            "settled": sum(level["settled"] for level in levels),
            "levels": len(levels),
        }


def _likelihood(splits: Mapping) -> dict:
    return {f"log_likelihood_{split}": value for split, value in splits.items()}


def _draws(record: Mapping) -> Iterator[dict]:
    for size, draw in sorted(record["draws"].items(), key=lambda item: int(item[0])):
        yield {"size": int(size), **measures.times(draw["step_ms"], "draw_ms")}


def _draw_table(record: Mapping) -> Table:
    rows = frame.long([record], _draws)
    rows["growth"] = rows["draw_ms_p50"] / rows["draw_ms_p50"].iloc[0]
    columns = {
        "n": ("{:,}", "size"),
        "draw, ms (median)": "draw_ms_p50",
        "p20": "draw_ms_p20",
        "p80": "draw_ms_p80",
        f"over n = {rows['size'].iloc[0]:,}": ("{:.3g}", "growth"),
    }
    model = record["config"]["model"]
    options = f"B = {model['batch_size']}, m = {model['num_sampled']}, k = {model['dim']}"
    where = f"{rows['backend'].iloc[0]}, {rows['device'].iloc[0]}"
    return table(f"Draws against n, {options}: {where}", rows, columns)

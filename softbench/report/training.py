"""How the records of the task "train" are shown. Needs no Keras."""

from collections.abc import Iterator, Mapping

from softbench.report import measures
from softbench.report.frame import View, times

# {field of a record: its row}: what needs no training, the same for all methods.
BOUNDS = {"most_frequent": "(most frequent)", "oracle": "(oracle)"}


def rows(record: Mapping) -> Iterator[dict]:
    """Yields the row of a record: what its `final` and `best` hold, and what training costs.

    `best.valid_*` are of the best point of the learning curve; `<bound>.<measure>` what the most
    frequent classes score, and what the true distribution of generated data does.
    """
    curve = record.get("curve") or [{}]
    row = {"method": next(iter(record["config"]["methods"]), None)}
    row |= {f"best.{name}": value for name, value in _best(curve).items()}
    row |= record.get("final") or {}
    row |= {f"best.{name}": value for name, value in (record.get("best") or {}).items()}
    for field in BOUNDS:
        row |= {f"{field}.{name}": value for name, value in (record.get(field) or {}).items()}
    peak, tree = record.get("peak_memory_mb") or {}, record.get("tree") or {}
    rates = record.get("rates") or {}
    yield row | {
        "steps": curve[-1].get("step"),
        "price": (record.get("price") or {}).get("ratio"),
        **times(record.get("step_ms"), "step_ms"),
        **times(record.get("head_ms"), "head_ms"),
        "examples/s": record.get("examples_per_second"),
        "tokens/s": record.get("examples_per_second"),
        "compile_s": record.get("compile_seconds"),
        "memory_mb": peak.get("host"),
        "device_memory_mb": peak.get("device"),
        "head_mb": record.get("head_mb"),
        "tree_s": tree.get("fit_seconds"),
        **_rates(rates),
        **{f"tree.{name}": value for name, value in tree.items() if name.startswith("valid_")},
        "encoder_perplexity": (record.get("encoder") or {}).get("valid_perplexity"),
    }


def _rates(rates: Mapping) -> dict:
    """The rate of a row, what was tried for it, and whether the best one ends the grid."""
    if not rates:
        return {}
    tried = [one["rate"] for one in rates["grid"]]
    return {
        "rate": rates["chosen"],
        "rates": " ".join(f"{one['rate']:g}:{one['value']}" for one in rates["grid"]),
        "at_edge": len(tried) > 1 and rates["chosen"] in (min(tried), max(tried)),
    }


def _best(curve: list[Mapping]) -> dict[str, float]:
    """The best value of each measure of quality along a curve."""
    names = dict.fromkeys(name for point in curve for name in point if name.startswith("valid_"))
    best = {}
    for name in names:
        values = [point[name] for point in curve if point.get(name) is not None]
        if values and measures.of(name).better:
            best[name] = min(values) if measures.lower_is_better(name) else max(values)
    return best


VIEW = View(rows, keys=("group", "method", "backend"))

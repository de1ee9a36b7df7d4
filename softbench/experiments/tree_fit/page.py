"""How the records of the task "tree_fit" are shown. Needs no Keras."""

from collections.abc import Iterator, Mapping

from softbench.report.frame import View, times


def rows(record: Mapping) -> Iterator[dict]:
    """Yields a row for each fit and for the label frequencies, or for draws at each n."""
    for size, draw in record.get("draws", {}).items():
        yield {"method": "draws", "n": int(size), **times(draw["step_ms"], "draw_ms")}
    if "fits" in record:
        of_data = {"points": record["num_points"]}
        yield {"method": "frequencies", **of_data, **_likelihood(record["frequency"])}
        for name, fit in record["fits"].items():
            yield {
                "method": name,
                **of_data,
                "seconds": fit["seconds"],
                "processor_seconds": fit["processor_seconds"],
                **_likelihood(fit["log_likelihood"]),
                "settled": sum(level["settled"] for level in fit["levels"]),
                "levels": len(fit["levels"]),
            }


def _likelihood(splits: Mapping) -> dict:
    return {f"log_likelihood_{split}": value for split, value in splits.items()}


VIEW = View(
    rows,
    keys=("dataset", "method", "n"),
    columns=("seconds", "log_likelihood_train", "log_likelihood_test", "draw_ms"),
    picture={"x": "n", "y": "draw_ms"},
)

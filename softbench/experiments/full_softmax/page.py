"""How the records of the task "full_softmax" are shown. Needs no Keras."""

from collections.abc import Iterator, Mapping

from softbench.report.frame import View, times


def rows(record: Mapping) -> Iterator[dict]:
    """Yields a row for each method, with its ratios to others of the same process.

    TFLOP/s are of the 6 B n d operations of the three products, whatever else a method does.
    """
    model, steps = record["config"]["model"], record["steps"]
    operations = 6.0 * model["batch_size"] * record["num_classes"] * model["dim"]
    medians = {name: step["step_ms"]["median"] for name, step in steps.items()}
    for name, step in steps.items():
        ms = medians[name]
        yield {
            "method": name,
            "dtype": model["dtype"],
            "batch": model["batch_size"],
            "dim": model["dim"],
            **times(step["step_ms"], "step_ms"),
            "count": step["step_ms"]["count"],
            "peak_mib": record["memory"].get(name, {}).get("peak_mib"),
            "tflops": operations / ms / 1e9,
            **{
                f"over_{other}": ms / medians[other]
                for other in ("products", "keras")
                if other in medians
            },
        }


VIEW = View(
    rows,
    keys=("backend", "dtype", "n", "method"),
    columns=("step_ms", "over_keras", "peak_mib", "tflops"),
    picture={"x": "n", "y": "step_ms"},
)

"""How the records of the task "step_time" are shown. Needs no Keras."""

from collections.abc import Iterator, Mapping

from softbench.report.frame import View, times


def rows(record: Mapping) -> Iterator[dict]:
    """Yields a row for each method; with its memory where it had a process of its own.

    Of a method whose row names `parts`, other methods, also its time over the sum of theirs.
    """
    medians = {name: step["step_ms"]["median"] for name, step in record["steps"].items()}
    memory = {}
    if len(record["steps"]) == 1:
        peak = (record.get("peak_memory_mb") or {}).get("host")
        memory = {"resident_mb": record.get("resident_mb"), "peak_mb": peak}
    for name, step in record["steps"].items():
        count, of_step = step["step_ms"].get("count"), times(step["step_ms"], "step_ms")
        parts = record["config"]["methods"][name].get("parts", ())
        over = {}
        if parts and set(parts) <= set(medians):
            over = {"over_parts": medians[name] / sum(medians[part] for part in parts)}
        yield {"method": name, "count": count, **of_step, **over, **memory}


VIEW = View(
    rows,
    keys=("backend", "method", "n"),
    columns=("step_ms", "over_parts", "resident_mb", "peak_mb"),
    picture={"x": "n", "y": "step_ms"},
)

"""How the records of the task "step_time" are shown. Needs no Keras."""

from collections.abc import Iterator, Mapping

from softbench.report.frame import View, times


def rows(record: Mapping) -> Iterator[dict]:
    """Yields a row for each method; with its memory where it had a process of its own."""
    memory = {}
    if len(record["steps"]) == 1:
        peak = (record.get("peak_memory_mb") or {}).get("host")
        memory = {"resident_mb": record.get("resident_mb"), "peak_mb": peak}
    for name, step in record["steps"].items():
        count = step["step_ms"].get("count")
        yield {"method": name, "count": count, **times(step["step_ms"], "step_ms"), **memory}


VIEW = View(
    rows,
    keys=("backend", "method", "n"),
    columns=("step_ms", "resident_mb", "peak_mb"),
    picture={"x": "n", "y": "step_ms"},
)

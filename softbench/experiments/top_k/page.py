"""How the records of the task "top_k" are shown. Needs no Keras."""

from collections.abc import Iterator, Mapping

from softbench.report.frame import View, times


def rows(record: Mapping) -> Iterator[dict]:
    """Yields a row for each method; the exact time is that of the faster exact one."""
    methods = record["top_k"]
    exact = [v["step_ms"]["median"] for v in methods.values() if v["index_seconds"] is None]
    for name, method in methods.items():
        yield {
            "method": name,
            "recall": method["recall"],
            **times(method["step_ms"], "step_ms"),
            "share": method["step_ms"]["median"] / min(exact) if exact else None,
            "cells": method["cells"],
            "index_seconds": method["index_seconds"],
        }


VIEW = View(
    rows,
    keys=("dataset", "method"),
    columns=("recall", "step_ms", "share"),
    picture={"x": "step_ms", "y": "recall", "log": "x"},
)

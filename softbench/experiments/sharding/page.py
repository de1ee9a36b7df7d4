"""How the records of the task "sharding" are shown. Needs no Keras."""

from collections.abc import Iterator, Mapping

from softbench.report.frame import View, times

_MIB = 2.0**20


def rows(record: Mapping) -> Iterator[dict]:
    """Yields a row for each method: its time, bytes on a device, and what a step sends.

    Bytes sent are those of the results of all collective instructions of the compiled step on one
    device, an instruction in a loop or in a branch counted once.
    """
    for name, step in record["steps"].items():
        sent, temporary = step["collectives"].values(), step["temporary_bytes"]
        yield {
            "method": name,
            "devices": record["devices"],
            "dim": record["config"]["model"]["dim"],
            **times(step["step_ms"], "step_ms"),
            "table_mib": step["table_bytes"] / _MIB,
            "state_mib": step["state_bytes"] / _MIB,
            "temporary_mib": None if temporary is None else temporary / _MIB,
            "collectives": sum(one["count"] for one in sent),
            "sent_kib": sum(one["bytes"] for one in sent) / 1024,
            "largest_elements": step["largest_elements"],
        }


VIEW = View(
    rows,
    keys=("n", "method", "devices"),
    columns=("step_ms", "table_mib", "state_mib", "sent_kib", "largest_elements"),
    picture={"x": "devices", "y": "state_mib"},
)

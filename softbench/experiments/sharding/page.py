"""Tables of the task "sharding". Needs no Keras."""

from collections.abc import Iterator, Mapping

from softbench.report import frame, measures
from softbench.report.tables import Table, in_order, quantiles, table

_MIB = 2.0**20
_COLUMNS = {
    "method": "method",
    "devices": "devices",
    "step, ms (p20-p80)": (quantiles, "step_ms_p50", "step_ms_p20", "step_ms_p80"),
    "table on a device, MiB": ("{:,.1f}", "table_mib"),
    "all state on a device, MiB": ("{:,.1f}", "state_mib"),
    "temporary on a device, MiB": ("{:,.1f}", "temporary_mib"),
    "collectives in a step": "collectives",
    "their bytes, KiB": ("{:,.1f}", "sent_kib"),
    "largest of them / (n d)": ("{:.2g}", "share"),
}
_WORDS = """\
Virtual devices of one processor share its cores: the times are a test of overhead, not of speed.
Bytes are those of the results of all collective instructions of the compiled step on one device, an
instruction in a loop or in a branch counted once; the last column tells that none of them has the
numbers of a class table."""


def tables(plan: Mapping, records: list[dict]) -> list[Table]:
    """Returns a table for each data set and device: the methods against the number of devices."""
    result = []
    rows = frame.long(records, _rows)
    if rows.empty:  # all were skipped
        return []
    for (dataset, dim, backend, device), group in rows.groupby(
        ["dataset", "dim", "backend", "device"], sort=False
    ):
        group = in_order(plan, group.sort_values("devices"))
        title = f"{dataset}, d = {dim}: {backend}, {device}"
        result.append(table(title, group, _COLUMNS)._replace(words=_WORDS))
    return result


def _rows(record: Mapping) -> Iterator[dict]:
    """A row for each method."""
    model = record["config"]["model"]
    numbers = record["num_classes"] * model["dim"]
    for name, step in record["steps"].items():
        sent = step["collectives"].values()
        temporary = step["temporary_bytes"]
        yield {
            "method": name,
            "devices": record["devices"],
            "dim": model["dim"],
            **measures.times(step["step_ms"], "step_ms"),
            "table_mib": step["table_bytes"] / _MIB,
            "state_mib": step["state_bytes"] / _MIB,
            "temporary_mib": None if temporary is None else temporary / _MIB,
            "collectives": sum(one["count"] for one in sent),
            "sent_kib": sum(one["bytes"] for one in sent) / 1024,
            "share": step["largest_elements"] / numbers,
        }

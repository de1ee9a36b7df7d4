"""How the records of the task "wall_time" are shown. Needs no Keras."""

from collections.abc import Iterator, Mapping

from softbench.bench.records import sampler_kinds
from softbench.report.frame import View, times


def rows(record: Mapping) -> Iterator[dict]:
    """Yields a row for each method: its times, memory of its sums, and the exact draws' time over
    it in the same process; of draws that the batch shares that of exact draws that it shares.
    """
    kinds, exact = sampler_kinds(record), {}
    for name, phases in record["wall_time"].items():
        if kinds[name] == "exact" and "loss" in phases:
            exact.setdefault(_is_shared(record, name), phases["loss"]["step_ms"]["median"])
    for name, phases in record["wall_time"].items():
        row = {"method": name, "shared": _is_shared(record, name)}
        for phase in ("draw", "loss", "update"):
            row |= times(phases.get(phase, {}).get("step_ms"), f"{phase}_ms")
        if row["loss_ms"] and row["shared"] in exact:
            row["exact_over"] = exact[row["shared"]] / row["loss_ms"]
        sums = record.get("sums", {}).get(name, {})
        yield row | {"sums_mb": sums.get("megabytes"), "block": sums.get("block_size")}


def _is_shared(record: Mapping, name: str) -> bool:
    sampler = record["config"]["methods"][name].get("sampler", {})
    config = sampler.get("config", {}) if isinstance(sampler, Mapping) else {}
    return bool(config.get("share_draws"))


VIEW = View(
    rows,
    keys=("backend", "n", "model", "method"),
    columns=("draw_ms", "loss_ms", "update_ms", "exact_over", "sums_mb"),
    picture={"x": "n", "y": "loss_ms"},
)

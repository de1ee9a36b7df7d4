"""How the records of the task "wall_time" are shown. Needs no Keras."""

from collections.abc import Iterator, Mapping

from softbench.report.frame import View, times


def rows(record: Mapping) -> Iterator[dict]:
    """Yields a row for each method: its times, memory of its sums, and the exact draws' time over
    it in the same process; of draws that the batch shares that of exact draws that it shares.
    """
    methods, exact = record["config"]["methods"], {}
    samplers = {name: method.get("sampler", {}) for name, method in methods.items()}
    shared = {name: bool(s.get("config", {}).get("share_draws")) for name, s in samplers.items()}
    for name, phases in record["wall_time"].items():
        if samplers[name].get("class_name") == "exp" and "loss" in phases:
            exact.setdefault(shared[name], phases["loss"]["step_ms"]["median"])
    for name, phases in record["wall_time"].items():
        row = {"method": name, "shared": shared[name]}
        for phase in ("draw", "loss", "update"):
            row |= times(phases.get(phase, {}).get("step_ms"), f"{phase}_ms")
        if row["loss_ms"] and row["shared"] in exact:
            row["exact_over"] = exact[row["shared"]] / row["loss_ms"]
        sums = record.get("sums", {}).get(name, {})
        yield row | {"sums_mb": sums.get("megabytes"), "block": sums.get("block_size")}


VIEW = View(
    rows,
    keys=("backend", "n", "model", "method"),
    columns=("draw_ms", "loss_ms", "update_ms", "exact_over", "sums_mb"),
    picture={"x": "n", "y": "loss_ms"},
)

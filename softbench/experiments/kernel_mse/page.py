"""Tables of the task "kernel_mse", from records. Needs no Keras."""

from collections.abc import Mapping

from softbench.report.tables import Table, interval, ordered

_REFERENCE = "rff_D1024"  # on the same pairs


def tables(plan: Mapping, records: list[dict]) -> list[Table]:
    """Returns the tables of each set of images.

    Args:
        plan: the content of `experiment.json`.
        records: records of the task that ended well.
    """
    found: list[Table] = []
    for source in sorted({record["source"] for record in records}):
        found += _error_tables(plan, source, [r for r in records if r["source"] == source])
    return found


def _error_tables(plan: Mapping, source: str, records: list[dict]) -> list[Table]:
    """The paper's reading beside the paper's numbers, then all maps on one target for each tau."""
    methods, first = records[0]["config"]["methods"], records[0]
    order = ordered(plan, first["errors"])
    images = "USPS" if source == "usps" else "generated images"
    rows = []
    for name in order:
        method = methods[name]
        if "paper" in method:
            target = {"mse": "exp(o)", "gaussian": "exp(o - 1)"}[method["scored"]]
            values = [record["errors"][name]["1.0"][method["scored"]] for record in records]
            mean = sum(values) / len(values)
            ratio = f"{mean / method['paper']:.3g}"
            rows.append([name, target, interval(values), f"{method['paper']:.1e}", ratio])
    header = ["map", "scored on", "MSE", "MSE (paper)", "ours / paper"]
    tables = [Table(f"The paper's reading, tau = 1: {images}", header, rows)] if rows else []
    for tau in first["errors"][order[0]]:
        lines = []
        for name in order:
            errors = [record["errors"][name][tau] for record in records]
            row = [name, *(interval([e[key] for e in errors]) for key in ("mse", "relative"))]
            if _REFERENCE in first["errors"]:
                base = [record["errors"][_REFERENCE][tau]["mse"] for record in records]
                pairs = zip(errors, base, strict=True)
                row.append(interval([e["mse"] / own for e, own in pairs]))
            lines.append(row)
        header = ["map", "MSE", "MSE / mean squared target"]
        if _REFERENCE in first["errors"]:
            header.append(f"MSE / that of {_REFERENCE}")
        tables.append(Table(f"One target for all, exp({float(tau):g} o): {images}", header, lines))
    return tables

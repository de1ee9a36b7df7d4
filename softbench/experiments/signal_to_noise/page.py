"""Tables of the task "signal_to_noise". Needs no Keras."""

from collections.abc import Iterator, Mapping

from softbench.report import frame
from softbench.report.tables import Table, in_order, table

_BEST = "data"  # p_n = p_D, the method that the others are compared with
_COLUMNS = {
    "noise": "method",
    "KL(p_D, p_n), nats": "kl",
    "1 / SNR": ("{:.4f}", "closed_form"),
    "Monte Carlo": ("{:.4f} ± {:.4f}", "monte_carlo", "error"),
    "z": ("{:+.1f}", "z"),
    "SNR / p_D's": ("{:.4f}", "ratio"),
}


def _rows(record: Mapping) -> Iterator[dict]:
    scale = record["num_inputs"] ** 2  # N sum_x: what is left is a mean over the inputs
    best = record["noise"].get(_BEST, {}).get("negatives", {})
    for name, noise in record["noise"].items():
        for size, estimate in noise["negatives"].items():
            row = {key: estimate[key] / scale for key in ("closed_form", "monte_carlo", "error")}
            exact, error = row["closed_form"], row["error"]
            row["z"] = (row["monte_carlo"] - exact) / error if error else None
            row["ratio"] = best[size]["closed_form"] / scale / exact if best else None
            yield {"method": name, "negatives": int(size), "kl": noise["kl"], **row}


def tables(plan: Mapping, records: list[dict]) -> list[Table]:
    """Returns one table for each problem and number of negatives."""
    rows = frame.long(records, _rows).sort_values(["num_classes", "cell"], kind="stable")
    result = []
    for (_, size), group in rows.groupby(["record", "negatives"], sort=False):
        many = "1 negative" if size == 1 else f"{size} negatives"
        group = in_order(plan, group[group["method"].isin(plan["methods"])])
        result.append(table(f"{group['dataset'].iloc[0]}, {many}", group, _COLUMNS))
    return result

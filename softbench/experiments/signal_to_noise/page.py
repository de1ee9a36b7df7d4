"""Tables of the task "signal_to_noise", from records alone. Needs no Keras."""

from collections.abc import Mapping

from softbench.report.tables import Table, label, number

_BEST = "data"  # p_n = p_D, the method that the others are compared with


def tables(plan: Mapping, records: list[dict]) -> list[Table]:
    """Returns one table for each problem and number of negatives.

    Args:
        plan: the content of `experiment.json`.
        records: all records of a page.
    """
    found = []
    for record in sorted(records, key=lambda r: (r["num_classes"], r["cell"])):
        order = [name for name in plan["methods"] if name in record["noise"]]
        for size in next(iter(record["noise"].values()))["negatives"]:
            rows = [_row(record, name, size) for name in order]
            many = "1 negative" if size == "1" else f"{size} negatives"
            title = f"{label(record['config']['dataset'])}, {many}"
            header = ["noise", "KL(p_D, p_n), nats", "1 / SNR", "Monte Carlo", "z", "SNR / p_D's"]
            found.append(Table(title, header, rows))
    return found


def _row(record: Mapping, name: str, size: str) -> list[str]:
    found = record["noise"][name]["negatives"][size]
    scale = record["num_inputs"] ** 2  # N sum_x: what is left is a mean over the inputs
    exact, mean, error = (found[k] / scale for k in ("closed_form", "monte_carlo", "error"))
    best = record["noise"].get(_BEST)
    ratio = best["negatives"][size]["closed_form"] / found["closed_form"] if best else None
    return [
        name,
        number(record["noise"][name]["kl"]),
        f"{exact:.4f}",
        f"{mean:.4f} ± {error:.4f}",
        f"{(mean - exact) / error:+.1f}" if error else "-",
        "-" if ratio is None else f"{ratio:.4f}",
    ]

"""How the records of the task "signal_to_noise" are shown. Needs no Keras."""

from collections.abc import Iterator, Mapping

from softbench.report.frame import View

_BEST = "data"  # p_n = p_D, the noise that the others are compared with


def rows(record: Mapping) -> Iterator[dict]:
    """Yields a row for each noise and number of negatives; 1 / SNR over N times the inputs."""
    scale = record["num_inputs"] ** 2  # N sum_x: what is left is a mean over the inputs
    best = record["noise"].get(_BEST, {}).get("negatives", {})
    for name, noise in record["noise"].items():
        for size, estimate in noise["negatives"].items():
            row = {key: estimate[key] / scale for key in ("closed_form", "monte_carlo", "error")}
            if size in best:
                row["signal"] = best[size]["closed_form"] / scale / row["closed_form"]
            yield {"method": name, "negatives": int(size), "kl": noise["kl"], **row}


VIEW = View(
    rows,
    keys=("dataset", "method", "negatives"),
    columns=("kl", "closed_form", "monte_carlo", "signal"),
    picture={"x": "kl", "y": "signal"},
)

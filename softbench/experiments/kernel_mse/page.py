"""How the records of the task "kernel_mse" are shown. Needs no Keras."""

from collections.abc import Iterator, Mapping

from softbench.report.frame import View


def rows(record: Mapping) -> Iterator[dict]:
    """Yields a row for each feature map and tau: its errors, and how the paper scores it."""
    for name, by_tau in record["errors"].items():
        method = record["config"]["methods"][name]
        for tau, error in by_tau.items():
            yield {
                "method": name,
                "source": "USPS" if record["source"] == "usps" else "generated images",
                "tau": float(tau),
                "mse": error["mse"],
                "gaussian": error.get("gaussian"),
                "relative": error["relative"],
                "scored": error.get(method.get("scored")),
                "published": method.get("paper"),
            }


VIEW = View(
    rows,
    keys=("method", "tau"),
    columns=("mse", "relative", "scored", "published"),
    picture={"x": "tau", "y": "relative"},
)

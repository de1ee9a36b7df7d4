"""How the records of the task "nce_efficiency" are shown. Needs no Keras."""

from collections.abc import Iterator, Mapping

from softbench.report.frame import View


def rows(record: Mapping) -> Iterator[dict]:
    """Yields a row for each method and K; of the counterexample one for each n too."""
    for size, methods in record.get("ratios", {}).items():
        for method, sizes in methods.items():
            for negatives, ratio in sizes.items():
                yield {**_of(method, negatives), "size": int(size), "estimate": ratio}
    for method, sizes in record.get("measured", {}).items():
        exact = record["exact"]
        for negatives, measured in sizes.items():
            yield {
                **_of(method, negatives),
                "msd": measured["mean"],
                "msd_exact": exact["methods"][method][negatives],
                "limit": exact["limits"].get(method),
                "fisher": exact["fisher"],
                **{key: value for key, value in measured.items() if key != "mean"},
            }


def _of(method: str, negatives: str) -> dict:
    """The method, and its K; maximum likelihood has none."""
    return {"method": method, "negatives": None if negatives == "-" else int(negatives)}


VIEW = View(
    rows,
    keys=("dataset", "method", "negatives"),
    columns=("msd", "msd_exact", "fisher", "distance"),
    picture={"x": "negatives", "y": "msd"},
)

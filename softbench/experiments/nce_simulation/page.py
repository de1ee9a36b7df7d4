"""How the records of the task "nce_simulation" are shown. Needs no Keras."""

from collections.abc import Iterator, Mapping

from softbench.report.frame import View


def rows(record: Mapping) -> Iterator[dict]:
    """Yields a row for each |X|, n, method and K.

    `kl_to_truth` is missing where there was no minimum; `kl_over_mle` is over that of maximum
    likelihood on the same data, `kl_over_most` over that of the method's largest K;
    `unnormalised` is the KL of exp(s) as it is, and `limit` what n times 2 KL tends to (without
    b_x: KL).
    """
    methods = record["config"]["methods"]
    best = next(name for name, method in methods.items() if method["objective"] == "likelihood")
    for inputs, results in record["inputs"].items():
        for size, by_method in results["kl"].items():
            for method, values in by_method.items():
                most = max(values, key=lambda k: -1 if k == "-" else int(k))
                free = results["unnormalised"][size].get(method) or {}
                for negatives, kl in values.items():
                    yield {
                        "method": method,
                        "negatives": None if negatives == "-" else int(negatives),
                        "inputs": int(inputs),
                        "size": int(size),
                        "kl_to_truth": kl,
                        "kl_over_mle": _ratio(kl, by_method[best]["-"]),
                        "kl_over_most": _ratio(kl, values[most]),
                        "unnormalised": free.get(negatives),
                        "limit": results["limits"][method][negatives],
                    }


def _ratio(value: float | None, base: float | None) -> float | None:
    return None if value is None or base is None else value / base


VIEW = View(
    rows,
    keys=("dataset", "inputs", "size", "method", "negatives"),
    columns=("kl_to_truth", "kl_over_mle"),
    picture={"x": "size", "y": "kl_to_truth", "log": "xy"},
)

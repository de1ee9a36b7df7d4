"""How the records of the task "mutual_information" are shown. Needs no Keras."""

import math
from collections.abc import Iterator, Mapping

from softbench.report.frame import View


def rows(record: Mapping) -> Iterator[dict]:
    """Yields a row for each critic and number of candidates N."""
    for name, sizes in record["critics"].items():
        for size, values in sizes.items():
            least, largest = values.get("partition") or (None, None)
            yield {
                "method": name,
                "candidates": int(size),
                "information": record["mutual_information"],
                "ceiling": math.log(int(size)),
                "least": record["local_optimum"].get(size),
                **{key: value for key, value in values.items() if key not in ("partition", "kl")},
                "recovered_kl": values.get("kl"),
                "least_sum": least,
                "largest_sum": largest,
            }


VIEW = View(
    rows,
    keys=("dataset", "method", "candidates"),
    columns=("bound", "ceiling", "local", "least"),
    picture={"x": "candidates", "y": "bound"},
)

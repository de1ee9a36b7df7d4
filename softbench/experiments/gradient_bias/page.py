"""How the records of the task "gradient_bias" are shown. Needs no Keras."""

import math
from collections.abc import Iterator, Mapping

from softbench.report.frame import View

_HEAD = ["valid_perplexity", "mutual_information", "batch", "contexts"]


def rows(record: Mapping) -> Iterator[dict]:
    """Yields a row for each sampler and number of draws."""
    for name, quality in record["samplers"].items():
        row = {"method": name, **{key: record[key] for key in _HEAD}}
        row["ess"] = quality["ess"]
        row["kl"] = math.inf if quality["kl"] is None else quality["kl"]  # as a record spells it
        for size, bias in quality["bias"].items():
            yield row | {"num_sampled": int(size), **bias}


VIEW = View(
    rows,
    keys=("method", "num_sampled"),
    columns=("kl", "ess", "worst", "upper"),
    picture={"x": "num_sampled", "y": "worst"},
)

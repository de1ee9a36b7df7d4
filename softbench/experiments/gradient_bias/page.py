"""Tables of the task "gradient_bias". Needs no Keras."""

import json
from collections.abc import Iterator, Mapping

from softbench.report import frame
from softbench.report.tables import Table, in_order, or_infinite, percent, table

_KEYS = ["head", "method", "num_sampled"]
_ONE_HEAD = ["valid_perplexity", "mutual_information", "batch", "contexts"]
_HEAD = {
    "head": "head",
    "validation perplexity": "valid_perplexity",
    "mutual information, nats": "mutual_information",
    "contexts": ("{}", "batch"),
}
_PROPOSALS = {
    "sampler": "method",
    "KL(p, q), nats": (or_infinite, "kl"),
    "ESS": (percent, "ess"),
    "p/q min": (or_infinite, "ratio_min"),
    "p/q median": (or_infinite, "ratio_median"),
    "p/q max": (or_infinite, "ratio_max"),
    "negative": (percent, "negative_share"),
}
_BIAS = {
    "sampler": "method",
    "worst bias": (or_infinite, "worst"),
    "standard error": ("{:.1e}", "error"),
    "LB": (or_infinite, "lower"),
    "UB": (or_infinite, "upper"),
    "contexts inside": ("{} of {}", "inside", "contexts"),
}


def _rows(record: Mapping) -> Iterator[dict]:
    """A row for each sampler, and for each m in its `bias`."""
    same = {key: value for key, value in record["config"].items() if key != "methods"}
    common = {"head": json.dumps([same, record["valid_perplexity"]], sort_keys=True)}
    common |= {key: record[key] for key in _ONE_HEAD}
    for name, quality in record["samplers"].items():
        row = common | {key: quality[key] for key in ("kl", "ess", "negative_share")}
        row |= {f"ratio_{end}": value for end, value in quality["ratio"].items()}
        for size, bias in quality["bias"].items():
            yield row | {"method": name, "num_sampled": int(size), **bias}


def tables(plan: Mapping, records: list[dict]) -> list[Table]:
    """Returns the tables of each trained head."""
    result = []
    for _, rows in frame.once(records, _rows, _KEYS).groupby("head", sort=False):
        rows = in_order(plan, rows.assign(head="full"))
        first = rows.head(1)
        where = f"{first['dataset'].item()}, n = {first['num_classes'].item():,}"
        where += f", {first['backend'].item()}"
        proposals = rows.drop_duplicates("method")
        result.append(table(f"The trained head: {where}", first, _HEAD))
        result.append(table(f"Proposals against the softmax: {where}", proposals, _PROPOSALS))
        result += [
            table(f"Theorem 1 with m = {size:,}: {where}", bias, _BIAS)
            for size, bias in rows.groupby("num_sampled")
        ]
    return result

"""Tables of the task "proposals". Needs no Keras."""

import json
from collections.abc import Iterator, Mapping

import pandas as pd

from softbench.report import frame
from softbench.report.tables import (
    Table,
    in_order,
    or_infinite,
    percent,
    quantiles,
    table,
)

_BUCKETS = ("head", "torso", "tail")
_HEAD = {
    "trained": (percent, "fraction"),
    "validation perplexity": "valid_perplexity",
    "mutual information, nats": "mutual_information",
    "contexts": ("{}", "batch"),
}
_PROPOSALS = {
    "sampler": "method",
    "fitted at": (percent, "built"),
    "rows a batch": ("{:,}", "draws"),
    "draw, ms (p20-p80)": (quantiles, "draw_ms_median", "draw_ms_p20", "draw_ms_p80"),
    "KL(p, q), nats": (or_infinite, "kl"),
    "ESS": (percent, "ess"),
    "rv": (or_infinite, "rv"),
    "rv of rows, median": (or_infinite, "row_rv_median"),
    **{f"median, {b}": (or_infinite, f"row_rv_median_{b}") for b in _BUCKETS},
    **{f"mean, {b}": (or_infinite, f"row_rv_mean_{b}") for b in _BUCKETS},
}


def _rows(record: Mapping) -> Iterator[dict]:
    """A row for each sampler and point, with what is known of the head there."""
    config = record["config"]
    same = {key: value for key, value in config.items() if key != "methods"}
    key = json.dumps([same, record["heads"]], sort_keys=True)
    heads = {head["fraction"]: head for head in record["heads"]}
    for name, found in record["samplers"].items():
        times = {f"draw_ms_{part}": value for part, value in found["draw_ms"].items()}
        for point in found["points"]:
            rows = {f"row_rv_{part}": value for part, value in point["row_rv"].items()}
            row = {"head": key, "method": name, "batch": record["batch"], **times}
            row |= {"draws": found["draws"], **heads[point["fraction"]]}
            yield row | {k: v for k, v in point.items() if k != "row_rv"} | rows


def _one_run(records: list[dict]) -> pd.DataFrame:
    """The rows of all runs on one head, as if they had been one run."""
    rows = frame.long(sorted(records, key=lambda record: record["cell"]), _rows)
    return rows.drop_duplicates(["head", "method", "fraction", "built"])


def tables(plan: Mapping, records: list[dict]) -> list[Table]:
    """Returns, for each head, its quality as it trains, then the proposals at each point."""
    found = []
    for _, own in _one_run(records).groupby("head", sort=False):
        first = own.iloc[0]
        where = f"{first['dataset']}, n = {first['num_classes']:,}, {first['backend']}"
        own = in_order(plan, own)
        found.append(table(f"The head: {where}", own.drop_duplicates("fraction"), _HEAD))
        found += [
            table(f"Proposals after {100 * fraction:g} % of the steps: {where}", part, _PROPOSALS)
            for fraction, part in own.groupby("fraction", sort=False)
        ]
    return found

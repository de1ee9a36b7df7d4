"""Tables of the task "proposals". Needs no Keras."""

import json
import math
from collections.abc import Iterator, Mapping

import pandas as pd
from scipy import stats

from softbench.report import frame
from softbench.report.tables import (
    Table,
    in_order,
    or_infinite,
    percent,
    quantiles,
    table,
)

SMALLEST = 1e-6  # shown in the plots
_BUCKETS = ("head", "torso", "tail")
_HEAD = {
    "trained": (percent, "fraction"),
    "validation perplexity": "valid_perplexity",
    "mutual information, nats": "mutual_information",
    "contexts": ("{}", "batch"),
}
_PROPOSALS = {
    "sampler": "method",
    "perplexity": "reached",
    "fitted at": ("{}", "fitted"),
    "rows a batch": ("{:,}", "draws"),
    "draw, ms (p20-p80)": (quantiles, "draw_ms_median", "draw_ms_p20", "draw_ms_p80"),
    "KL(p, q), nats": (or_infinite, "kl"),
    "ESS": (percent, "ess"),
    "rv": (or_infinite, "rv"),
    "rv of rows, median": (or_infinite, "row_rv_median"),
    **{f"median, {b}": (or_infinite, f"row_rv_median_{b}") for b in _BUCKETS},
    **{f"mean, {b}": (or_infinite, f"row_rv_mean_{b}") for b in _BUCKETS},
}


# What might order samplers by how well a head trains with them, the smaller the better.
_FIGURES = {
    "KL": "kl",
    "-ESS": "ess",
    "rv": "rv",
    "rv, median": "rv_median",
    "rv of rows, median": "row_rv_median",
    **{f"median, {b}": f"row_rv_median_{b}" for b in _BUCKETS},
    **{f"mean, {b}": f"row_rv_mean_{b}" for b in _BUCKETS},
    "-draws": "draws",
}
_NEGATED = ("draws", "ess")  # the larger the better
_BOTH = ("KL", "median, torso")  # whose ranks are added up


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
            if "valid_perplexity" in found:  # null: training diverged
                row["reached"] = found["valid_perplexity"] or math.inf
            fitted = "follows" if point.get("follows") else percent(point["built"])
            own = {k: v for k, v in point.items() if k != "row_rv"}
            yield row | own | rows | {"fitted": fitted}


def _one_run(records: list[dict]) -> pd.DataFrame:
    """The rows of all runs on one head, as if they had been one run."""
    rows = frame.long(sorted(records, key=lambda record: record["cell"]), _rows)
    return rows.drop_duplicates(["head", "method", "fraction", "fitted"])


def tables(plan: Mapping, records: list[dict]) -> list[Table]:
    """Returns, for each head, its quality as it trains, then the proposals at each point."""
    found, rows = [], _one_run(records)
    for _, own in rows.groupby("head", sort=False):
        first = own.iloc[0]
        where = f"{first['dataset']}, n = {first['num_classes']:,}, {first['backend']}"
        own = in_order(plan, own)
        found.append(table(f"The head: {where}", own.drop_duplicates("fraction"), _HEAD))
        found += [
            table(f"Proposals after {100 * fraction:g} % of the steps: {where}", part, _PROPOSALS)
            for fraction, part in own.groupby("fraction", sort=False)
        ]
    return [*found, *_what_ranks(rows)]


def _what_ranks(rows: pd.DataFrame) -> list[Table]:
    """How each figure, at each point of a head's training, orders the rows that were trained."""
    if "reached" not in rows:
        return []
    own, found = rows[rows["reached"].notna() & (rows["fraction"] == rows["built"])], []
    for (_, fraction), part in own.groupby(["head", "fraction"], sort=False):
        row = {"group": part["group"].iloc[0], "trained": fraction, "rows": len(part)}
        figures = {
            # a record spells infinity as null
            name: part[column].fillna(math.inf) * (-1 if column in _NEGATED else 1)
            for name, column in _FIGURES.items()
        }
        figures[" + ".join(_BOTH)] = sum(figures[name].rank() for name in _BOTH)
        for name, values in figures.items():
            row[name] = stats.spearmanr(values, part["reached"]).statistic
        found.append(row)
    columns = {"head": "group", "trained": (percent, "trained"), "rows": ("{}", "rows")}
    columns |= {name: ("{:.2f}", name) for name in (*_FIGURES, " + ".join(_BOTH))}
    title = "What orders the rows: Spearman's rank correlation with the perplexity reached"
    return [table(title, pd.DataFrame(found), columns)]


def plots(plan: Mapping, records: list[dict]) -> dict[str, tuple[str, dict]]:
    """Returns {file name: (caption, data)}: quality at the end of training against a draw's cost.

    Where records tell what training reaches with the draws, that is what matters: no plot.
    Values of 0, up to rounding, have no place on a logarithmic axis and are left out.
    """
    found: dict[str, tuple[str, dict]] = {}
    if "reached" in (rows := _one_run(records)) and rows["reached"].notna().any():
        return found
    for number, (_, own) in enumerate(rows.groupby("head", sort=False)):
        last = own[(own["fraction"] == own["built"]) & (own["fraction"] == own["fraction"].max())]
        where = f"{own['dataset'].iloc[0]}-{own['backend'].iloc[0]}-{number}"
        for column, words in {"kl": "KL(p, q), nats", "rv": "relative variance"}.items():
            shown = last[last[column] > SMALLEST]
            points = zip(shown["method"], shown["draw_ms_median"], shown[column], strict=True)
            lines = {name: [[ms, value]] for name, ms, value in points}
            data = {"x": "draws of a batch, ms", "y": words, "log": "xy", "lines": lines}
            found[f"{column}-{where}"] = (f"{words} against the cost of the draws", data)
    return found

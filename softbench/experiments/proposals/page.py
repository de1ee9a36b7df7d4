"""Tables of the task "proposals". Needs no Keras."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence

import pandas as pd
from scipy import stats

from softbench.report import frame
from softbench.report.intervals import Interval, interval
from softbench.report.tables import (
    Table,
    in_order,
    or_infinite,
    percent,
    quantiles,
    table,
)

_KEYS = ["head", "method", "fraction"]
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
_SUM = " + ".join(_BOTH)


def _rows(record: Mapping) -> Iterator[dict]:
    """A row for each sampler and point, with the figures of the head there."""
    config = record["config"]
    same = {key: value for key, value in config.items() if key != "methods"}
    key = json.dumps([same, record["heads"]], sort_keys=True)
    heads = {head["fraction"]: head for head in record["heads"]}
    for name, sampler in record["samplers"].items():
        times = {f"draw_ms_{field}": value for field, value in sampler["draw_ms"].items()}
        for point in sampler["points"]:
            rows = {f"row_rv_{field}": value for field, value in point["row_rv"].items()}
            row = {"head": key, "method": name, "batch": record["batch"], **times}
            row |= {"draws": sampler["draws"], **heads[point["fraction"]]}
            row["reached"] = sampler["valid_perplexity"] or math.inf  # null: training diverged
            yield row | {k: v for k, v in point.items() if k != "row_rv"} | rows


def tables(plan: Mapping, records: list[dict]) -> list[Table]:
    """Returns, for each head, its quality as it trains, then the proposals at each point.

    Of several seeds the first; what orders the rows is of all.
    """
    result, rows = [], frame.once(records, _rows, _KEYS)
    for _, group in _first_seeds(rows).groupby("head", sort=False):
        first = group.iloc[0]
        where = f"{first['group']}, n = {first['num_classes']:,}, {first['backend']}"
        if rows["seed"].nunique() > 1:
            where += f", seed {first['seed']}"
        group = in_order(plan, group)
        result.append(table(f"The head: {where}", group.drop_duplicates("fraction"), _HEAD))
        result += [
            table(f"Proposals after {100 * fraction:g} % of the steps: {where}", point, _PROPOSALS)
            for fraction, point in group.groupby("fraction", sort=False)
        ]
    return [*result, *_what_ranks(rows)]


def _first_seeds(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the first seed of their problem."""
    return rows[rows["seed"] == rows.groupby("problem")["seed"].transform("min")]


def _figures(rows: pd.DataFrame) -> dict[str, pd.Series]:
    """What might order the rows of one head at one point."""
    figures = {
        # a record spells infinity as null
        name: rows[column].fillna(math.inf) * (-1 if column in _NEGATED else 1)
        for name, column in _FIGURES.items()
    }
    return figures | {_SUM: sum(figures[name].rank() for name in _BOTH)}


def _what_ranks(rows: pd.DataFrame) -> list[Table]:
    """How each figure, at each point of a head's training, orders the rows that were trained."""
    correlations = []
    for (_, fraction), point in rows.groupby(["head", "fraction"], sort=False):
        row = point[["problem", "group", "backend", "seed"]].iloc[0].to_dict()
        row |= {"trained": fraction, "rows": len(point)}
        for name, values in _figures(point).items():
            row[name] = stats.spearmanr(values, point["reached"]).statistic
        correlations.append(row)
    frame, names = pd.DataFrame(correlations), (*_FIGURES, _SUM)
    title = "What orders the rows: Spearman's rank correlation with the perplexity reached"
    columns = {"head": "group", "backend": "backend"}
    columns |= {"trained": (percent, "trained"), "rows": ("{}", "rows")}
    columns |= {name: (_correlation, name) for name in names}
    by_head = _means(frame, ["problem", "group", "backend", "trained", "rows"], names)
    if frame["seed"].nunique() < 2:
        return [table(title, by_head, columns)]
    ends = frame[frame["trained"] == frame["trained"].max()]
    seeds = {"seed": ("{}", "seed")} | {name: (_correlation, name) for name in names}
    whole = "The same at the end of training, over the heads, by seed"
    by_seed = _means(ends, ["seed"], names)
    return [table(title, by_head, columns), table(whole, by_seed, seeds)]


def _means(frame: pd.DataFrame, keys: list[str], names: Sequence[str]) -> pd.DataFrame:
    """The `interval` of each of `names` over the rows that have the same keys."""
    groups = frame.groupby(keys, sort=False)
    return groups[list(names)].agg(interval).reset_index()


def _correlation(value: Interval) -> str:
    return f"{value.mean:.2f}" + (f" ± {value.half:.2f}" if value.count > 1 else "")


def plots(plan: Mapping, records: list[dict]) -> dict[str, tuple[str, dict]]:
    """Returns {file name: (caption, data)}: what training reaches with each row's draws.

    It is shown against the sum of two ranks, both at the end of training, as means over seeds.
    """
    rows = frame.once(records, _rows, _KEYS)
    rows = rows[rows["fraction"] == rows["fraction"].max()]
    lines = {}
    for _, group in rows.groupby("problem", sort=False):
        first = group.iloc[0]
        heads = []
        for _, head in group.groupby("head", sort=False):
            ranks, ratio = _figures(head)[_SUM], head["reached"] / head["valid_perplexity"]
            heads.append(pd.DataFrame({"method": head["method"], "x": ranks, "y": ratio}))
        means = pd.concat(heads).groupby("method")[["x", "y"]].mean().sort_values("x")
        lines[f"{first['group']}, {first['backend']}"] = (
            means[means["y"] < math.inf].to_numpy().tolist()
        )
    data = {"x": f"sum of the ranks: {_SUM}", "y": "perplexity over full's", "log": "y"}
    caption = "Perplexity reached, over that of the full softmax, against the sum of two ranks"
    return {"reached-by-rank": (caption, {**data, "lines": lines})}

"""How the records of the task "proposals" are shown. Needs no Keras."""

import math
from collections.abc import Iterator, Mapping

from scipy import stats

from softbench.report.frame import View, times

# What might order samplers by how well a head trains with them, and whether more is better.
FIGURES = {
    "kl": False,
    "ess": True,
    "rv": False,
    "rv_median": False,
    "row_rv_median_torso": False,
    "draws": True,
}
_BOTH = ("kl", "row_rv_median_torso")  # whose ranks are added up


def rows(record: Mapping) -> Iterator[dict]:
    """Yields a row for each sampler and point of the head's training.

    `fitted`: the share of the training after which it was fitted, "follows" where it follows the
    table. Where heads were trained with the samplers too, `ranks` is the sum of the ranks of
    `_BOTH`, and a row `(ranks by ...)` has the rank correlation of a figure with the perplexity
    reached, at each point.
    """
    heads = {head["fraction"]: head for head in record["heads"]}
    made = []
    for name, sampler in record["samplers"].items():
        for point in sampler["points"]:
            fitted = "follows" if point.get("follows") else f"{100 * point['built']:g}%"
            row = {"method": name, "fitted": fitted, "draws": sampler["draws"]}
            row |= times(sampler["draw_ms"], "draw_ms") | heads[point["fraction"]]
            row |= {key: value for key, value in point.items() if key != "row_rv"}
            row |= {f"row_rv_{key}": value for key, value in point["row_rv"].items()}
            # A record spells infinity as null.
            row |= {name: math.inf for name in FIGURES if row[name] is None}
            if "valid_perplexity" in sampler:  # null: training diverged
                row["reached"] = sampler["valid_perplexity"] or math.inf
                row["reached_over_full"] = row["reached"] / row["valid_perplexity"]
            made.append(row)
    correlations = []
    for fraction in heads:
        trained = [r for r in made if r["fraction"] == r.get("built") == fraction]
        correlations += _correlations([row for row in trained if "reached" in row], fraction)
    yield from (*made, *correlations)


def _correlations(trained: list[dict], fraction: float) -> Iterator[dict]:
    """Spearman's rank correlation of each figure with the perplexity that training reaches."""
    if len(trained) < 3:
        return
    reached = [row["reached"] for row in trained]
    figures = {name: [_value(row, name, up) for row in trained] for name, up in FIGURES.items()}
    sums = sum(stats.rankdata(figures[name]) for name in _BOTH)
    for row, ranks in zip(trained, sums, strict=True):
        row["ranks"] = ranks
    for name, values in {**figures, " + ".join(_BOTH): sums}.items():
        correlation = stats.spearmanr(values, reached).statistic
        common = {"fraction": fraction, "rows": len(trained)}
        yield {"method": f"(ranks by {name})", "correlation": correlation, **common}


def _value(row: Mapping, name: str, more_is_better: bool) -> float:
    return -row[name] if more_is_better else row[name]


VIEW = View(
    rows,
    keys=("method", "fraction", "fitted"),
    columns=("kl", "ess", "rv", "row_rv_median_torso", "draw_ms"),
    picture={"x": "draw_ms", "y": "kl", "log": "xy"},
)

"""Which of several methods is the best, by seeds. Needs no Keras."""

import math
from collections.abc import Mapping
from typing import NamedTuple

from softbench.report import intervals
from softbench.report.intervals import Interval

# The simplest first. The exact loss has nothing to choose. in_batch needs no draws, uniform draws
# no counts, and mixed is two of these. NCE and gBCE are other objectives, whose scores need a
# correction. The others keep something in step with the table: a codebook for the best classes,
# for draws that are shared, or for each example's; features of a kernel; all scores. Last is a
# tree that is fitted to features before training.
SIMPLICITY = ("full", "in_batch", "uniform", "unigram", "mixed", "nce_binary", "nce_ranking")
SIMPLICITY += ("gbce", "top_and_tail", "codebook", "codebook_own", "rff", "exp", "adversarial")


class Row(NamedTuple):
    """A method at a price.

    Attributes:
        mean: over its seeds.
        behind: how much worse it is than the best, seed by seed, as `worse` has it.
        status: "best", "tied" or "worse".
    """

    mean: Interval
    behind: Interval
    status: str


def worse(value: float, best: float, lower: bool, scale: float) -> float:
    """Returns how much worse a value is, as a fraction.

    Of perplexities, of which less is better, it is the logarithm of their ratio; of other measures
    the difference over `scale`, the mean of the best.
    """
    return math.log(value / best) if lower else (best - value) / (scale or 1.0)


def rank(values: Mapping[str, Mapping[int, float]], lower: bool) -> dict[str, Row]:
    """Returns the rows of a price, from the best mean on.

    Args:
        values: {method: {seed: its number}}; equal seeds are paired.
        lower: whether less is better.
    """
    means = {name: intervals.interval(seeds.values()) for name, seeds in values.items()}
    order = sorted(means, key=lambda name: means[name].mean * (1 if lower else -1))
    best, scale = values[order[0]], means[order[0]].mean
    rows = {}
    for name in order:
        common = [seed for seed in values[name] if seed in best]
        pairs = [worse(values[name][seed], best[seed], lower, scale) for seed in common]
        behind = intervals.interval(pairs)
        # Fewer than two common seeds have no interval, and nothing tells the methods apart.
        status = "worse" if abs(behind.mean) > behind.half else "tied"
        rows[name] = Row(means[name], behind, "best" if name == order[0] else status)
    return rows


def simplest(rows: Mapping[str, Row]) -> str:
    """Returns the method of a price that the rule recommends."""
    return min((m for m, row in rows.items() if row.status != "worse"), key=SIMPLICITY.index)

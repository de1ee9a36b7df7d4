"""What the decisions say of another problem, and how far that was wrong. Needs no Keras."""

import json
import math
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import NamedTuple

from softbench.report.decisions import HOPELESS, LEVELS
from softbench.report.ranking import SIMPLICITY

NEAR = 1e-6  # a problem that is no further is the same one
CLOSE = 0.01  # losses that are expected are not told apart by less


def read() -> list[dict]:
    """Returns the `decisions.json` of the package."""
    return json.loads(resources.files("softbench").joinpath("decisions.json").read_text())


def at(problem: Mapping, level: str) -> dict:
    """Returns a price of a problem, empty where it has no records."""
    return next((one for one in problem["levels"] if one["level"] == level), {})


def decided(problem: Mapping, most: str = "") -> list[dict]:
    """Returns the prices of a problem that are decided, the highest last.

    Args:
        problem: of `decisions.json`.
        most: the highest price to look at; "": any.
    """
    top = LEVELS[most] if most else math.inf
    levels = [level for level in problem["levels"] if LEVELS[level["level"]] <= top]
    return [level for level in levels if level["recommended"]]


def contested(problem: Mapping) -> list[dict]:
    """Returns the decided prices at which two methods or more have run beside the reference."""
    return [level for level in decided(problem) if len(level["rows"]) > 2]


class Asked(NamedTuple):
    """A problem that is advised on.

    Attributes:
        kind: "words", "items" or "labels".
        n: classes.
        information: nats that the input tells of the class, None if they are not known.
    """

    kind: str
    n: int
    information: float | None = None


def distance(problem: Mapping, asked: Asked) -> float:
    """Returns how far apart problems are: by log n, by information in nats, and 1 by kind.

    Information counts where it is known.
    """
    told = asked.information
    told = 0.0 if told is None else abs(problem["information"] - told)
    return abs(math.log(problem["n"] / asked.n)) + told + (problem["kind"] != asked.kind)


def nearest(problems: Iterable[Mapping], asked: Asked, most: str = "") -> dict | None:
    """Returns the decided problem that is most like another, None if none is decided.

    It is of the same kind if one is.

    Args:
        problems: content of `decisions.json`.
        asked: the other one.
        most: as of `decided`.
    """
    known = [problem for problem in problems if decided(problem, most)]
    own = [problem for problem in known if problem["kind"] == asked.kind]
    return min(own or known, key=lambda problem: distance(problem, asked), default=None)


def expected(problems: Iterable[Mapping], asked: Asked, most: str = "") -> dict[str, float]:
    """Returns how far behind the best each method can be expected to be.

    Those within `CLOSE` of the least come first, the simplest before the others; then the least.
    It is the mean of two means of `losses`: over the decided problems of the kind, if there are
    any, and over all that are decided. In both a problem weighs 1 / `distance`. Of a problem a
    method has the loss at the highest price that it has run at; if it has at none, it counts as
    given up. A problem that is no further than `NEAR` is the same one, and counts alone: those
    that are tied there have lost nothing, and the simplest is first.

    Args:
        problems, asked, most: as of `nearest`.
    """
    known = [problem for problem in problems if decided(problem, most)]
    away = [distance(problem, asked) for problem in known]
    if min(away, default=math.inf) < NEAR:
        return _sorted(_lost(decided(known[away.index(min(away))], most)[-1]), close=0.0)
    lost = [_at_most(problem, most) for problem in known]
    own = [i for i, problem in enumerate(known) if problem["kind"] == asked.kind]

    def mean(name: str, chosen: Iterable[int]) -> float:
        weights = {i: 1 / away[i] for i in chosen}
        total = sum(weight * lost[i].get(name, HOPELESS) for i, weight in weights.items())
        return total / sum(weights.values())

    every = range(len(known))
    names = {name for one in lost for name in one}
    return _sorted({m: (mean(m, own or every) + mean(m, every)) / 2 for m in names})


def _sorted(lost: Mapping[str, float], close: float = CLOSE) -> dict[str, float]:
    """The simplest of those within `close` of the least first, then the others from the least."""
    limit = min(lost.values(), default=0.0) + close
    names = sorted(lost, key=SIMPLICITY.index)
    first = [name for name in names if lost[name] <= limit]
    return {name: lost[name] for name in [*first, *sorted(names, key=lost.__getitem__)]}


def _at_most(problem: Mapping, most: str) -> dict[str, float]:
    """The `losses` of each method at the highest price, up to `most`, that it has run at."""
    return {m: loss for level in decided(problem, most) for m, loss in losses(level).items()}


def _lost(level: Mapping) -> dict[str, float]:
    """The `losses` of a price, with nothing for those that are tied with the best."""
    tied = (name for name, row in level["rows"].items() if row["status"] != "worse")
    return {**losses(level), **dict.fromkeys(tied, 0.0)}


def losses(level: Mapping) -> dict[str, float]:
    """Returns how much worse than the best each method of a price is, those given up too."""
    return {**level["given_up"], **{m: row["behind"] for m, row in level["rows"].items()}}


def in_common(problems: Iterable[Mapping]) -> dict[str, list[float]]:
    """Returns the `losses` of each method that all contested prices have, one for each price."""
    prices = [losses(level) for problem in problems for level in contested(problem)]
    return {m: [p[m] for p in prices] for m in SIMPLICITY if all(m in p for p in prices)}


class Regret(NamedTuple):
    """How well a price is advised on by the other problems.

    Attributes:
        problem, level: which price.
        method: that is advised, the first that is `expected`.
        loss: how much worse it is than the best, None where it is not measured.
        nearest: the same of what the nearest problem alone recommends.
        alike: whether another problem of its kind is decided, at the price or a lower one.
    """

    problem: str
    level: str
    method: str
    loss: float | None
    nearest: float | None
    alike: bool


def regrets(problems: list[dict]) -> list[Regret]:
    """Returns, for each contested price, what the others would have advised, at no higher ones."""
    made = []
    for problem in problems:
        others = [other for other in problems if other is not problem]
        asked = Asked(problem["kind"], problem["n"], problem["information"])
        for level in contested(problem):
            name, lost = level["level"], losses(level)
            if source := nearest(others, asked, name):
                method = next(iter(expected(others, asked, name)))
                alone = lost.get(decided(source, name)[-1]["recommended"])
                alike = source["kind"] == problem["kind"]
                made.append(
                    Regret(problem["problem"], name, method, lost.get(method), alone, alike)
                )
    return made

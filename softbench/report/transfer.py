"""What the decisions say of another problem, and how far that was wrong. Needs no Keras."""

import json
import math
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import NamedTuple

from softbench.report.decisions import HOPELESS, LEVELS
from softbench.report.ranking import SIMPLICITY

NEAR = 1e-6  # a problem that is no further is the same one
# The prices that were decided when the rule of `expected` was last changed: what it says of them
# was known, of the others it was not.
KNOWN_TO_THE_RULE = {
    "a tenth": ("ptb", "eltec", "beauty", "gowalla", "yelp2018", "wd50k", "citeulike"),
    "a third": ("ptb", "beauty", "gowalla", "wd50k", "citeulike"),
    "all": ("wd50k",),
}


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
    """Returns how far apart problems of a kind are: by log n, and by information in nats.

    Information counts where it is known.
    """
    told = asked.information
    told = 0.0 if told is None else abs(problem["information"] - told)
    return abs(math.log(problem["n"] / asked.n)) + told


def alike(problems: Iterable[Mapping], asked: Asked, most: str = "") -> list[Mapping]:
    """Returns the decided problems of the kind of another one, the nearest first.

    Args:
        problems: content of `decisions.json`.
        asked: the other one.
        most: as of `decided`.
    """
    own = [problem for problem in problems if problem["kind"] == asked.kind]
    known = [problem for problem in own if decided(problem, most)]
    return sorted(known, key=lambda problem: distance(problem, asked))


def expected(problems: Iterable[Mapping], asked: Asked, most: str = "") -> dict[str, float]:
    """Returns how far behind the best each method can be expected to be, the least first.

    It is the mean of how far behind it was in the decided problems of the kind, each with the
    weight 1 / `distance`. Of a problem the highest price counts that a method has run at; if it
    has run at none, it counts as given up. Of equal methods the simplest is first. A problem that
    is no further than `NEAR` is the same one: it counts alone, and what is recommended for it is
    first.

    Args:
        problems, asked, most: as of `alike`.
    """
    known = alike(problems, asked, most)
    same = [problem for problem in known[:1] if distance(problem, asked) < NEAR]
    known = same or known
    weights = [1 / max(distance(problem, asked), NEAR) for problem in known]
    lost = [_lost(problem, most) for problem in known]

    def mean(name: str) -> float:
        pairs = zip(weights, lost, strict=True)
        return sum(weight * one.get(name, HOPELESS) for weight, one in pairs) / sum(weights)

    names = sorted({name for one in lost for name in one}, key=SIMPLICITY.index)
    means = {name: mean(name) for name in names}
    own = [decided(problem, most)[-1]["recommended"] for problem in same]
    return {name: means[name] for name in sorted(names, key=lambda m: (m not in own, means[m]))}


def _lost(problem: Mapping, most: str) -> dict[str, float]:
    """The `losses` at the highest price, up to `most`, that each method has run at."""
    made: dict[str, float] = {}
    for level in decided(problem, most):
        made |= losses(level)
    return made


def losses(level: Mapping) -> dict[str, float]:
    """Returns how much worse than the best each method of a price is, those given up too."""
    return {**level["given_up"], **{m: row["behind"] for m, row in level["rows"].items()}}


def in_common(problems: Iterable[Mapping]) -> dict[str, list[float]]:
    """Returns the `losses` of each method that all contested prices have, one for each price."""
    prices = [losses(level) for problem in problems for level in contested(problem)]
    return {m: [p[m] for p in prices] for m in SIMPLICITY if all(m in p for p in prices)}


class Regret(NamedTuple):
    """How well a price is advised on by the other problems of its kind.

    Attributes:
        problem, level: which price.
        method: that is advised, the first that is `expected`, None if nothing is.
        loss: how much worse it is than the best, None where it is not measured.
        left_out: why this price says nothing of the advice, "" if it does.
    """

    problem: str
    level: str
    method: str | None
    loss: float | None
    left_out: str

    @property
    def is_new(self) -> bool:
        """Whether the price was decided after the rule that advises."""
        return self.problem not in KNOWN_TO_THE_RULE[self.level]


def regrets(problems: list[dict]) -> list[Regret]:
    """Returns, for each decided price, what the others would have advised, at no higher ones."""
    made = []
    for problem in problems:
        others = [other for other in problems if other is not problem]
        asked = Asked(problem["kind"], problem["n"], problem["information"])
        for level in decided(problem):
            method = next(iter(expected(others, asked, level["level"])), None)
            loss = losses(level).get(method)
            left_out = ""
            if level not in contested(problem):
                left_out = "one method alone has run beside the reference"
            elif method is None:
                left_out = "no other of its kind is decided"
            elif loss is None:
                left_out = f"`{method}`, which is advised, has not run"
            made.append(Regret(problem["problem"], level["level"], method, loss, left_out))
    return made

"""What the decisions say of another problem, and how far that was wrong. Needs no Keras."""

import json
import math
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import NamedTuple

from softbench.report.decisions import SIMPLICITY


def read() -> list[dict]:
    """Returns the `decisions.json` of the package."""
    return json.loads(resources.files("softbench").joinpath("decisions.json").read_text())


def at(problem: Mapping, level: str) -> dict:
    """Returns a price of a problem, empty where it has no records."""
    return next((one for one in problem["levels"] if one["level"] == level), {})


def decided(problem: Mapping) -> list[dict]:
    """Returns the prices of a problem that are decided, the highest last."""
    return [level for level in problem["levels"] if level["recommended"]]


def nearest(
    problems: Iterable[Mapping],
    kind: str,
    n: int,
    information: float | None = None,
    level: str = "",
) -> dict | None:
    """Returns the decided problem that is most like another, None if none is decided.

    It is of the same kind if one is. Problems are as far apart as their log n, and, where it is
    known, their information, which is in nats too.

    Args:
        problems: content of `decisions.json`.
        kind, n, information: of the other one.
        level: the price that must be decided; "": any.
    """

    def apart(problem: Mapping) -> float:
        distance = abs(math.log(problem["n"] / n))
        return distance + (
            0.0 if information is None else abs(problem["information"] - information)
        )

    known = [p for p in problems if (at(p, level).get("recommended") if level else decided(p))]
    return min([p for p in known if p["kind"] == kind] or known, key=apart, default=None)


def candidates(source: Mapping | None, names: Iterable[str]) -> list[str]:
    """Returns the methods to try, at the highest price that is decided.

    They are those that are tied, the simplest first, then the others from the best on.

    Args:
        source: a decided problem, or None.
        names: that can be tried.
    """
    rows = decided(source)[-1]["rows"] if source else {}
    tied = [name for name in SIMPLICITY if name in rows and rows[name]["status"] != "worse"]
    return [name for name in dict.fromkeys([*tied, *rows]) if name in names]


def advised(source: Mapping | None, names: Iterable[str]) -> str | None:
    """Returns the simplest of the names that are tied there; arguments as `candidates`."""
    first = next(iter(candidates(source, names)), None)
    return first if first and decided(source)[-1]["rows"][first]["status"] != "worse" else None


def losses(level: Mapping) -> dict[str, float]:
    """Returns how much worse than the best each method of a price is, those given up too."""
    return {**level["given_up"], **{m: row["behind"] for m, row in level["rows"].items()}}


def in_common(problems: Iterable[Mapping]) -> dict[str, list[float]]:
    """Returns the `losses` of each method that all decided prices have, one for each price."""
    prices = [losses(level) for problem in problems for level in decided(problem)]
    return {m: [p[m] for p in prices] for m in SIMPLICITY if all(m in p for p in prices)}


class Regret(NamedTuple):
    """How well a price is advised on by the other problems.

    Attributes:
        problem, level: which price.
        source: the problem that the advice is from.
        method: that is advised.
        loss: how much worse it is than the best, None where it is not measured.
    """

    problem: str
    level: str
    source: str
    method: str
    loss: float | None


def regrets(problems: list[dict]) -> list[Regret]:
    """Returns, for each decided price, what the nearest other problem would have advised."""
    made = []
    for problem in problems:
        others = [other for other in problems if other is not problem]
        like = problem["kind"], problem["n"], problem["information"]
        for level in decided(problem):
            name = level["level"]
            if source := nearest(others, *like, name):
                method = at(source, name)["recommended"]
                loss = losses(level).get(method)
                made.append(Regret(problem["problem"], name, source["problem"], method, loss))
    return made

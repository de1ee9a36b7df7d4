"""What the committed records say of a kind of method for a problem. Needs no Keras."""

import json
import statistics
from importlib import resources
from typing import NamedTuple

from softbench.advise.choices import Problem

NEAR = 10.0  # records of so many times more or fewer classes are of problems of another size
MEASURES = {
    "calibrated": ("nats", "nats of log-loss"),
    "ranking": ("precision_at_1", "precision@1"),
}
# Inputs that tell much of the class, unlike words: records of one speak for the other.
COMPARABLE = {"items": ("items", "labels"), "labels": ("items", "labels"), "words": ("words",)}


class Quality(NamedTuple):
    """How far behind the best of their comparisons the records of a kind were.

    Attributes:
        least, median, most: in the measure that the problem needs; None where no record fits.
        pages: of the records.
        ece: median of their expected calibration errors, of records of any size; None where no
            record has one.
    """

    least: float | None = None
    median: float | None = None
    most: float | None = None
    pages: tuple[str, ...] = ()
    ece: float | None = None


def evidence() -> list[dict]:
    """Returns the entries of `softbench.report.evidence`, as they ship with the package."""
    return json.loads(resources.files("softbench.advise").joinpath("evidence.json").read_text())


def quality(problem: Problem, kind: str, entries: list[dict]) -> Quality:
    """Returns what the entries of problems of about the same size and kind of input say."""
    measure, values, pages = MEASURES[problem.need][0], [], []
    for entry in entries:
        near = 1 / NEAR <= entry["classes"] / problem.classes <= NEAR
        same_inputs = not problem.inputs or entry["inputs"] in COMPARABLE[problem.inputs]
        value = entry["behind"].get(kind, {}).get(measure)
        if near and same_inputs and value is not None:
            values.append(value)
            pages.append(entry["page"])
    errors = [e["calibration"][kind] for e in entries if kind in e.get("calibration", {})]
    ece = statistics.median(errors) if errors else None
    if not values:
        return Quality(ece=ece)
    spread = min(values), statistics.median(values), max(values)
    return Quality(*spread, tuple(dict.fromkeys(pages)), ece)

"""The rule by which records decide a claim, and the page that says so. Needs no Keras."""

import collections
import math
from collections.abc import Container, Iterable, Mapping
from typing import NamedTuple

import pandas as pd

from softbench.report import markdown as md
from softbench.report import measures
from softbench.report.tables import Table, number
from softbench.report.verdicts.ratios import Ratio, Records, Source
from softbench.report.verdicts.training_ratios import Trained

HOLDS, FAILS, OPEN = "holds", "does not hold", "not decided"
_SINGLE, _BETWEEN = "single seed", "the interval reaches over the limit"
_LACKING = "a row or a number is missing"


class Part(NamedTuple):
    """One ratio, and the range that the claim says it lies in."""

    source: Source
    low: float = -math.inf
    high: float = math.inf


def better(
    experiment: str, group: str, left: str, right: str, metric: str = "valid_perplexity"
) -> Part:
    """Returns the part that one row of training is better than another."""
    source = Trained(experiment, group, left, right, metric)
    return Part(source, high=1.0) if measures.lower_is_better(metric) else Part(source, low=1.0)


class Claim(NamedTuple):
    """A claim.

    Attributes:
        name: by which notes refer to its verdict.
        location: in the paper.
        text: one plain sentence.
        parts: ratios and ranges, all of which it says.
        data: what the records are of, where that is not what the paper has.
    """

    name: str
    location: str
    text: str
    parts: tuple[Part, ...]
    data: str = ""


class Verdict(NamedTuple):
    """What the records say of a claim.

    Attributes:
        word: `HOLDS`, `FAILS` or `OPEN`.
        reason: why it is not decided, or which part does not hold; "" where it holds.
        ratios: of the parts.
    """

    word: str
    reason: str
    ratios: tuple[Ratio, ...]

    def __str__(self) -> str:
        return f"{self.word} ({self.reason})" if self.reason else self.word


def verdict(claim: Claim, records: Records) -> Verdict:
    """Returns what the records say of a claim, by the rule that `RULE` states."""
    ratios = tuple(part.source.ratio(records) for part in claim.parts)
    count = len(ratios)
    states = [_state(part, ratio, count) for part, ratio in zip(claim.parts, ratios, strict=True)]
    failed = states.count(FAILS)
    if failed:
        return Verdict(FAILS, f"{failed} of {count} ratios" if count > 1 else "", ratios)
    reasons = collections.Counter(state for state in states if state != HOLDS)
    if not reasons:
        return Verdict(HOLDS, "", ratios)
    if count == 1:
        return Verdict(OPEN, ratios[0].missing or next(iter(reasons)), ratios)
    reason = "; ".join(f"{why}: {times} of {count}" for why, times in reasons.items())
    return Verdict(OPEN, reason, ratios)


def _state(part: Part, ratio: Ratio, count: int) -> str:
    """`HOLDS`, `FAILS`, or why it is not decided."""
    if ratio.missing:
        return _LACKING
    if math.isinf(ratio.error):
        return _SINGLE
    low, high = ratio.ends()
    if part.low <= low and high <= part.high:
        return HOLDS
    low, high = ratio.ends(1 - 0.05 / count)
    return FAILS if high < part.low or low > part.high else _BETWEEN


RULE = f"""\
A claim is one ratio of numbers of records or several, and the range that the paper says each lies
in. **{HOLDS.capitalize()}**: each ratio's 95 % interval lies in its range.
**{FAILS.capitalize()}**: the interval of one of them lies outside it (of k ratios the interval at
1 - 0.05 / k, as one of many is outside by chance). **{OPEN.capitalize()}**: neither; the reason
is given. Intervals are of the mean over seeds of the ratio of two records with the same seed
(Student's t). A single seed has none, and decides nothing, but where its record has a standard
error of a mean over examples or draws. Of times of steps, half of the range from 20 to 80 % of the
steps is taken for the standard error: the spread of one step, as times of other days differ by as
much. What is calculated, and not drawn or measured, is exact. Where a paper has no number ("close",
"comparable"), the range is ours, and the claim says it.
Learning curves are compared at the last point that both have, after the same steps; where rows
trained for equal times, at the best point of each."""


def verdicts(library: Mapping[str, Iterable[Claim]], records: Records) -> dict[str, Verdict]:
    """Returns {name of a claim: its verdict}.

    Args:
        library: {paper: its claims}.
        records: of all experiments.
    """
    return {claim.name: verdict(claim, records) for claims in library.values() for claim in claims}


def page(
    library: Mapping[str, Iterable[Claim]], decided: Mapping[str, Verdict], pages: Container[str]
) -> str:
    """Returns the page of all claims in Markdown.

    Args:
        library: {paper: its claims}.
        decided: {name of a claim: its verdict}.
        pages: names of the experiments that have a page.
    """
    lines = ["# The papers' claims", "", _INTRO, "", counts(decided), "", RULE, ""]
    for paper, claims in library.items():
        rows = [row for claim in claims for row in _rows(claim, decided[claim.name], pages)]
        table = Table(paper, pd.DataFrame(rows, columns=_HEADER, dtype=object))
        lines += [f"## {md.literal(paper)}", "", table.markdown(), ""]
    return "\n".join(lines)


_HEADER = ["claim", "place", "verdict", "ratio", "claimed", "records", "page"]
_INTRO = """\
Generated by `softbench-report --results=results` from the records. Do not edit. The claims and
their ranges are in `softbench/report/verdicts`; the verdicts follow from the records."""


def counts(decided: Mapping[str, Verdict]) -> str:
    """Says how many claims have which verdict."""
    words = collections.Counter(item.word for item in decided.values())
    named = {HOLDS: "hold", FAILS: "do not hold", OPEN: "are not decided"}
    clauses = [f"{words[word]} {verb}" for word, verb in named.items()]
    return f"Of {len(decided)} claims {clauses[0]}, {clauses[1]} and {clauses[2]}."


def _rows(claim: Claim, decided: Verdict, pages: Container[str]) -> list[list[str]]:
    """A row for each ratio; the first one has the claim and its verdict."""
    reason = f" ({decided.reason})" if decided.reason else ""
    text = claim.text + (f" *{claim.data}.*" if claim.data else "")
    head = [md.Markdown(text), claim.location, md.Markdown(f"**{decided.word}**{reason}")]
    rows = []
    for part, ratio in zip(claim.parts, decided.ratios, strict=True):
        names = dict.fromkeys(part.source.experiments)
        links = [md.link(n, f"{n}/README.md") if n in pages else md.code(n) for n in names]
        shown = [md.Markdown(part.source.words), _range(part), md.Markdown(ratio)]
        rows.append([*head, *shown, md.Markdown(", ".join(links))])
        head = ["", "", ""]
    return rows


def _range(part: Part) -> str:
    if math.isinf(part.low):
        return f"below {number(part.high)}"
    if math.isinf(part.high):
        return f"above {number(part.low)}"
    return f"in {number(part.low)} to {number(part.high)}"

"""What the sections of the front page share. No Keras."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from softbench.report.page import Page
from softbench.report.tables import Table, number

KERNELS = ("quadratic", "rff", "sorf", "maclaurin", "positive")


class Section(NamedTuple):
    """A part of the decision table.

    Attributes:
        answer: one sentence that its rows bear out; empty without rows.
        words: what the table shows, and by which rule.
        table: with the page that each row comes from in the last column.
    """

    answer: str
    words: str
    table: Table


def link(page: Page) -> str:
    """Returns a link from the front page to a page."""
    return f"[{page.name}]({page.name}/README.md)"


def answer_from(ratios: Mapping[int, list[float]], what: str, links: Iterable[str]) -> str:
    """From which n on all ratios are above 1, and their range there."""
    if not ratios:
        return ""
    below = [n for n, values in ratios.items() if min(values) <= 1]
    above = [n for n in sorted(ratios) if n > max(below, default=0)]
    place = ", ".join(links)
    if not above:
        return f"At no n that was measured is every ratio above 1 ({place})."
    values = [value for n in above for value in ratios[n]]
    span = f"{number(min(values))} to {number(max(values))}"
    return f"From n = {above[0]:,} on, {what.format(span)} ({place})."


def place(record: Mapping) -> tuple:
    return record["config"]["backend"], record["num_classes"], record["cell"]


def where(record: Mapping) -> list[str]:
    return [record["config"]["backend"], f"{record['num_classes']:,}"]

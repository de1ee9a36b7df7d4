"""What `softbench-report --check` asks of templates and pages. Needs no Keras."""

import re
from collections.abc import Iterable, Iterator, Mapping

LONGEST_LINE, MOST_WORDS, MOST_WORDS_IN_ALL = 160, 400, 25_000
_LISTS = ("CLAIMS.md",)  # a page that is one table, of a line for each item
_NUMBER = re.compile(r"(?<![\w.,])\d+(?:,\d{3})*(?:\.\d+)?(?:e-?\d+)?(?!\d|th\b)")
_WORD = re.compile(r"\S*\w\S*")
_FILLED = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", re.S)
# Code, targets of links, the level of all intervals, and references to a paper.
_NO_NUMBERS = re.compile(
    r"`[^`]*`|\]\([^)]*\)|\b95 %|\b(?:Figures?|Fig\.|Tables?|Theorems?|Lemma|Corollary|Assumption"
    r"|[Ss]ections?|eq\.|et al\.) \(?[\d.]+(?: (?:and|to) \d+(?:\.\d+)?)?"
)


def unaccounted(template: str, records: Iterable[Mapping], paper: Mapping) -> list[str]:
    """Returns the numbers in a template's prose that no function of it has filled.

    Args:
        template: its text.
        records: of the experiment: numbers of their configs are settings, and may stand in prose.
        paper: the paper's numbers.
    """
    allowed = set(_numbers(paper))
    for record in records:
        allowed |= {*_numbers(record["config"]), *_numbers(record.get("num_classes"))}
    numbers = _NUMBER.findall(_NO_NUMBERS.sub("", _FILLED.sub("", template)))
    return [number for number in numbers if float(number.replace(",", "")) not in allowed]


def _numbers(value: object) -> Iterator[float]:
    """The numbers of a config, those within its texts too."""
    if isinstance(value, Mapping):
        value = [*value, *value.values()]
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _numbers(item)
    elif isinstance(value, str):
        yield from map(float, re.findall(r"\d+(?:\.\d+)?(?:e-?\d+)?", value))
    elif isinstance(value, (int, float)):
        yield float(value)


def too_long(pages: Mapping[str, str]) -> list[str]:
    """Returns what of {path: Markdown} is more than a reader should be given at once."""
    found = []
    for path, text in pages.items():
        words, longest = len(_WORD.findall(text)), max(map(len, text.splitlines()), default=0)
        if longest > LONGEST_LINE:
            found.append(f"{path} (a line of {longest} characters)")
        if words > MOST_WORDS and path not in _LISTS:
            found.append(f"{path} ({words} words)")
    total = sum(len(text.split()) for text in pages.values())
    return found + ([f"all pages ({total} words)"] if total > MOST_WORDS_IN_ALL else [])

"""Texts of records as Markdown: what they say is shown, and none of it is markup."""

import re
from collections.abc import Iterable
from urllib.parse import quote

_GAPS = re.compile(r"[\s\x00-\x1f\x7f]+")
_NAMES = re.compile(r"((?<!`)`[^`]+`(?!`))")
_MARKS = re.compile(r"[\\`*~<\[\]]|&(?=#?\w+;)|(?<!\w)_|_(?!\w)")
NOTES = "NOTES.md"  # what a person writes of an experiment, or of them all
MARKED = re.compile(r"<!--= (?P<what>.*?) -->(?P<shown>.*?)<!--/-->", re.S)


class Markdown(str):
    """A text that is Markdown already; tables take every other one literally."""


def one_line(text: str) -> str:
    """Returns a text with a single space for each run of spaces, line ends and control characters.

    A run at either end is kept as one too.
    """
    return _GAPS.sub(" ", text)


def literal(text: str) -> Markdown:
    """Returns the Markdown that shows a text as it is, on one line."""
    return text if isinstance(text, Markdown) else Markdown(_MARKS.sub(r"\\\g<0>", one_line(text)))


def message(text: str) -> Markdown:
    """Returns the text of an error, literally but for names that it has in single backticks."""
    pieces = _NAMES.split(one_line(text))
    return Markdown("".join(piece if i % 2 else literal(piece) for i, piece in enumerate(pieces)))


def code(text: str) -> Markdown:
    """Returns a text as code."""
    text = one_line(text)
    fence = "`" * (_longest_run(text) + 1)
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return Markdown(f"{fence}{space}{text}{space}{fence}")


def block(texts: Iterable[str]) -> list[str]:
    """Returns the lines of a block of code, a line for each text."""
    lines = [one_line(text) for text in texts]
    fence = "`" * max(3, 1 + max(map(_longest_run, lines), default=0))
    return [fence, *lines, fence]


def cell(text: str) -> str:
    """Returns a text, literally unless it is Markdown, as a cell of a table."""
    return one_line(literal(text)).replace("|", r"\|")


def without_markers(text: str) -> str:
    """Returns a text that a person writes without the markers of its numbers."""
    return MARKED.sub(lambda match: match["shown"], text)


def link(text: str, path: str) -> Markdown:
    """Returns a link to a file."""
    return Markdown(f"[{literal(text)}]({quote(path)})")


def picture(caption: str, path: str) -> Markdown:
    """Returns a picture."""
    return Markdown(f"![{literal(caption)}]({quote(path)})")


def file_name(title: str) -> str:
    """Returns a title as the name of a file, without its ending."""
    return "".join(c if c.isalnum() or c in "-_" else "_" for c in title).strip("_")


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)

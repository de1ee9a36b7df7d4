"""Texts of records as Markdown: what they say is shown, and none of it is markup."""

import re
import textwrap
from collections.abc import Iterable, Sequence
from urllib.parse import quote

MARKED = re.compile(r"<!--= (?P<what>.*?) -->(?P<shown>.*?)<!--/-->", re.S)  # filled by a program
_GAPS = re.compile(r"[\s\x00-\x1f\x7f]+")
_MARKS = re.compile(r"[\\`*~<\[\]]|&(?=#?\w+;)|(?<!\w)_|_(?!\w)")
_NAMES = re.compile(r"((?<!`)`[^`]+`(?!`))")
_WIDTH = 120  # of prose; tables and pictures have lines of their own


def one_line(text: str) -> str:
    """Returns a text with a single space for each run of spaces, line ends and control characters.

    A run at either end is kept as one too.
    """
    return _GAPS.sub(" ", text)


def literal(text: str) -> str:
    """Returns the Markdown that shows a text as it is, on one line."""
    return _MARKS.sub(r"\\\g<0>", one_line(text))


def message(text: str) -> str:
    """Returns the text of an error, literally but for names that it has in single backticks."""
    pieces = _NAMES.split(one_line(text))
    return "".join(piece if i % 2 else literal(piece) for i, piece in enumerate(pieces))


def code(text: str) -> str:
    """Returns a text as code."""
    text = one_line(text)
    fence = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{space}{text}{space}{fence}"


def link(text: str, path: str) -> str:
    """Returns a link to a file."""
    return f"[{literal(text)}]({quote(path)})"


def picture(caption: str, path: str) -> str:
    """Returns a picture."""
    return f"![{literal(caption)}]({quote(path)})"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table of texts in Markdown, columns with numbers aligned to the right."""
    rows = list(rows)
    right = [i > 0 and any(_is_number(row[i]) for row in rows) for i in range(len(header))]
    ruler = ["---:" if numbers else "---" for numbers in right]
    escaped = [[cell.replace("|", r"\|") for cell in row] for row in (header, ruler, *rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in escaped)


def _is_number(text: str) -> bool:
    text = text.removeprefix("**")
    return text[:1].isdigit() or (text[:1] in "+-" and text[1:2].isdigit())


def filled(text: str) -> str:
    """Returns Markdown with its paragraphs and list items in lines of one width.

    Tables, headings, pictures and comments stay as they are; runs of empty lines become one.
    """
    blocks = [block.strip("\n") for block in re.split(r"\n\s*\n", text.strip())]
    filled = [
        block
        if block.startswith(("|", "#", "!", "<!--"))
        else "\n".join(map(_paragraph, re.split(r"\n(?=\* |\[[^\]]*\]: )", block)))
        for block in blocks
        if block
    ]
    return "\n\n".join(filled) + "\n"


def _paragraph(text: str) -> str:
    indent = "  " if text.startswith("* ") else ""
    # Code is not divided, nor a number and its unit.
    whole = re.sub(
        r"`[^`]*`| %", lambda match: match.group().replace(" ", "\0"), " ".join(text.split())
    )
    return textwrap.fill(
        whole, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    ).replace("\0", " ")

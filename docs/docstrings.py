"""Docstrings as they are read in Python: text, with code in backticks and in indented blocks.

A Griffe extension for the reference pages. Markdown would take `<h, c>` for markup, and the stars
and underscores of formulas for emphasis. Arguments that share one line of a docstring get a line
each, so that each is shown with its type and default.
"""

import re

from griffe import Extension, Object

# What stays as it is: code, an argument's name; and what is escaped.
_SPECIAL = re.compile(r"(`[^`]*`|^ +\*+\w+:)|([<*]|(?<!\w)_|_(?!\w))")
_SECTIONS = ("Args:", "Attributes:", "Columns:", "Raises:", "Returns:")
_ESCAPED = {"<": "&lt;", "*": "\\*", "_": "\\_"}
_SEVERAL = re.compile(r"^    (?P<names>\w+(?:, \w+)+): (?P<text>.*(?:\n {5,}\S.*)*)", re.M)


class PlainText(Extension):
    """Escapes what Markdown would take for markup."""

    def on_object(self, *, obj: Object, **_: object) -> None:
        if obj.docstring:
            text = _SEVERAL.sub(_one_each, obj.docstring.value)
            text = re.sub("^Example:$", "Examples:", text, flags=re.M)  # what Griffe knows
            section, lines = False, []
            for line in text.splitlines():
                if line[:1].strip():
                    section = line in _SECTIONS
                is_code = line.startswith("    ") and not section
                lines.append(line if is_code else _escaped(line))
            obj.docstring.value = "\n".join(lines)


def _one_each(match: re.Match) -> str:
    return "\n".join(f"    {name}: {match['text']}" for name in match["names"].split(", "))


def _escaped(line: str) -> str:
    return _SPECIAL.sub(lambda match: match[1] or _ESCAPED[match[2]], line)

"""Docstrings as they are read in Python: text, with code in backticks and in indented blocks.

A Griffe extension for the reference pages. Markdown would take `<h, c>` for markup, and the stars
and underscores of formulas for emphasis.
"""

import re

from griffe import Extension, Object

_SPECIAL = re.compile(r"(`[^`]*`)|([<*_])")


class PlainText(Extension):
    """Escapes what Markdown would take for markup."""

    def on_object(self, *, obj: Object, **_: object) -> None:
        if obj.docstring:
            lines = obj.docstring.value.splitlines()
            obj.docstring.value = "\n".join(map(_escaped, lines))


def _escaped(line: str) -> str:
    return _SPECIAL.sub(lambda match: match[1] or f"\\{match[2]}", line)

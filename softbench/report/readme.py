"""What records say in a page that a person writes: it is between markers that say what it is.

    <!--= value("step_ms", experiment="scaling", method="full", n=10000) -->21<!--/-->

is what a template of a page would write in double braces. Needs no Keras.
"""

import re
from collections.abc import Mapping

import jinja2

from softbench.commands import ConfigError
from softbench.report import markdown, pages
from softbench.report.frame import Frame


def filled(text: str, frames: Mapping[str, Frame]) -> str:
    """Returns the text with the number, or the table, that each marker asks for.

    Raises:
        ConfigError: for a marker that asks for what no record has.
    """
    functions, environment = pages.Page(frames).functions(), pages.environment()

    def replaced(match: re.Match) -> str:
        try:
            shown = environment.from_string(f"{{{{ {match['what']} }}}}").render(functions)
        except (jinja2.TemplateError, LookupError, TypeError, ValueError) as error:
            raise ConfigError(f"Marker `{match['what']}` has no number: {error}") from None
        shown = markdown.filled(shown).strip()
        shown = f"\n\n{shown}\n\n" if "\n" in shown else shown  # lines are blocks to themselves
        return f"<!--= {match['what']} -->{shown}<!--/-->"

    return markdown.MARKED.sub(replaced, text)

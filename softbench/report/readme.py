"""Numbers in a page that a person writes, README.md: each is between markers that say what it is.

    <!--= value("step_ms", experiment="scaling", method="full", n=10000) -->21<!--/-->

is what a template of a page would write in double braces. Needs no Keras.
"""

import re
from collections.abc import Mapping

import jinja2

from softbench.commands import ConfigError
from softbench.report import pages
from softbench.report.frame import Frame
from softbench.report.markdown import MARKED


def filled(text: str, frames: Mapping[str, Frame]) -> str:
    """Returns the text with the number that each marker asks for.

    Raises:
        ConfigError: for a marker that asks for what no record has.
    """
    functions, environment = pages.Page(frames).functions(), pages.environment()

    def replaced(match: re.Match) -> str:
        try:
            shown = environment.from_string(f"{{{{ {match['what']} }}}}").render(functions)
        except (jinja2.TemplateError, LookupError, TypeError, ValueError) as error:
            raise ConfigError(f"Marker `{match['what']}` has no number: {error}") from None
        return f"<!--= {match['what']} -->{shown}<!--/-->"

    return MARKED.sub(replaced, text)

"""Pages, tables and plots from records. Reads records alone: needs neither Keras nor a backend."""

import contextlib
from collections.abc import Iterator

from softbench.commands import ConfigError


@contextlib.contextmanager
def extra(what: str) -> Iterator[None]:
    """Around imports: a library that is missing is a `ConfigError` that names the extra.

    Args:
        what: what needs the library.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{what} needs {error.name.partition('.')[0]}: install the `report` extra, "
            "pip install 'softbench[report]'"
        ) from None

"""Where the processes of cells run: a module for each launcher.

A module has a class `Launcher(cluster)`, a context manager that is open while cells run:

* `each(function, items)` calls `function` on every item, one after the other or several at once.
* `run(cell, job)` runs a cell's process to its end. Then `partial/<id>.*` and, unless the
  process died, the record are in `job["workdir"]`.
* `is_parallel`: whether cells run side by side, so that none of them may print what it does.
* `deadline`: a `Deadline`.
"""

import importlib
import math
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from softbench.bench.config import ConfigError

LAUNCHERS = ("local", "ray")


class Ended(NamedTuple):
    """How a cell's process ended.

    Attributes:
        code: exit code; None if it was stopped after its time.
        seconds: that it took where it ran.
        note: where that was and what happened there, for its line; "" on this machine.
    """

    code: int | None
    seconds: float
    note: str = ""


class Deadline(NamedTuple):
    """When a run is to end, by `time.monotonic()`.

    Attributes:
        last: after which no cell begins.
        end: after which none runs.
    """

    last: float = math.inf
    end: float = math.inf


def get(name: str, cluster: Mapping[str, Any] | None = None, minutes: float = 0.0) -> Any:
    """Returns the launcher `name` for the field `cluster` of a config.

    Args:
        name: of `LAUNCHERS`.
        cluster: the field of the config.
        minutes: from now on, after which the run is to end; 0: when all cells have run. In the
            last tenth of them no cell begins.

    Raises:
        ConfigError: for an unknown name, or one whose library is missing or that has no deadline.
    """
    if name not in LAUNCHERS:
        names = ", ".join(LAUNCHERS)
        raise ConfigError(f"--launcher must be one of: {names}. Received: {name!r}")
    try:
        module = importlib.import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise ConfigError(
            f"--launcher={name} must be installed: pip install 'softbench[{name}]'. "
            f"Received: no module {name} in this Python"
        ) from None
    launcher = module.Launcher(cluster or {})
    if minutes and launcher.is_parallel:
        raise ConfigError(f"--minutes is for --launcher=local. Received: --launcher={name}")
    if minutes:
        now = time.monotonic()
        launcher.deadline = Deadline(now + 54 * minutes, now + 60 * minutes)
    return launcher

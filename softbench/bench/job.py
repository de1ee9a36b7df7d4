"""What passes between a cell and its task. Needs no Keras."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


class NotFinite(Exception):
    """Raised by a task whose loss is not a finite number; the learning curve is kept."""


class Job(NamedTuple):
    """What a task gets.

    Attributes:
        config: The cell's configuration.
        data_dir: Folder of the data sets, or None.
        result: The record's measured fields; a task fills it as it goes, so that a failure
            keeps what came before it.
        progress: Called with each new point of the learning curve.
        cache: Folder for what a task may keep between runs, or None.
        checkpoint: File from which a killed cell goes on, or None.
        checkpoint_minutes: Between two checkpoints within an epoch, at least.
        price: Of the method, where the config has a budget; see `softbench.bench.budget`.
    """

    config: dict
    data_dir: str | None
    result: dict
    progress: Callable[[dict], None]
    cache: Path | None = None
    checkpoint: Path | None = None
    checkpoint_minutes: float = 10.0
    price: dict | None = None

    @property
    def options(self) -> dict:
        """What the task is to do, besides its data, model and methods."""
        return self.config["options"]

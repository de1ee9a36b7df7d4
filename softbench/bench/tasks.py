"""The tasks that a cell can run, and the one line that registers each. Imports none of them.

A task is a package that holds `run.py` and `page.py`; see `softbench.experiments`.
"""

import importlib
from types import ModuleType
from typing import NamedTuple


class Task(NamedTuple):
    """Where a task is, and which settings of a config it takes.

    Attributes:
        run: module whose `run(job)` fills a record.
        page: module whose `VIEW` says how its records are shown.
        timing: keys of the field `timing`. A task that has none times nothing, and reads
            `options`.
        reads_data: whether its data set is one of `softbench.datasets`, checked before it runs.
    """

    run: str
    page: str
    timing: tuple[str, ...] = ()
    reads_data: bool = False


def _experiment(name: str, **fields: object) -> Task:
    package = f"softbench.experiments.{name}"
    return Task(f"{package}.run", f"{package}.page", **fields)


_TURNS = ("rounds", "block", "max_seconds")  # arguments of `timing.in_turn`
TASKS = {
    "train": Task(
        "softbench.bench.training.run",
        "softbench.report.training",
        timing=("warmup_steps", "head_repetitions", "diagnose_last"),
        reads_data=True,
    ),
    "states": _experiment("states", reads_data=True),
    "step_time": _experiment("step_time", timing=_TURNS),
    "full_softmax": _experiment("full_softmax", timing=_TURNS),
    "wall_time": _experiment("wall_time", timing=_TURNS),
    "gradient_bias": _experiment("gradient_bias", reads_data=True),
    "proposals": _experiment("proposals", reads_data=True),
    "kernel_mse": _experiment("kernel_mse"),
    "signal_to_noise": _experiment("signal_to_noise"),
    "mutual_information": _experiment("mutual_information"),
    "tree_fit": _experiment("tree_fit", timing=_TURNS),
    "top_k": _experiment("top_k", timing=_TURNS),
    "sharding": _experiment("sharding", timing=_TURNS),
    "nce_simulation": _experiment("nce_simulation"),
    "nce_efficiency": _experiment("nce_efficiency"),
}


def run_module(task: str) -> ModuleType:
    """Returns the module whose `run(job)` fills a record; it may import Keras."""
    return importlib.import_module(TASKS[task].run)


def page_module(task: str) -> ModuleType:
    """Returns the module whose `VIEW` says how records are shown; it needs no Keras."""
    return importlib.import_module(TASKS[task].page)

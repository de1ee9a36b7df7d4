"""The tasks that a cell can run, and the one line that registers each. Imports none of them.

A task is a package that holds `run.py` and `page.py`; see `softbench.experiments`.
"""

import importlib
from types import ModuleType
from typing import NamedTuple


class Task(NamedTuple):
    """Where a task is.

    Attributes:
        package: of `run`.
        page: module that makes its tables and plots.
        reads_data: whether its data set is one of `softbench.datasets`, checked before it runs.
    """

    package: str
    page: str
    reads_data: bool = False


def _experiment(name: str, reads_data: bool = False) -> Task:
    package = f"softbench.experiments.{name}"
    return Task(package, f"{package}.page", reads_data)


TASKS = {
    "train": Task("softbench.bench.training", "softbench.report.training", reads_data=True),
    "step_time": _experiment("step_time"),
    "wall_time": _experiment("wall_time"),
    "gradient_bias": _experiment("gradient_bias", reads_data=True),
    "kernel_mse": _experiment("kernel_mse"),
    "signal_to_noise": _experiment("signal_to_noise"),
    "mutual_information": _experiment("mutual_information"),
    "tree_fit": _experiment("tree_fit"),
    "nce_simulation": _experiment("nce_simulation"),
    "nce_efficiency": _experiment("nce_efficiency"),
}


def run_module(task: str) -> ModuleType:
    """Returns the module whose `run(job)` fills a record; it may import Keras."""
    return importlib.import_module(f"{TASKS[task].package}.run")


def page_module(task: str) -> ModuleType:
    """Returns the module whose `tables(plan, records)` shows records; it needs no Keras."""
    return importlib.import_module(TASKS[task].page)

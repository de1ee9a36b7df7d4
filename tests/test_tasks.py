"""The contract of a task: what its folder holds, and that one line registers it."""

import inspect
from pathlib import Path

import pytest
from shipped import CONFIGS, config_path, get_config

from softbench import experiments
from softbench.bench.tasks import TASKS, page_module, run_module
from softbench.report import measures

SHARED = {"nce"}  # no experiment: what two of them share
OF_THE_HARNESS = {"train"}


@pytest.mark.parametrize("name", TASKS)
def test_a_task_runs_a_job_and_shows_its_records(name):
    assert list(inspect.signature(run_module(name).run).parameters) == ["job"]
    view = page_module(name).VIEW
    assert list(inspect.signature(view.rows).parameters) == ["record"] and view.keys
    shown = [*view.columns, *(view.picture[axis] for axis in "xy" if axis in view.picture)]
    assert all(map(measures.is_declared, shown))


@pytest.mark.parametrize("name", CONFIGS)
def test_the_columns_of_a_config_are_measures(name):
    columns = get_config(config_path(name))["columns"]
    assert [column for column in columns if not measures.is_declared(column)] == []


@pytest.mark.parametrize("name", sorted(set(TASKS) - OF_THE_HARNESS))
def test_an_experiment_is_a_folder_of_its_name(name):
    package = f"softbench.experiments.{name}"
    assert (TASKS[name].run, TASKS[name].page) == (f"{package}.run", f"{package}.page")


def test_every_folder_of_experiments_is_registered():
    folder = Path(experiments.__file__).parent
    folders = {path.parent.name for path in folder.glob("*/__init__.py")}
    assert folders == set(TASKS) - OF_THE_HARNESS | SHARED

"""The order of the rooms: who may import whom, and who needs no Keras.

Imports are read from the source, those inside functions too, so that none hides.
"""

import ast
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import softbench
from softbench.bench import tasks

PACKAGE = Path(softbench.__file__).parent
# From the ground up; a room imports from itself and from those below it.
ROOMS = (
    ("common", "commands", "item_features"),
    ("ops",),
    ("labels", "distribution", "groups", "streaming"),
    ("targets", "state", "partition", "losses", "metrics", "datasets"),
    ("learning_rate", "rounding"),
    ("rows",),
    ("table",),
    ("tie",),
    ("class_table", "embedding_table"),
    ("item_tower",),
    ("samplers",),
    ("heads", "diagnostics", "models"),
    ("classifier", "serving"),
    ("prediction",),
    ("bench",),
    ("report",),
    ("experiments", "comparison"),
    ("__main__", "advise"),
)
FLOOR = {room: floor for floor, rooms in enumerate(ROOMS) for room in rooms}


def modules():
    return {
        ".".join(("softbench", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(
            ".__init__"
        ): path
        for path in sorted(PACKAGE.rglob("*.py"))
    }


MODULES = modules()


def imported(name):
    """The modules of softbench that a module imports."""
    found = set()
    for node in ast.walk(ast.parse(MODULES[name].read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: relative import"
            found |= {
                full if (full := f"{node.module}.{alias.name}") in MODULES else node.module
                for alias in node.names
            }
    return {other for other in found if other in MODULES and other != "softbench"}


def room(name):
    return name.split(".")[1]


def test_every_module_is_in_a_room():
    assert {room(name) for name in MODULES if name != "softbench"} == set(FLOOR)


def test_no_module_imports_from_a_room_above_or_beside():
    upward = [
        f"{name} -> {other}"
        for name in MODULES
        if name != "softbench"
        for other in imported(name)
        if room(name) != room(other) and FLOOR[room(other)] >= FLOOR[room(name)]
    ]
    assert upward == []


def test_there_is_no_import_cycle():
    done, path = set(), []

    def visit(name):
        assert name not in path, " -> ".join([*path[path.index(name) :], name])
        if name not in done:
            path.append(name)
            for other in sorted(imported(name)):
                visit(other)
            path.pop()
            done.add(name)

    for name in MODULES:
        visit(name)


def test_experiments_keep_apart_but_for_what_they_share():
    """`nce` and `trained` are shared; a page never imports a run, so that it needs no Keras."""
    for name in MODULES:
        if not name.startswith("softbench.experiments."):
            continue
        own = name.split(".")[2:3]
        for other in imported(name):
            if other.startswith("softbench.experiments."):
                assert other.split(".")[2] in (*own, "nce", "library", "trained"), (
                    name,
                    other,
                )
            if name.endswith(".page"):
                assert not other.endswith(".run"), (name, other)


LIGHT = (
    "softbench.datasets",
    "softbench.bench.app",
    "softbench.bench.runner",
    "softbench.report.app",
    "softbench.report.explorer",
    "softbench.advise",
    *(task.page for task in tasks.TASKS.values()),
)


def test_these_need_neither_keras_nor_a_backend_nor_what_draws_plots():
    """One after another in one process: the first that brings one of them in is named."""
    code = f"""
import importlib, sys
for name in {LIGHT}:
    importlib.import_module(name)
    heavy = {{"keras", "jax", "tensorflow", "matplotlib", "markdown_it", "altair", "vl_convert"}}
    found = heavy & set(sys.modules)
    assert not found, (name, found)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-2000:]


@pytest.mark.skipif(not importlib.util.find_spec("jax"), reason="Keras' NumPy backend needs JAX")
def test_on_another_backend_only_what_needs_one_is_an_error():
    code = "import softbench, keras, softbench.datasets; print('here'); softbench.FullSoftmax"
    environment = {**os.environ, "KERAS_BACKEND": "numpy"}
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert run.stdout.strip() == "here" and "Received: KERAS_BACKEND='numpy'" in run.stderr

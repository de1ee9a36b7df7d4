"""Cells that ask for too much memory, die or run out of time, beside good ones."""

import json
import os
import signal
import sys

import pytest
from small_runs import SMALL, arguments, cells_of, driver, records, wait_for

from softbench.bench import matrix, runner
from softbench.bench import records as records_lib

MORE = """
            "memory": sampled("uniform", 2**31 - 1),
            "dying": {"head": "FullSoftmax", "optimizer": {"name": "sgd", "learning_rate": 0.02}},
            "broken\""""


@pytest.mark.thorough
def test_bad_cells_say_why_and_good_ones_are_good(tmp_path):
    argv = arguments(tmp_path, "memory,dying,uniform")
    (tmp_path / "small.py").write_text(SMALL.replace('            "broken"', MORE.lstrip("\n")))
    out = tmp_path / "out"
    process = driver(argv)
    dying = wait_for(lambda: cells_of(out / "partial" / "synthetic_xmc-bag-dying"), 100)
    os.kill(dying[0], signal.SIGKILL)
    text, errors = process.communicate(timeout=200)
    assert (process.returncode, errors) == (1, "")
    found = records(out)
    assert {name: record["status"] for name, record in found.items()} == {
        "uniform": "ok",
        "memory": "crashed",
        "dying": "crashed",
    }
    for name, why in {
        "memory": ("memory", "oom", "exhausted", "allocat"),
        "dying": ("exit code -9.",),
    }.items():
        error = found[name]["error"].lower()
        assert any(word in error for word in why), error
        assert name in text
    assert found["uniform"]["final"]["test_nll"] > 0
    assert "crashed" in text


def test_a_cell_that_is_ended_keeps_its_curve(tmp_path, monkeypatch):
    """The cell is a script that writes two points, and half of a third, and then hangs."""
    points = [{"epoch": 1, "valid_nll": 2.5}, {"epoch": 2, "valid_nll": 2.25}]
    lines = "".join(json.dumps(point) + "\\n" for point in points)
    script = tmp_path / "cell"
    script.write_text(f"""#!/bin/sh
printf '{{"fit_seconds": 1}}\\n{lines}{{"epoch": 3, "val' > "${{3%.job.json}}.jsonl"
exec sleep 60
""")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    config = {"backend": "jax", "task": "train", "experiment": "x", "seed": 0, "dataset": {}}
    cell = matrix.Cell("x", config | {"methods": {}}, 1.0)
    runner.prepare(tmp_path)
    assert runner.run_cells([cell], tmp_path, None, "softbench", False) == ["timed_out"]
    (record,) = records_lib.read_all(tmp_path)
    assert record["curve"] == points and record["error"] == "Stopped after 1 s."

"""Output and files that cannot be written: one line, and no traceback."""

import os
import subprocess
from pathlib import Path

import pytest
from shipped import ROOT
from small_runs import ENDLESS, arguments, driver, mistake, wait_for

from softbench.report import app as report_app

FULL = Path("/dev/full")


@pytest.mark.thorough
def test_a_closed_pipe_ends_the_run_and_no_cell_is_to_blame(tmp_path):
    out = tmp_path / "out"
    process = driver(arguments(tmp_path, "full", ENDLESS))
    assert wait_for(lambda: list(out.glob("partial/*.jsonl")))
    process.stdout.close()
    errors = process.stderr.read()
    assert process.wait(timeout=30) == 2
    assert errors == (
        "softbench: error: standard output was closed; run the same command to resume\n"
    )
    assert not list(out.glob("runs/*"))


def test_a_reader_that_leaves_early(tmp_path):
    """`softbench --list | head`: the output is in Python's buffer until it ends."""
    read, write = os.pipe()
    process = driver(arguments(tmp_path, "", "--list"), stdout=write)
    os.close(read)
    os.close(write)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 2
    assert errors.startswith("softbench: error: standard output was closed")
    assert len(errors.splitlines()) == 1


@pytest.mark.skipif(not FULL.exists(), reason="/dev/full is Linux's")
def test_output_to_a_full_disk(tmp_path):
    with FULL.open("w") as full:
        process = driver(arguments(tmp_path, "", "--list"), stdout=full, stderr=subprocess.PIPE)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 2
    assert errors == "softbench: error: [Errno 28] No space left on device\n"


def test_folders_and_files_that_cannot_be_made(tmp_path):
    said = mistake(*arguments(tmp_path, "full"), f"--workdir={tmp_path / 'small.py' / 'out'}")
    assert "--workdir must be a folder that can be written. Received: " in said
    place = tmp_path / "nowhere" / "report.html"
    line = [f"--results={ROOT / 'results' / 'top_k'}", f"--html={place}"]
    said = mistake("softbench-report", *line, main=report_app.main)
    assert f"--html must be a file that can be written. Received: {place} (No such" in said

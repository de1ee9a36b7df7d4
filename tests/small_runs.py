"""What tests of runs share: a small experiment, its command line, processes, and its records."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import keras
import pytest
from shipped import ROOT

from softbench import __main__ as command
from softbench.bench import cell, launchers
from softbench.bench import records as records_lib
from softbench.bench.config import ConfigError
from softbench.bench.job import Job

BACKEND = keras.backend.backend()
ENVIRON = os.environ | {"PYTHONPATH": str(ROOT)}
ENDLESS = "--config.epochs=20000"
# Fields that a clock or the memory decides, or that name what was done meanwhile.
TIMES = {"started_at", "seconds", "evaluation_seconds", "compile_seconds", "fit_seconds"}
TIMES |= {"generation_seconds", "processor_seconds", "step_ms", "head_ms", "examples_per_second"}
TIMES |= {"peak_memory_mb", "resident_mb", "processors", "draws", "command", "git", "checksum"}
SMALL = """
from softbench.bench.config import experiment
from softbench.bench.methods import *

def get_config():
    uniform = sampled("uniform", 4)
    return experiment(
        "small",
        dataset={**SMALL_LABELS, "num_train": 300},
        model={"name": "bag", "dim": 4, "batch_size": 100},
        optimizer={"name": "adam", "learning_rate": 0.01},
        method_table={
            "full": full(),
            "uniform": uniform,
            "rows": with_row_updates(uniform, {"name": "adagrad", "learning_rate": 0.1}),
            "broken": sampled("uniform", 0),
        },
        timing=SMALL_TIMING,
        cell_timeout_s=200.0,
        columns=("test_perplexity", "step_ms"),
    )
"""


def arguments(tmp_path, methods, *options):
    """The command line of a run of the small experiment into `tmp_path / "out"`."""
    path = tmp_path / "small.py"
    path.write_text(SMALL)
    line = ["softbench", f"--config={path}", f"--workdir={tmp_path / 'out'}"]
    return [*line, f"--backend={BACKEND}", f"--config.methods={methods}", *options]


# Five steps an epoch.
BAG = {
    "dataset": {"name": "synthetic_xmc", "num_classes": 20, "num_features": 50}
    | {"num_train": 40, "num_valid": 30, "num_test": 30},
    "model": {"name": "bag", "dim": 4, "batch_size": 8},
}
# 40 words, an LSTM whose states are normalised, and rows of methods with the table that fits.
LANGUAGE = {
    "dataset": {"name": "synthetic_language", "num_classes": 40, "num_train": 800}
    | {"num_valid": 200, "num_test": 60},
    "model": {"name": "lstm", "units": 6, "num_layers": 1, "batch_size": 4, "num_steps": 5},
    "optimizer": {"name": "adam", "learning_rate": 1e-2},
}


def on_language(head, **kwargs):
    """A method's row."""
    table = {"normalize": True, "temperature": 0.2, "use_bias": False}
    return {"head": head, "kwargs": {**table, **kwargs}}


def sampled_language(name, **config):
    """The row of a sampler, ten draws."""
    sampler = {"class_name": name, "config": config}
    return on_language("SampledSoftmax", sampler=sampler, num_sampled=10)


def job(data_dir=None, cache=None, checkpoint=None, **fields):
    """What a task of a cell gets, to be run in this process: training for an epoch, or `fields`."""
    config = {"task": "train", "backend": BACKEND, "seed": 0, "epochs": 1, "steps_per_epoch": 0}
    config |= {"optimizer": {"name": "adam", "learning_rate": 0.05}, "experiment": ""}
    config |= {"timing": {"warmup_steps": 1, "head_repetitions": 0}}
    return Job(config | fields, data_dir, {}, lambda point: None, cache, checkpoint, 0.0)


class Calls:
    """What a suite gives to `softbench`, which ends with the status of a flag or of a config.

    A text for a status is the mistake that it ends with.
    """

    def __init__(self, **statuses):
        self.made, self.statuses = [], statuses

    def __call__(self, line):
        flags = dict(part.lstrip("-").partition("=")[::2] for part in line[1:])
        self.made.append(flags)
        names = (*flags, flags.get("config"))
        status = next((self.statuses[name] for name in names if name in self.statuses), 0)
        if isinstance(status, str):
            raise ConfigError(status)
        return status


def run_cells_here(monkeypatch):
    """Cells run in this process: each is spared a start of Keras."""

    def run_here(own, job, partial):
        path = partial / f"{own.id}.job.json"
        records_lib.write_json(path, job)
        code = cell.main([str(path)])
        signal.setitimer(signal.ITIMER_REAL, 0)
        return launchers.Ended(code, 1.0)

    monkeypatch.setattr(launchers.local, "run_here", run_here)
    monkeypatch.setattr(cell.os, "getsid", lambda process: 0)  # it would end with its driver


def mistake(*argv, main=command.main):
    """The one line that a command says of a command line with a mistake."""
    with pytest.raises(ConfigError) as error:
        main(list(argv))
    assert "\n" not in str(error.value)
    return str(error.value)


def driver(argv, **kwargs):
    """A process of the command line `argv`; its output is kept in pipes.

    It does not inherit that a signal is ignored, as under `nohup`.
    """
    command = [sys.executable, "-m", *argv]
    kwargs = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": ROOT, **kwargs}
    signals = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
    before = {number: signal.signal(number, signal.SIG_DFL) for number in signals}
    try:
        return subprocess.Popen(command, env=ENVIRON, text=True, **kwargs)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def wait_for(found, seconds=100):
    """Returns what `found()` returns, as soon as that is true; else what it returns at last."""
    end = time.monotonic() + seconds
    while not (value := found()) and time.monotonic() < end:
        time.sleep(0.02)
    return value


def cells_of(workdir):
    """Process ids of the cells whose job files are under `workdir`; Linux alone lists them.

    Not of what they start, which has the same command line at first.
    """
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_text().split("\0")
            if os.getsid(int(folder.name)) != int(folder.name):
                continue
        except OSError:
            continue
        if "softbench.bench.cell" in words and str(workdir) in " ".join(words):
            found.append(int(folder.name))
    return found


def records(workdir):
    """{method: record}."""
    found = [json.loads(path.read_text()) for path in (workdir / "runs").glob("*.json")]
    return {next(iter(record["config"]["methods"])): record for record in found}


def untimed(value):
    """Of a record or a part of it: all but what the clock and the memory said."""
    if isinstance(value, dict):
        return {key: untimed(item) for key, item in value.items() if key not in TIMES}
    return [untimed(item) for item in value] if isinstance(value, list) else value


def cli(*argv, **kwargs):
    """Runs a command line to its end: exit status, output, errors."""
    process = driver(argv, **kwargs)
    out, errors = process.communicate(timeout=100)
    return process.returncode, out, errors

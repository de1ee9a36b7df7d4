"""The price of a method: what its training step costs in steps of a reference. Needs no Keras.

Two processes are there at a time, that of the reference and that of one method, so that compilation
is paid once and no more than two tables are in memory. In each round both take a turn, one after
the other, and the ratio of the two turns is the round's: whatever else the machine does, it does to
both. The price is the median of the rounds.

    <workdir>/price/<data set>-<model>-<backend>-<hash>.json
        {"reference", "setting", "device", "versions", "code", "data", "git",
         "methods": {name: {"method", "ratio", "low", "high", "step_ms", "reference_ms",
                            "before_seconds", "rounds": [{"ratio", "step_ms", "reference_ms"}]}}}

Numbers of a method are medians of its rounds. From `low` to `high`, the second lowest and highest
of nine rounds (of fewer, the ends), is an interval for the median ratio at 96 %. `before_seconds`
is what must be done before the first step: a tree to fit. A method that fails has `error` instead.
"""

import hashlib
import json
import math
import os
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from softbench.bench import claims, environment, matrix, own_data, provenance, records
from softbench.bench import config as config_lib
from softbench.bench.config import ConfigError
from softbench.bench.launchers import local
from softbench.bench.matrix import Cell

FOLDER = "price"
ROUNDS = 9
# What decides the cost of a step, besides the method.
_SETTING = ("backend", "dataset", "model", "optimizer", "seed", "environment", "imports")
_SETTING += ("callbacks",)
# Schedules of Keras whose `decay_steps` are the steps until their end.
_ENDING = ("CosineDecay", "PolynomialDecay")


def price(
    config: Mapping, workdir: Path, data_dir: str | None = None, *, rounds: int = ROUNDS
) -> dict:
    """Returns the record of a config with one data set and model, measuring what it lacks.

    Args:
        config: plain and checked; of its seeds the first one is measured.
        workdir: where the record is, and from which it is taken up.
        data_dir: folder of the data sets.
        rounds: of each method.

    Raises:
        ConfigError: if the reference cannot be measured, or another run measures here.
    """
    (record,) = prices(config, workdir, data_dir, rounds=rounds)
    return record


def prices(
    config: Mapping,
    workdir: Path,
    data_dir: str | None = None,
    *,
    rounds: int = ROUNDS,
    deadline: float = math.inf,
) -> list[dict]:
    """As `price`, a record for each data set and model; prints them as they are measured.

    After the deadline, by `time.monotonic()`, no round begins.
    """
    reference, _ = config_lib.reference(config)
    cells = matrix.cells({**config, "budget": "", "rates": ()})
    problems: dict[str, list[Cell]] = {}
    for cell in own_data.read(cells, workdir):
        if cell.config["task"] != "train":
            raise ConfigError(f"--price is for the task 'train'. Received: {cell.config['task']!r}")
        if cell.config["seed"] == config["seeds"][0]:
            problems.setdefault(str(_path(cell.config, config, workdir)), []).append(cell)
    made = []
    for path, (first, *others) in problems.items():
        methods = {reference: config["method_table"][reference]}
        methods |= {k: v for cell in (first, *others) for k, v in cell.config["methods"].items()}
        record = _record(first, methods, reference, first.data_dir or data_dir)
        session = _Session(Path(path), record, rounds, deadline)
        session.measure(methods, first, first.data_dir or data_dir)
        made.append(session.record)
    return made


def _setting(config: Mapping) -> dict:
    return {key: config[key] for key in _SETTING if key in config}


def _path(cell: Mapping, config: Mapping, workdir: Path) -> Path:
    """The record's file, for the config of a cell."""
    name, _ = config_lib.reference(config)
    key = [{**_setting(cell), "seed": config["seeds"][0]}, name, config["method_table"][name]]
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:8]
    words = [matrix.name(cell["dataset"]), matrix.name(cell["model"]), cell["backend"], digest]
    return Path(workdir) / FOLDER / f"{'-'.join(words)}.json"


def _record(cell: Cell, methods: Mapping, reference: str, data_dir: str | None) -> dict:
    """A record without any round."""
    backend = cell.config["backend"]
    return {
        "reference": reference,
        "setting": _setting(cell.config),
        "versions": environment.versions(backend),
        "code": environment.code(),
        "git": environment.git_state(),
        "data": provenance.data(cell.config, data_dir),
        "device": None,
        "methods": {name: {"method": method, "rounds": []} for name, method in methods.items()},
    }


class _Failed(Exception):
    """What kept a process from a turn: the process, and a line."""


class _Session:
    """Measures what a record lacks, and writes it after every round.

    Args:
        path: of the record; rounds that are there are kept if they are of the same versions, code
            and data.
        record: without rounds, of all methods that are wanted.
    """

    def __init__(self, path: Path, record: dict, rounds: int, deadline: float) -> None:
        self.path, self.record = path, record
        self._rounds, self._deadline = rounds, deadline
        if not path.exists():
            return
        kept = json.loads(path.read_text())
        other = [key for key in ("versions", "code", "data") if kept[key] != record[key]]
        if other:
            print(f"{path.name} is of other {' and '.join(other)}; it is measured anew", flush=True)
            return
        self.record["device"] = kept["device"]
        for name, row in kept["methods"].items():
            wanted = record["methods"].setdefault(name, row)
            if wanted["method"] == row["method"] and "error" not in row:
                record["methods"][name] = row

    def measure(self, methods: Iterable[str], cell: Cell, data_dir: str | None) -> None:
        """Measures methods of a problem; the reference is the first of them."""
        claim = claims.claim(self.path.with_suffix(".claim"))
        if claim is None:
            raise ConfigError(f"--price: another run measures. Received: {self.path}")
        first, width = self.record["reference"], max(map(len, methods))
        print(f"{self.path.stem}: a step in steps of {first}\n{header(width)}", flush=True)

        def process(name: str) -> _Process:
            config = {**cell.config, "methods": {name: self.record["methods"][name]["method"]}}
            return _Process(config, data_dir, cell.timeout_s)

        try:
            with process(first) as reference:
                for name in methods:
                    if name == first:
                        self._measure(name, reference, reference)
                        if "error" in self.record["methods"][name]:
                            raise ConfigError(self._no_reference())
                    else:
                        with process(name) as other:
                            self._measure(name, other, reference)
                    print(line(name, self.record["methods"][name], width), flush=True)
        finally:
            claim.release()

    def _no_reference(self) -> str:
        name = self.record["reference"]
        error = self.record["methods"][name]["error"]
        rule = "--config.reference must be a method that can be trained here"
        return f"{rule}. Received: {name!r} ({error})"

    def _measure(self, name: str, process: "_Process", reference: "_Process") -> None:
        row = self.record["methods"][name]
        try:
            while len(row["rounds"]) < self._rounds and time.monotonic() < self._deadline:
                row["rounds"].append(self._round(len(row["rounds"]), process, reference))
                row["before_seconds"] = process.before_seconds
                row |= _summary(row["rounds"])
                records.write_json(self.path, self.record)
        except _Failed as error:
            failed, text = error.args
            text = text if failed is process else f"{self.record['reference']} next to it: {text}"
            self.record["methods"][name] = {"method": row["method"], "error": text}
            records.write_json(self.path, self.record)

    def _round(self, index: int, process: "_Process", reference: "_Process") -> dict:
        """A turn of both, of which the one begins in even rounds and the other in odd ones."""
        turns = {one: one.turn() for one in (reference, process)[:: -1 if index % 2 else 1]}
        if self.record["device"] not in (None, reference.device):
            raise ConfigError(
                f"--price must go on on the device where it began: {self.record['device']}. "
                f"Received: {reference.device}; remove {self.path}"
            )
        self.record["device"] = reference.device
        step, unit = turns[process], turns[reference]
        return {"ratio": step / unit, "step_ms": step, "reference_ms": unit}


def _summary(rounds: list[dict]) -> dict:
    ratios = sorted(turn["ratio"] for turn in rounds)
    low, high = (ratios[1], ratios[-2]) if len(ratios) >= 9 else (ratios[0], ratios[-1])
    medians = {key: statistics.median(turn[key] for turn in rounds) for key in rounds[0]}
    return {**medians, "low": low, "high": high}


class _Process:
    """A process that trains a method for a turn at a time; see `softbench.bench.training.turns`.

    It starts with its first turn, and ends with the context at the latest: on a TPU, which belongs
    to one process, after each turn.
    """

    def __init__(self, config: dict, data_dir: str | None, timeout_s: float) -> None:
        self._job = {"config": config, "data_dir": data_dir, "timeout_s": timeout_s}
        self._process: subprocess.Popen | None = None
        self.device: dict = {}
        self.before_seconds = 0.0

    def __enter__(self) -> "_Process":
        self._errors = tempfile.TemporaryFile("w+", errors="replace")
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        self._errors.close()

    def turn(self) -> float:
        """Milliseconds of a training step, a mean over those of a turn.

        Raises:
            _Failed: with itself and the last line of what went wrong.
        """
        if self._process is None:
            self._start()
            answer = self._ask(json.dumps(self._job))
            self.device, self.before_seconds = answer["device"], answer["before_seconds"]
        milliseconds = self._ask("turn")["step_ms"]
        if self.device["kind"] == "tpu":
            self._stop()
        return milliseconds

    def _start(self) -> None:
        # Two processes share the device: neither takes its memory in advance.
        environ = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "softbench.bench.training.turns"],
            env=local.environ(self._job["config"]) | environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
        )

    def _ask(self, question: str) -> Any:
        try:
            print(question, file=self._process.stdin, flush=True)
            answer = json.loads(self._process.stdout.readline() or "null")
        except BrokenPipeError:
            answer = None
        if answer is None:
            answer = {"error": self._why()}
        if "error" in answer:
            self._stop()
            raise _Failed(self, answer["error"])
        return answer

    def _why(self) -> str:
        code = self._process.wait()
        if code == -signal.SIGALRM:
            return f"stopped after {self._job['timeout_s']:g} s"
        self._errors.seek(0)
        lines = records.scrub(self._errors.read()).splitlines()
        return lines[-1] if lines else f"exit code {code}"

    def _stop(self) -> None:
        if self._process is None:
            return
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        for pipe in (self._process.stdin, self._process.stdout):
            pipe.close()
        self._process.wait()
        self._process = None


def header(width: int) -> str:
    """The head of a table whose names have so many letters at most."""
    return f"{'method':<{width}}   ratio       low to high    step, ms"


def line(name: str, row: Mapping, width: int) -> str:
    """A method's line of the table."""
    if "error" in row:
        return f"{name:<{width}}  failed: {row['error']}"
    if not row["rounds"]:
        return f"{name:<{width}}       -"
    spread = f"{row['low']:.3f} to {row['high']:.3f}"
    before = f"  and {row['before_seconds']:.1f} s before" if row["before_seconds"] else ""
    return f"{name:<{width}}  {row['ratio']:6.3f}  {spread:>17}  {row['step_ms']:10.2f}{before}"


def budgeted(
    cells: list[Cell], config: Mapping, workdir: Path, command: Iterable[str]
) -> list[Cell]:
    """Returns the cells with the steps that their config's budget is for each method.

    A cell's config has them as `steps`, and its learning rate falls to its end in them.

    Args:
        cells: of a checked config, which is returned as it is without a budget.
        config, workdir: of the cells.
        command: the command line, to say what measures a price.

    Raises:
        ConfigError: without the price of a method.
    """
    if not config["budget"]:
        return cells
    lacking, made = [], []
    for cell in cells:
        path = _path(cell.config, config, workdir)
        record = json.loads(path.read_text()) if path.exists() else {"methods": {}}
        ((name, method),) = cell.config["methods"].items()
        row = record["methods"].get(name, {})
        if row.get("method") == method and "ratio" in row:
            made.append(_budgeted(cell, config, record, name))
        else:
            why = f": {row['error']}" if "error" in row else ""
            lacking.append(f"{name} on {matrix.name(cell.config['dataset'])}{why}")
    if lacking:
        raise ConfigError(
            f"--config.budget needs prices; run {shlex.join([*command, '--price'])}. "
            f"Received: none of {', '.join(dict.fromkeys(lacking))}"
        )
    return made


def _budgeted(cell: Cell, config: Mapping, record: Mapping, name: str) -> Cell:
    """A cell with its steps."""
    row, (reference, steps) = record["methods"][name], config_lib.reference(config)
    unit = record["methods"][reference]["step_ms"]
    before = row["before_seconds"] * 1000 / unit
    total = max(1, math.floor((steps - before) / row["ratio"]))
    price = {key: row[key] for key in ("ratio", "low", "high", "step_ms", "before_seconds")}
    price |= {"reference": reference, "reference_ms": unit, "device": record["device"]}
    fields = {"steps": total, "steps_per_epoch": 0}
    method = _to_its_end(cell.config["methods"][name], cell.config["optimizer"], total)
    changed = {**cell.config, **fields, "methods": {name: method}}
    return cell._replace(id=matrix.cell_id(changed), config=changed, price=price)


def _to_its_end(method: dict, optimizer: Mapping, steps: int) -> dict:
    """A method whose learning rate, where it is one that ends, does so after these steps."""
    rate = {**optimizer, **method.get("optimizer", {})}.get("learning_rate")
    if not isinstance(rate, Mapping) or rate.get("class_name") not in _ENDING:
        return method
    decay = {"decay_steps": max(1, steps - rate["config"].get("warmup_steps", 0))}
    rate = {**rate, "config": {**rate["config"], **decay}}
    return {**method, "optimizer": {**method.get("optimizer", {}), "learning_rate": rate}}


def of_steps(price: Mapping, steps: int) -> dict[str, float]:
    """What so many steps of a budgeted cell cost: steps of the reference, and seconds of it."""
    unit = price["reference_ms"] / 1000
    count = steps * price["ratio"] + price["before_seconds"] / unit
    return {"reference_steps": round(count, 2), "price_seconds": round(count * unit, 3)}

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
import statistics
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from softbench.bench import claims, environment, matrix, own_data, provenance, records
from softbench.bench import config as config_lib
from softbench.bench.config import ConfigError
from softbench.bench.matrix import Cell
from softbench.bench.worker import Failed, Worker

FOLDER = "price"
ROUNDS = 9
_SETTING = ("backend", "dataset", "model", "optimizer", "environment", "imports", "callbacks")


def prices(
    config: Mapping,
    workdir: Path,
    data_dir: str | None = None,
    *,
    rounds: int = ROUNDS,
    deadline: float = math.inf,
) -> list[dict]:
    """Returns a record for each data set and model, measuring what it lacks; prints as it goes.

    Args:
        config: plain and checked; of its seeds the first one is measured.
        workdir: where the records are, and from which they are taken up.
        data_dir: folder of the data sets.
        rounds: of each method.
        deadline: by `time.monotonic()`, after which no round begins.

    Raises:
        ConfigError: if the reference cannot be measured, or another run measures here.
    """
    reference, _ = config_lib.reference(config)
    cells = matrix.cells({**config, "budget": "", "search": {}})
    problems: dict[str, list[Cell]] = {}
    for cell in own_data.read(cells, workdir):
        if cell.config["task"] != "train":
            raise ConfigError(f"--price is for the task 'train'. Received: {cell.config['task']!r}")
        if cell.config["seed"] == config["seeds"][0]:
            problems.setdefault(str(path_of(cell.config, config, workdir)), []).append(cell)
    made = []
    for path, (first, *others) in problems.items():
        methods = {reference: config["method_table"][reference]}
        methods |= {k: v for cell in (first, *others) for k, v in cell.config["methods"].items()}
        record = _record(first, methods, reference, first.data_dir or data_dir)
        session = _Session(Path(path), record, rounds, deadline)
        session.measure(methods, first, first.data_dir or data_dir)
        made.append(session.record)
    return made


def setting(config: Mapping) -> dict:
    """Returns what of a cell's config decides the cost of a step, besides the method."""
    return {key: config[key] for key in _SETTING if key in config}


def path_of(cell: Mapping, config: Mapping, workdir: Path) -> Path:
    """Returns the file of the record for a cell's config.

    Args:
        cell: its config.
        config: that of all cells, whose reference it names.
        workdir: the folder of results.
    """
    name, _ = config_lib.reference(config)
    key = [setting(cell), name, config["method_table"][name]]
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:8]
    words = [matrix.name(cell["dataset"]), matrix.name(cell["model"]), cell["backend"], digest]
    return Path(workdir) / FOLDER / f"{'-'.join(words)}.json"


def _record(cell: Cell, methods: Mapping, reference: str, data_dir: str | None) -> dict:
    """A record without any round."""
    backend = cell.config["backend"]
    return {
        "reference": reference,
        "setting": setting(cell.config),
        "versions": environment.versions(backend),
        "code": environment.code(),
        "git": environment.git_state(),
        "data": provenance.data(cell.config, data_dir),
        "device": None,
        "methods": {name: {"method": method, "rounds": []} for name, method in methods.items()},
    }


def read(path: Path) -> dict | None:
    """Returns the record at a path; None if there is none.

    Raises:
        ConfigError: for a file that is not whole.
    """
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except ValueError:
        raise ConfigError(
            f"A record of --price must be whole; remove it. Received: {path}"
        ) from None


def read_folder(workdir: Path) -> list[dict]:
    """Returns all records of a folder of results.

    Raises:
        ConfigError: as `read`.
    """
    found = (read(path) for path in sorted((Path(workdir) / FOLDER).glob("*.json")))
    return [record for record in found if record is not None]


def reference_ms(record: Mapping) -> float:
    """Returns the median step of the reference in all rounds, of whichever method; NaN of none."""
    rounds = [turn for row in record["methods"].values() for turn in row.get("rounds", ())]
    return statistics.median([turn["reference_ms"] for turn in rounds] or [math.nan])


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
        kept = read(path)
        if kept is None:
            return
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
        partial = self.path.parents[1] / "partial"
        with claims.claim(partial / f"{self.path.stem}.price.claim") as is_ours:
            if not is_ours:
                raise ConfigError(f"--price: another run measures. Received: {self.path}")
            self._measure_all(methods, cell, data_dir)

    def _measure_all(self, methods: Iterable[str], cell: Cell, data_dir: str | None) -> None:
        first, width = self.record["reference"], max(map(len, methods))
        print(f"{self.path.stem}: a step in steps of {first}\n{header(width)}", flush=True)

        def process(name: str) -> Worker:
            config = {**cell.config, "methods": {name: self.record["methods"][name]["method"]}}
            return Worker(config, data_dir, cell.timeout_s)

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

    def _no_reference(self) -> str:
        name = self.record["reference"]
        error = self.record["methods"][name]["error"]
        rule = "--config.reference must be a method that can be trained here"
        return f"{rule}. Received: {name!r} ({error})"

    def _measure(self, name: str, process: Worker, reference: Worker) -> None:
        row = self.record["methods"][name]
        try:
            while len(row["rounds"]) < self._rounds and time.monotonic() < self._deadline:
                row["rounds"].append(self._round(len(row["rounds"]), process, reference))
                row["before_seconds"] = process.before_seconds
                row |= _summary(row["rounds"])
                records.write_json(self.path, self.record)
        except Failed as error:
            failed, text = error.args
            text = text if failed is process else f"{self.record['reference']} next to it: {text}"
            self.record["methods"][name] = {"method": row["method"], "error": text}
            records.write_json(self.path, self.record)

    def _round(self, index: int, process: Worker, reference: Worker) -> dict:
        """A turn of both, of which the one begins in even rounds and the other in odd ones."""
        order = dict.fromkeys((process, reference) if index % 2 else (reference, process))
        turns = {one: one.turn() for one in order}
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

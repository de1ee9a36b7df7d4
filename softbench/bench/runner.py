"""Runs cells one after the other, each in its own process, and resumes where it stopped."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from softbench.bench import records
from softbench.bench.cell import new_record
from softbench.bench.config import ConfigError
from softbench.bench.matrix import Cell


def prepare(workdir: Path) -> None:
    """Creates `workdir` and proves that it can be written.

    Raises:
        ConfigError: When it cannot.
    """
    try:
        (workdir / "runs").mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=workdir / "runs"):
            pass
    except OSError as error:
        raise ConfigError(
            f"--workdir must be a folder that can be written. Received: {workdir} "
            f"({error.strerror})"
        ) from None


def is_pending(cell: Cell, workdir: Path, retry_failed: bool) -> bool:
    """Whether a cell has no record or, to retry the failed ones, none that is "ok"."""
    done = ("ok",) if retry_failed else records.STATUSES
    return records.status(_path(cell, workdir)) not in done


def _path(cell: Cell, workdir: Path) -> Path:
    return workdir / "runs" / f"{cell.id}.json"


def run_cells(
    cells: list[Cell], workdir: Path, data_dir: str | None, command: str, retry_failed: bool
) -> list[str]:
    """Runs every cell that is pending and prints one line for each; returns their statuses.

    `command` is the command line that records and report show.
    """
    statuses = []
    for index, cell in enumerate(cells, 1):
        note = "kept"
        if is_pending(cell, workdir, retry_failed):
            print(f"[{index}/{len(cells)}] {cell.id}", flush=True)
            start = time.monotonic()
            _run_cell(cell, workdir, data_dir, command)
            note = f"{time.monotonic() - start:.1f} s"
        statuses.append(records.status(_path(cell, workdir)))
        print(f"[{index}/{len(cells)}] {cell.id}: {statuses[-1]} ({note})", flush=True)
    return statuses


def _run_cell(cell: Cell, workdir: Path, data_dir: str | None, command: str) -> None:
    path, partial = _path(cell, workdir), workdir / "partial"
    path.unlink(missing_ok=True)
    partial.mkdir(exist_ok=True)
    job, errors = (partial / f"{cell.id}.{kind}" for kind in ("job.json", "stderr"))
    content = {"cell": cell._asdict(), "workdir": str(workdir.resolve())}
    records.write_json(job, content | {"data_dir": data_dir, "command": command})
    code = None
    timeout = contextlib.suppress(subprocess.TimeoutExpired)
    with errors.open("wb") as stderr, _process(job, cell, stderr) as process, timeout:
        code = process.wait(timeout=cell.timeout_s)
    if not path.exists():
        record = new_record(cell._asdict(), command)
        if code is None:
            record |= {"status": "timed_out", "error": f"Stopped after {cell.timeout_s:g} s."}
        else:
            text = records.scrub(errors.read_text(errors="replace"))
            record |= {"status": "crashed", "error": f"Exit code {code}.\n{text}".strip()}
        records.write_json(path, record)
    job.unlink(missing_ok=True)


@contextlib.contextmanager
def _process(job: Path, cell: Cell, stderr: object) -> Iterator[subprocess.Popen]:
    """Starts the cell's process and ends it, with its children, on the way out."""
    command = [sys.executable, "-m", "softbench.bench.cell", str(job)]
    environ = os.environ | cell.config.get("environment", {})
    environ["KERAS_BACKEND"] = cell.config["backend"]
    environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # A session of its own: Ctrl-C reaches this process alone, which then ends the cell.
    process = subprocess.Popen(command, env=environ, stderr=stderr, start_new_session=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

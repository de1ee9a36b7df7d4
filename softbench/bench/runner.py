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


def run_cells(
    cells: list[Cell], workdir: Path, data_dir: str | None, command: str, retry_failed: bool
) -> list[str]:
    """Runs every cell that has no record yet and prints one line for each.

    Args:
        cells: The matrix.
        workdir: Results folder.
        data_dir: Folder of the data sets, or None.
        command: The command line that records and report show.
        retry_failed: Runs cells again whose record is not "ok".

    Returns:
        The status of every cell, in order.
    """
    statuses = []
    for index, cell in enumerate(cells, 1):
        path = workdir / "runs" / f"{cell.id}.json"
        status, note = records.status(path), "kept"
        if status is None or (status != "ok" and retry_failed):
            path.unlink(missing_ok=True)
            print(f"[{index}/{len(cells)}] {cell.id}", flush=True)
            start = time.monotonic()
            _run_cell(cell, path, workdir, data_dir, command)
            status, note = records.status(path), f"{time.monotonic() - start:.1f} s"
        statuses.append(status)
        print(f"[{index}/{len(cells)}] {cell.id}: {status} ({note})", flush=True)
    return statuses


def _run_cell(cell: Cell, path: Path, workdir: Path, data_dir: str | None, command: str) -> None:
    partial = workdir / "partial"
    partial.mkdir(exist_ok=True)
    job = partial / f"{cell.id}.job.json"
    content = {"cell": cell._asdict(), "workdir": str(workdir.resolve())}
    records.write_json(job, content | {"data_dir": data_dir, "command": command})
    errors = partial / f"{cell.id}.stderr"
    code = None
    timeout = contextlib.suppress(subprocess.TimeoutExpired)
    with errors.open("wb") as stderr, _process(job, cell, stderr) as process, timeout:
        code = process.wait(timeout=cell.timeout_s)
    if records.status(path) is None:
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

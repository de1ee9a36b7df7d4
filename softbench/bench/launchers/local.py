"""Cells one after the other, each in a separate process on this machine."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from softbench.bench import records
from softbench.bench.launchers import Deadline, Ended
from softbench.bench.matrix import Cell


class Launcher:
    """See `softbench.bench.launchers`; `cluster` says nothing to it."""

    is_parallel, deadline = False, Deadline()

    def __init__(self, cluster: Mapping[str, Any]) -> None:
        pass

    def __enter__(self) -> "Launcher":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def each(self, function: Callable[[Any], None], items: Iterable[Any]) -> None:
        """One after the other."""
        for item in items:
            function(item)

    def run(self, cell: Cell, job: dict) -> Ended:
        """Runs a cell's process here, until the deadline at most."""
        left = self.deadline.end - time.monotonic()
        cell = cell._replace(timeout_s=min(cell.timeout_s, left))
        return run_here(cell, job, Path(job["workdir"]) / "partial")


def run_here(cell: Cell, job: dict, partial: Path, **options: Any) -> Ended:
    """Runs a cell's process on this machine, for `cell.timeout_s` at most.

    Args:
        cell, job: what it gets, as `partial/<id>.job.json`.
        partial: folder of drafts; standard error goes to `<id>.stderr` there.
        **options: of `subprocess.Popen`: `cwd`, `stdout`.
    """
    start, path, code = time.monotonic(), partial / f"{cell.id}.job.json", None
    records.write_json(path, job)
    with (
        (partial / f"{cell.id}.stderr").open("wb") as stderr,
        _process(path, cell, stderr=stderr, **options) as process,
        contextlib.suppress(subprocess.TimeoutExpired),
    ):
        code = process.wait(timeout=cell.timeout_s)
    return Ended(code, time.monotonic() - start)


def environ(config: Mapping[str, Any]) -> dict[str, str]:
    """The environment variables of a process for the config of a cell."""
    variables = {**os.environ, **config.get("environment", {}), "KERAS_BACKEND": config["backend"]}
    variables.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    return variables


@contextlib.contextmanager
def _process(job: Path, cell: Cell, **options: Any) -> Iterator[subprocess.Popen]:
    """Starts the cell's process and ends it, with its children, on the way out."""
    command = [sys.executable, "-m", "softbench.bench.cell", str(job)]
    # The cell ends when nobody holds the other end of the pipe: with this process at the latest.
    end, held = os.pipe()
    try:
        # A new session: Ctrl-C reaches this process alone, which then ends the cell.
        process = subprocess.Popen(
            command, env=environ(cell.config), stdin=end, start_new_session=True, **options
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    finally:
        os.close(end)
        os.close(held)

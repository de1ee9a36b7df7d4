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

from softbench.bench import claims, records
from softbench.bench.cell import CLOSED, MISTAKEN, new_record
from softbench.bench.config import ConfigError
from softbench.bench.matrix import Cell

FAILED = ("crashed", "timed_out", "nan")
_LOOK_AGAIN = 0.5  # seconds between two looks at cells that other drivers run


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
    """Whether a cell has no record or, to retry the failed ones, none that is "ok".

    A damaged record is left for its owner to look at.
    """
    found = records.status(_path(cell, workdir))
    return found is None or (retry_failed and found not in ("ok", records.DAMAGED))


def _path(cell: Cell, workdir: Path) -> Path:
    return workdir / "runs" / f"{cell.id}.json"


def run_cells(
    cells: list[Cell],
    workdir: Path,
    data_dir: str | None,
    command: str,
    retry_failed: bool,
    checkpoint_minutes: float = 10.0,
) -> list[str]:
    """Runs every cell that is pending and prints one line for each; returns their statuses.

    A cell that another driver runs is left to it, and waited for when all others are done.
    `command` is the command line that records and report show; `checkpoint_minutes` is between two
    checkpoints of a cell within an epoch. The first cell looks for mistakes in those of all others
    before it runs.

    Raises:
        ConfigError: for a mistake in a method, a model or an optimizer, one line each.
    """
    job = {"workdir": str(workdir.resolve()), "data_dir": data_dir, "command": command}
    job["checkpoint_minutes"] = checkpoint_minutes
    job["check"] = [c.config for c in cells if is_pending(c, workdir, retry_failed)]
    before = [_stamp(_path(cell, workdir)) for cell in cells]
    statuses: dict[int, str] = {}
    elsewhere: set[int] = set()
    while len(statuses) < len(cells):
        for index, cell in enumerate(cells):
            if index in statuses:
                continue
            name = f"[{index + 1}/{len(cells)}] {cell.id}"
            note = _run_if_free(cell, workdir, job, name, before[index], retry_failed)
            if note:
                statuses[index] = records.status(_path(cell, workdir))
                print(f"{name}: {statuses[index]} ({note})", flush=True)
                if statuses[index] in FAILED:
                    print(_what_to_do(_path(cell, workdir)), flush=True)
            elif index not in elsewhere:
                elsewhere.add(index)
                print(f"{name}: another run has it", flush=True)
        if len(statuses) < len(cells):
            time.sleep(_LOOK_AGAIN)
    return [statuses[index] for index in range(len(cells))]


def _what_to_do(path: Path) -> str:
    """Of a record that is not "ok": its last line of error, where it is and how to try again."""
    error = (records.read(path)["error"] or "").strip().splitlines()
    lines = [*error[-1:], f"{path}: --retry_failed runs this cell again"]
    return "\n".join(f"    {line}" for line in lines)


def _stamp(path: Path) -> tuple | None:
    """What tells one file at `path` from a later one."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


def _run_if_free(
    cell: Cell, workdir: Path, job: dict, name: str, before: tuple | None, retry_failed: bool
) -> str | None:
    """Runs a pending cell; returns where its record is from, None while another driver has it.

    A record that was not there `before` is of another driver: it counts, even to retry.
    """
    if not is_pending(cell, workdir, retry_failed):
        return "kept"
    claim = claims.claim(workdir / "partial" / f"{cell.id}.claim")
    if claim is None:
        return None
    try:
        stamp = _stamp(_path(cell, workdir))
        if not is_pending(cell, workdir, retry_failed) or stamp not in (None, before):
            return "of another run"
        print(name, flush=True)
        start = time.monotonic()
        ended = _run_cell(cell, workdir, job, claim)
        return f"{time.monotonic() - start:.1f} s" if ended else None
    finally:
        claim.release()


def _run_cell(cell: Cell, workdir: Path, job: dict, claim: claims.Claim) -> bool:
    """Runs a cell until it has a record; False if another driver has taken it over."""
    path, partial = _path(cell, workdir), workdir / "partial"
    path.unlink(missing_ok=True)
    place, errors = (partial / f"{cell.id}.{kind}" for kind in ("job.json", "stderr"))
    job = job | {"cell": cell._asdict(), "data_dir": cell.data_dir or job["data_dir"]}
    records.write_json(place, job)
    with errors.open("wb") as stderr, _process(place, cell, stderr) as process:
        code = _wait(process, cell.timeout_s, claim)
    if not claim.is_held():
        return False
    if code == CLOSED:
        raise BrokenPipeError
    if code == MISTAKEN:
        mistakes = partial / f"{cell.id}.mistakes"
        text = mistakes.read_text()
        for left in (place, mistakes):
            left.unlink(missing_ok=True)
        raise ConfigError(text)
    if not path.exists():
        record = new_record(job)
        if code in (None, -signal.SIGALRM):
            record |= {"status": "timed_out", "error": f"Stopped after {cell.timeout_s:g} s."}
        else:
            text = records.scrub(errors.read_text(errors="replace"))
            record |= {"status": "crashed", "error": f"Exit code {code}.\n{text}".strip()}
        curve = records.read_curve(partial / f"{cell.id}.jsonl")
        records.write_json(path, record | ({"curve": curve} if curve else {}))
    place.unlink(missing_ok=True)
    return True


def _wait(process: subprocess.Popen, seconds: float, claim: claims.Claim) -> int | None:
    """The exit code of a cell; None if it is to be ended: after so many seconds, or taken over."""
    end = time.monotonic() + seconds
    while claim.is_held() and (left := end - time.monotonic()) > 0:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(timeout=min(left, claims.HEARTBEAT))
    return None


@contextlib.contextmanager
def _process(job: Path, cell: Cell, stderr: object) -> Iterator[subprocess.Popen]:
    """Starts the cell's process and ends it, with its children, on the way out."""
    command = [sys.executable, "-m", "softbench.bench.cell", str(job)]
    environ = os.environ | cell.config.get("environment", {})
    environ["KERAS_BACKEND"] = cell.config["backend"]
    environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # The cell ends when nobody holds the other end of the pipe: with this process at the latest.
    end, held = os.pipe()
    try:
        # A session of its own: Ctrl-C reaches this process alone, which then ends the cell.
        process = subprocess.Popen(
            command, env=environ, stdin=end, stderr=stderr, start_new_session=True
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

"""Runs cells, each in a separate process, and resumes where it stopped."""

import signal
import tempfile
import time
from pathlib import Path
from typing import Any

from softbench.bench import claims, launchers, records
from softbench.bench.cell import CLOSED, MISTAKEN, new_record
from softbench.bench.config import ConfigError
from softbench.bench.launchers import Ended
from softbench.bench.matrix import Cell

FAILED = ("crashed", "timed_out", "nan")
LEFT = "left"  # of a cell for which there was no time
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
    status = records.status(record_path(cell, workdir))
    return status is None or (retry_failed and status not in ("ok", records.DAMAGED))


def record_path(cell: Cell, workdir: Path) -> Path:
    """Returns where the record of a cell is, or will be."""
    return workdir / "runs" / f"{cell.id}.json"


def run_cells(
    cells: list[Cell],
    workdir: Path,
    data_dir: str | None,
    command: str,
    retry_failed: bool,
    checkpoint_minutes: float = 10.0,
    launcher: Any = None,
) -> list[str]:
    """Runs every cell that is pending and prints one line for each; returns their statuses.

    After the launcher's deadline those without a record are `LEFT`. A cell that another driver runs
    is left to it, and waited for when all others are done. `command` is the command line that
    records and report show; `checkpoint_minutes` is between two checkpoints of a cell within an
    epoch; `launcher` is of `launchers.get`, None is "local". The first cell looks for mistakes in
    those of all others before it runs.

    Raises:
        ConfigError: for a mistake in a method, a model or an optimizer, one line each.
    """
    launcher = launcher or launchers.get("local")
    job = {"workdir": str(workdir.resolve()), "data_dir": data_dir, "command": command}
    job["checkpoint_minutes"] = checkpoint_minutes
    job["check"] = [c.config for c in cells if is_pending(c, workdir, retry_failed)]
    before = [_stamp(record_path(cell, workdir)) for cell in cells]
    statuses: dict[int, str] = {}
    elsewhere: set[int] = set()

    def look(index: int) -> None:
        """Runs a cell that is free."""
        cell = cells[index]
        name = f"[{index + 1}/{len(cells)}] {cell.id}"
        title = "" if launcher.is_parallel else name
        note = _run_if_free(cell, workdir, job, title, before[index], retry_failed, launcher)
        if note:
            statuses[index] = records.status(record_path(cell, workdir))
            lines = [f"{name}: {statuses[index]} ({note})"]
            if statuses[index] in FAILED:
                lines.append(_what_to_do(record_path(cell, workdir)))
            _print(lines)
        elif time.monotonic() >= launcher.deadline.last:
            statuses[index] = LEFT
        elif index not in elsewhere:
            elsewhere.add(index)
            _print([f"{name}: another run has it"])

    with launcher:
        while left := [index for index in range(len(cells)) if index not in statuses]:
            launcher.each(look, left)
            if len(statuses) < len(cells):
                time.sleep(_LOOK_AGAIN)
    return [statuses[index] for index in range(len(cells))]


def _print(lines: list[str]) -> None:
    """Prints whole lines, in one piece: several cells may do so at once."""
    print("".join(f"{line}\n" for line in lines), end="", flush=True)


def _what_to_do(path: Path) -> str:
    """Of a record that is not "ok": its last line of error, where it is and how to try again."""
    error = (records.read(path)["error"] or "").strip().splitlines()
    lines = [*error[-1:], f"{path}: --retry_failed runs this cell again"]
    return "\n".join(f"    {line}" for line in lines)


def _stamp(path: Path) -> tuple | None:
    """What tells one file at `path` from a later one."""
    try:
        stat = path.stat()
    except FileNotFoundError:
        return None
    return stat.st_ino, stat.st_mtime_ns


def _run_if_free(
    cell: Cell,
    workdir: Path,
    job: dict,
    title: str,
    before: tuple | None,
    retry_failed: bool,
    launcher: Any,
) -> str | None:
    """Runs a pending cell; returns where its record is from.

    None while another driver has it, or if the deadline leaves no time. The title, if it has one,
    is printed when it starts. A record that was not there `before` is of another driver: it counts,
    even to retry.
    """
    if not is_pending(cell, workdir, retry_failed):
        return "kept"
    if time.monotonic() >= launcher.deadline.last:
        return None
    with claims.claim(workdir / "partial" / f"{cell.id}.claim") as is_ours:
        if not is_ours:
            return None
        stamp = _stamp(record_path(cell, workdir))
        if not is_pending(cell, workdir, retry_failed) or stamp not in (None, before):
            return "of another run"
        if title:
            _print([title])
        ended = _run_cell(cell, workdir, job, launcher)
    return f"{ended.seconds:.1f} s{ended.note}" if ended else None


def _run_cell(cell: Cell, workdir: Path, job: dict, launcher: Any) -> Ended | None:
    """Runs a cell until it has a record; None if time is over."""
    path, partial = record_path(cell, workdir), workdir / "partial"
    path.unlink(missing_ok=True)
    job_file, errors = (partial / f"{cell.id}.{kind}" for kind in ("job.json", "stderr"))
    job = job | {"cell": cell._asdict(), "data_dir": cell.data_dir or job["data_dir"]}
    ended = launcher.run(cell, job)
    code = ended.code
    if code == CLOSED:
        raise BrokenPipeError
    if code == MISTAKEN:
        mistakes = partial / f"{cell.id}.mistakes"
        text = mistakes.read_text()
        for left in (job_file, mistakes):
            left.unlink(missing_ok=True)
        raise ConfigError(text)
    if not path.exists():
        if code is None and time.monotonic() >= launcher.deadline.end:
            return None
        record = new_record(job)
        if code in (None, -signal.SIGALRM):
            record |= {"status": "timed_out", "error": f"Stopped after {cell.timeout_s:g} s."}
        else:
            text = records.scrub(errors.read_text(errors="replace"))
            record |= {"status": "crashed", "error": f"Exit code {code}.\n{text}".strip()}
        curve = records.read_curve(partial / f"{cell.id}.jsonl")
        records.write(path, record | ({"curve": curve} if curve else {}))
    job_file.unlink(missing_ok=True)
    return ended

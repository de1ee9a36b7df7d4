"""Claims: which driver runs a cell, as files next to its drafts. Needs no Keras.

Drivers that share a work directory, on one machine or on several, run no cell twice.
"""

import contextlib
import fcntl
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

HEARTBEAT = 5.0  # seconds between two beats
STALE = 60.0  # seconds without a beat after which a driver counts as dead


class Claim:
    """A claim that this process has: its file, held open so that its inode is no other's."""

    def __init__(self, path: Path, handle: int) -> None:
        self.path, self._handle = path, handle

    def is_held(self) -> bool:
        """Whether no other driver has taken it over; if so, tells them that this one lives."""
        try:
            same = os.path.samestat(os.stat(self.path), os.fstat(self._handle))
        except OSError:
            return False
        if same:
            os.utime(self._handle)
        return same

    def release(self) -> None:
        """Gives the cell free."""
        with _locked(self.path.parent):
            if self.is_held():
                self.path.unlink()
        os.close(self._handle)


def claim(path: Path) -> Claim | None:
    """Returns the claim `path`, or None if a driver that lives has it; a dead one's is taken over.

    A driver is dead when its process is gone, where that can be seen (on Linux, from the same boot
    and the same process namespace), or after `STALE` seconds without a beat.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(path.parent):
        if _is_dead(path):
            path.unlink(missing_ok=True)
        try:
            handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o644)
        except FileExistsError:
            return None
        os.write(handle, json.dumps({"host": _host(), "process": _process(os.getpid())}).encode())
        return Claim(path, handle)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One process at a time looks at claims and changes them; the lock ends with the process."""
    with (folder / ".claims").open("w") as file:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _is_dead(path: Path) -> bool:
    try:
        owner = json.loads(path.read_text())
        if owner["host"] is not None and owner["host"] == _host():
            pid = owner["process"][0]
            if _process(pid) != owner["process"]:
                return True
    except FileNotFoundError:
        return False
    except (ValueError, TypeError, LookupError):  # cut: the driver died while it wrote it
        pass
    # By the clock of the file system, which another machine may share.
    with tempfile.NamedTemporaryFile(dir=path.parent) as now:
        return os.fstat(now.fileno()).st_mtime - path.stat().st_mtime > STALE


def _host() -> str | None:
    """This boot and process namespace, where process ids mean the same; None if unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None


def _process(pid: int) -> list | None:
    """A process id and when it started, so that no later one is taken for it; None if it ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else [pid, fields[19]]

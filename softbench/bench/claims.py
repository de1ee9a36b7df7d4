"""Claims: which driver runs a cell, as locked files next to its drafts. Needs no Keras.

Drivers that share a work directory, on one machine or on several, run no cell twice. The system
takes a lock from a process that ends, however it ends.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from softbench.commands import ConfigError


@contextlib.contextmanager
def claim(path: Path) -> Iterator[bool]:
    """Whether this process alone has the claim `path`, as it then does to the end of the block.

    Raises:
        ConfigError: on a file system without locks.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        except OSError as error:
            raise ConfigError(
                f"--workdir must be on a file system with locks. Received: {path.parent} "
                f"({error.strerror})"
            ) from None
        # Who had it before may have removed the file after it was opened here.
        is_ours = path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat())
        try:
            yield is_ours
        finally:
            if is_ours:
                path.unlink(missing_ok=True)

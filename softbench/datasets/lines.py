"""Lines of a text file, compressed or not, and errors that name file and line."""

import bz2
import gzip
import hashlib
import lzma
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

_OPENERS = {b"\x1f\x8b": gzip.open, b"\xfd7zXZ\x00": lzma.open, b"BZh": bz2.open}
_BROKEN = (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error, OSError)


class DataFileError(ValueError):
    """What is wrong in a data file; the message begins with `file:line:`."""


def fail(path: Path, line: int, rule: str, received: object) -> NoReturn:
    """Raises `DataFileError` for a line, counted from 1."""
    text = received if isinstance(received, str) else repr(received)
    raise DataFileError(f"{path}:{line}: {rule} Received: {text[:120]}")


def read_lines(path: Path) -> Iterator[bytes]:
    """Yields the lines of a file with their ends; gzip, xz and bzip2 are known by content.

    Raises:
        DataFileError: where compressed content is broken or ends too early.
    """
    with path.open("rb") as raw:
        start = raw.read(6)
    opener = next((o for magic, o in _OPENERS.items() if start.startswith(magic)), None)
    if opener is None:
        with path.open("rb") as file:
            yield from file
        return
    line = 0
    with opener(path, "rb") as file:
        while True:
            try:
                content = file.readline()
            except _BROKEN as error:
                fail(path, line + 1, "the compressed file must be whole.", str(error))
            if not content:
                return
            line += 1
            yield content


def decode(content: bytes, path: Path, line: int) -> str:
    """Returns a line as text.

    Raises:
        DataFileError: if it is not UTF-8.
    """
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        fail(path, line, "the text must be UTF-8.", f"byte {content[error.start : error.end]!r}")


def sha256(path: Path) -> str:
    """Returns the sha256 of a file, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

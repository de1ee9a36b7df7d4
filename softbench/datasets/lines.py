"""Lines of a text file, compressed or not, and errors that name file and line."""

import bz2
import gzip
import lzma
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, NoReturn

_OPENERS = {b"\x1f\x8b": gzip.open, b"\xfd7zXZ\x00": lzma.open, b"BZh": bz2.open}
BROKEN = (EOFError, lzma.LZMAError, zlib.error, OSError)


class DataFileError(ValueError):
    """What is wrong in a data file; the message begins with `file:line:`."""


def fail(path: Path, line: int, rule: str, received: object) -> NoReturn:
    """Raises `DataFileError` for a line, counted from 1."""
    text = received if isinstance(received, str) else repr(received)
    raise DataFileError(f"{path}:{line}: {rule} Received: {text[:120]}")


def open_bytes(path: Path) -> IO[bytes]:
    """Opens a file to read; gzip, xz and bzip2 are recognised by content."""
    with path.open("rb") as raw:
        start = raw.read(6)
    opener = next((o for magic, o in _OPENERS.items() if start.startswith(magic)), open)
    return opener(path, "rb")


def read_lines(path: Path) -> Iterator[bytes]:
    """Yields the lines of a file with their ends; see `open_bytes`.

    Raises:
        DataFileError: where compressed content is broken or ends too early.
    """
    line = 0
    with open_bytes(path) as file:
        try:
            for content in file:
                line += 1
                yield content
        except BROKEN as error:
            fail(path, line + 1, "the compressed file must be whole.", str(error))


def read_text(path: Path, repairs: Counter) -> Iterator[tuple[int, str]]:
    """Yields (number from 1, text with its end) of the lines; counts `crlf_lines` in `repairs`.

    A byte order mark is left out.

    Raises:
        DataFileError: if a line is not UTF-8, or as `read_lines`.
    """
    for line, content in enumerate(read_lines(path), 1):
        repairs["crlf_lines"] += content.endswith(b"\r\n")
        try:
            yield line, content.decode("utf-8" if line > 1 else "utf-8-sig")
        except UnicodeDecodeError as error:
            bad = content[error.start : error.end]
            fail(path, line, "the text must be UTF-8.", f"byte {bad!r}")


def filled_lines(path: Path, repairs: Counter, rule: str) -> Iterator[tuple[int, str]]:
    """The lines of `read_text` that are not blank, without their ends; counts `blank_lines`.

    Raises:
        DataFileError: as `read_text`; with the `rule`, if there is no such line.
    """
    has_text = False
    for line, text in read_text(path, repairs):
        if text.strip():
            has_text = True
            yield line, text.rstrip("\r\n")
        else:
            repairs["blank_lines"] += 1
    if not has_text:
        fail(path, 1, rule, "an empty file")


def by_frequency(counts: Mapping[str, int]) -> list[str]:
    """The names by decreasing count, ties alphabetically."""
    return sorted(counts, key=lambda name: (-counts[name], name))

"""Where a reader puts its arrays: in memory, or piece by piece into `.npy` files."""

from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.lib import format as npy


class MemoryStore:
    """Arrays in memory."""

    def __init__(self) -> None:
        self._chunks: dict[str, list[np.ndarray]] = {}
        self._strings: dict[str, list[str]] = {}

    def append(self, name: str, values: np.ndarray) -> None:
        """Adds rows to the array `name`; the first call, maybe with none, fixes its type."""
        self._chunks.setdefault(name, []).append(values)

    def write_strings(self, name: str, values: Iterable[str]) -> None:
        """Keeps a list of strings without line breaks."""
        self._strings[name] = list(values)

    def read(self, name: str) -> np.ndarray:
        """Returns the array `name`."""
        chunks = self._chunks[name]
        if len(chunks) > 1:
            self._chunks[name] = chunks = [np.concatenate(chunks)]
        return chunks[0]

    def read_strings(self, name: str) -> list[str]:
        """Returns the strings `name`."""
        return self._strings[name]


class FolderStore:
    """Arrays in `<name>.npy` and strings in `<name>.txt` of a folder; arrays are read as maps.

    Writing holds one piece at a time. `close()` writes the final shapes.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        self._open: dict[str, tuple[BinaryIO, dict]] = {}  # files being written, their headers

    def append(self, name: str, values: np.ndarray) -> None:
        """As `MemoryStore.append`."""
        values = np.ascontiguousarray(values)
        if name not in self._open:
            file = (self.folder / f"{name}.npy").open("wb")
            self._open[name] = file, npy.header_data_from_array_1_0(values[:0])
            self._write_header(name)
        file, header = self._open[name]
        rows, *trailing = header["shape"]
        added = npy.header_data_from_array_1_0(values)
        if added != {**header, "shape": (len(values), *trailing)}:
            raise ValueError(
                f"`values` of {name!r} must be {header['descr']} (rows, {trailing}). "
                f"Received: {values.dtype} {values.shape}"
            )
        # Not `tofile`: it bypasses the file's buffer.
        file.write(values.data)
        header["shape"] = (rows + len(values), *trailing)

    def _write_header(self, name: str) -> None:
        """Writes the `.npy` header; NumPy pads it so that the first dimension can grow."""
        file, header = self._open[name]
        file.seek(0)
        npy.write_array_header_1_0(file, header)

    def write_strings(self, name: str, values: Iterable[str]) -> None:
        """As `MemoryStore.write_strings`."""
        with (self.folder / f"{name}.txt").open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{value}\n" for value in values)

    def close(self) -> None:
        """Ends writing: every header says how many rows there are."""
        for name, (file, _) in self._open.items():
            self._write_header(name)
            file.close()
        self._open.clear()

    def read(self, name: str) -> np.ndarray:
        """Returns the array `name` as a read-only memory map."""
        return np.asarray(npy.open_memmap(self.folder / f"{name}.npy", mode="r"))

    def read_strings(self, name: str) -> list[str]:
        """As `MemoryStore.read_strings`."""
        with (self.folder / f"{name}.txt").open(encoding="utf-8", newline="\n") as file:
            return file.read().split("\n")[:-1]


class Splits:
    """Assigns rows to train, valid and test by a seeded hash of their number in the file.

    Row i goes by u = hash(seed, i) in [0, 1): to valid if u < `valid`, to test if u < `valid` +
    `test`, else to train. It depends on nothing else: not on the platform, the block size or the
    other rows. With `train`, rows of u >= `valid` + `test` + `train` go nowhere: index 3.

    With `size`, the number of all rows, the fractions are exact: the rows of the smallest u go to
    valid, those after them to test, at least one to each whose fraction is not 0.

    Raises:
        ValueError: unless the fractions are in [0, 1) and leave rows for training.
    """

    def __init__(
        self,
        seed: int,
        valid: float,
        test: float = 0.0,
        size: int | None = None,
        train: float | None = None,
    ) -> None:
        if not (0 <= valid < 1 and 0 <= test < 1 and valid + test < 1):
            raise ValueError(
                "`valid_fraction` and `test_fraction` must be in [0, 1) with a sum below 1. "
                f"Received: {valid}, {test}"
            )
        # 0.05 + 0.05 + 0.9 is 1, and 1 - 0.05 - 0.05 is a little less than 0.9.
        if train is not None and not (train > 0 and valid + test + train <= 1 + 1e-9):
            raise ValueError(
                "`train_fraction` must be more than 0, and at most what `valid_fraction` and "
                f"`test_fraction` leave. Received: {train} beside {valid}, {test}"
            )
        self.seed, self.valid, self.test, self.train = seed, valid, test, train
        self._exact = None if size is None else self._indices(size)

    @property
    def is_exact(self) -> bool:
        """Whether the fractions are exact."""
        return self._exact is not None

    def _indices(self, size: int) -> np.ndarray:
        """Index into `SPLITS` (size,) of every row, by exact fractions."""
        taken = [max(1, round(size * share)) if share else 0 for share in (self.valid, self.test)]
        if sum(taken) >= size:
            raise ValueError(
                f"the file must hold {sum(taken) + 1} rows or more, so that every split has one. "
                f"Received: {size}"
            )
        order = np.argsort(row_hash(np.arange(size), self.seed), kind="stable")
        indices = np.zeros(size, np.int8)
        indices[order[: taken[0]]] = 1
        indices[order[taken[0] : sum(taken)]] = 2
        if self.train is not None:
            indices[order[sum(taken) + max(1, round(size * self.train)) :]] = 3
        return indices

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Index into `SPLITS` of each row number (R,)."""
        if self._exact is not None:
            return self._exact[rows]
        u = row_hash(rows, self.seed) * 2.0**-64
        held_out = self.valid + self.test
        indices = np.where(u < self.valid, 1, np.where(u < held_out, 2, 0))
        if self.train is not None:
            indices[u >= held_out + self.train] = 3
        return indices


def row_hash(values: np.ndarray, seed: int) -> np.ndarray:
    """splitmix64 of each value, uint64 (R,), started at a mix of the seed."""

    def mix(z: np.ndarray) -> np.ndarray:
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))

    step = np.uint64(0x9E3779B97F4A7C15)
    with np.errstate(over="ignore"):
        start = mix(np.array([seed], np.int64).astype(np.uint64) + step)
        return mix(start + np.asarray(values).astype(np.uint64) * step)

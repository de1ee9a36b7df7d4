"""Rows in Parquet files, read a window at a time: shuffled, shared by hosts, resumable at a step.

Needs pyarrow, and no backend. Shape letters: B batch, L features of a row, R rows, n classes,
v features of the data.
"""

from collections.abc import Iterator, Sequence
from glob import glob
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from softbench.common import check_positive
from softbench.datasets.bags import padded_features
from softbench.datasets.base import Labelled
from softbench.datasets.draws import random_generator
from softbench.datasets.shuffled import EpochBatches

WINDOW = 2**20  # rows


class RowGroups(NamedTuple):
    """The row groups of some Parquet files, in the order of the names of the files.

    Attributes:
        files: `pyarrow.parquet.ParquetFile`s; only their footers are in memory.
        groups: int64 `(G, 3)`: the file of a group, its number there, its rows.
    """

    files: tuple[Any, ...]
    groups: np.ndarray

    @property
    def num_rows(self) -> int:
        return int(self.groups[:, 2].sum())

    def read(self, group: int, columns: Sequence[str]) -> Any:
        """Some columns of a row group, a `pyarrow.Table`."""
        file, index, _ = self.groups[group].tolist()
        return self.files[file].read_row_group(index, list(columns))


def row_groups(path: str | Path | Sequence[str | Path], columns: Sequence[str]) -> RowGroups:
    """Opens Parquet files.

    Args:
        path: a pattern such as "folder/*.parquet", a folder of `.parquet` files, or paths.
        columns: that every file must have.

    Raises:
        ImportError: without pyarrow.
        FileNotFoundError: if there is no such file.
        ValueError: naming the first file that is no Parquet or lacks a column, or if there are no
            rows.
    """
    try:
        import pyarrow.parquet as pq
    except ImportError:
        raise ImportError("Parquet needs pyarrow: pip install 'softbench[data]'") from None
    files, groups = [], []
    for name in _paths(path):
        try:
            file = pq.ParquetFile(name)
        except ValueError as error:
            raise ValueError(f"`path`: {name.name} must be Parquet. Received: {error}") from None
        if missing := sorted(set(columns) - set(file.schema_arrow.names)):
            raise ValueError(
                f"`path`: {name.name} must have the columns {', '.join(columns)}. "
                f"Received: no {', '.join(missing)}"
            )
        sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        groups += [(len(files), i, size) for i, size in enumerate(sizes) if size]
        files.append(file)
    if not groups:
        raise ValueError(f"`path` must hold rows. Received: none in {len(files)} files")
    return RowGroups(tuple(files), np.array(groups, np.int64))


def _paths(path: str | Path | Sequence[str | Path]) -> list[Path]:
    if isinstance(path, str | Path):
        pattern = Path(path) / "*.parquet" if Path(path).is_dir() else path
        path = sorted(glob(str(pattern)))
    if not path:
        raise FileNotFoundError("`path` must name Parquet files. Received: no such file")
    return [Path(name) for name in path]


class ShardBatches(EpochBatches):
    """Training batches of rows in Parquet files, of which a window at a time is in memory.

    In an epoch the row groups are in a random order, and the rows of each window of it again: rows
    are mixed with those of the groups in the same window, so small groups (some 2^16 rows) in
    large windows mix best. Host h of k takes the h-th of k equal chunks of that order. All hosts
    make the same number of batches; every row is in one batch of one host, and where they do not
    divide evenly the last batches are filled up from the start of the same order.

    Batch i of epoch e is a function of the files and `(seed, e, i)` alone: `set_epoch(e)` and
    `[i]` go on at that step, at the cost of one window. Wrap it in `Prefetched` to read ahead, or
    in `grain.MapDataset.source`, which reads whatever has a length and items.

    Args:
        rows: of `row_groups`.
        columns: to read.
        batch_size: B, of this host.
        seed: of the order; the same for all hosts.
        window: rows in memory at a time, besides a row group.
        host, num_hosts: h and k; on JAX `jax.process_index()` and `jax.process_count()`.
    """

    def __init__(
        self,
        rows: RowGroups,
        columns: Sequence[str],
        batch_size: int,
        *,
        seed: int = 0,
        window: int = WINDOW,
        host: int = 0,
        num_hosts: int = 1,
    ) -> None:
        check_positive(batch_size=batch_size, window=window, num_hosts=num_hosts)
        if not 0 <= host < num_hosts:
            raise ValueError(f"`host` must be in [0, {num_hosts}). Received: {host}")
        self.rows, self.columns, self.batch_size, self.seed = rows, columns, batch_size, seed
        self.host, self.num_rows = host, rows.num_rows
        self._batches = -(-window // batch_size)  # of a window
        self._length = -(-self.num_rows // (num_hosts * batch_size))
        self._group: tuple[int, Any] = (-1, None)  # the last one read: the next window begins in it
        self.set_epoch(0)

    def set_epoch(self, epoch: int) -> None:
        self.epoch, self._window = epoch, (-1, None)
        self._order = random_generator(self.seed, epoch).permutation(len(self.rows.groups))
        self._ends = np.cumsum(self.rows.groups[self._order, 2])

    def _batch(self, index: int) -> tuple:
        window, position = divmod(index, self._batches)
        if self._window[0] != window:
            self._window = -1, None  # so that no two are held
            self._window = window, self._arrays(self._shuffled(window))
        rows = slice(position * self.batch_size, (position + 1) * self.batch_size)
        return self._made(self._window[1], rows, index)

    def _arrays(self, table: Any) -> Any:
        """What `_made` needs of a `pyarrow.Table`, the rows of a window."""
        raise NotImplementedError

    def _made(self, arrays: Any, rows: slice, index: int) -> tuple:
        """Batch `index`, of some rows of a window."""
        raise NotImplementedError

    def _shuffled(self, window: int) -> Any:
        """The rows of a window in their order, a `pyarrow.Table`."""
        import pyarrow as pa

        first = self.host * self._length + window * self._batches
        last = min(first + self._batches, (self.host + 1) * self._length)
        table = pa.concat_tables(self._read(first * self.batch_size, last * self.batch_size))
        generator = random_generator(self.seed, self.epoch, 1 + self.host, window)
        return table.take(generator.permutation(len(table)))

    def _read(self, position: int, end: int) -> Iterator[Any]:
        """The rows from `position` to `end` of the epoch's order, which wraps around at its end."""
        while position < end:
            at = position % self.num_rows
            number = int(np.searchsorted(self._ends, at, side="right"))
            group = int(self._order[number])
            if self._group[0] != group:
                self._group = -1, None
                self._group = group, self.rows.read(group, self.columns)
            size = len(self._group[1])
            inside = at - (int(self._ends[number]) - size)
            taken = min(size - inside, end - position)
            yield self._group[1].slice(inside, taken)
            position += taken


class InteractionShards(ShardBatches):
    """Training batches of single interactions: item i is `(users, items)`, each int32 `(B,)`.

    Args:
        rows: with a column of the numbers of users and one of those of items, from 0 on.
        batch_size: B.
        columns: their names.
        **options: of `ShardBatches`.
    """

    def __init__(
        self,
        rows: RowGroups,
        batch_size: int = 1024,
        columns: Sequence[str] = ("user", "item"),
        **options: Any,
    ) -> None:
        super().__init__(rows, columns, batch_size, **options)

    def _arrays(self, table: Any) -> tuple[np.ndarray, ...]:
        return tuple(ids(table, column)[0] for column in self.columns)

    def _made(self, arrays: tuple[np.ndarray, ...], rows: slice, index: int) -> tuple:
        return tuple(array[rows] for array in arrays)


class BagShards(ShardBatches):
    """Training batches of sparse rows: item i is `((ids, weights), labels)`, as of `BagBatches`.

    ids int32 and weights float32 are `(B, L)`, labels int32 `(B,)`: one of the row's, drawn
    uniformly at each visit. Longer rows keep their largest weights.

    Args:
        rows: with lists of features' ids, of their values, and of labels.
        batch_size: B.
        max_features: L.
        columns: their names.
        **options: of `ShardBatches`.

    Raises:
        ValueError: when a batch has a row without a label: leave such rows out of the files.
    """

    def __init__(
        self,
        rows: RowGroups,
        batch_size: int = 256,
        max_features: int = 128,
        columns: Sequence[str] = ("features", "values", "labels"),
        **options: Any,
    ) -> None:
        check_positive(max_features=max_features)
        self.max_features = max_features
        super().__init__(rows, columns, batch_size, **options)

    def _arrays(self, table: Any) -> Labelled:
        return sparse_rows(table, self.columns)

    def _made(self, arrays: Labelled, rows: slice, index: int) -> tuple:
        features, labels = (matrix[rows] for matrix in arrays)
        sizes = np.diff(labels.indptr)
        generator = random_generator(self.seed, self.epoch, 1 + self.host, index, 1)
        chosen = labels.indptr[:-1] + (generator.random(len(sizes)) * sizes).astype(np.int64)
        return padded_features(features, self.max_features), labels.indices[chosen]


def ids(table: Any, column: str, dtype: type = np.int32) -> tuple[np.ndarray, np.ndarray]:
    """The values of a column, and int64 `(R + 1,)` where each row's end: of a list it has several.

    Raises:
        ValueError: for missing values, or ids that are no whole numbers in [0, 2^31).
    """
    array = table.column(column).combine_chunks()
    ends = np.arange(len(array) + 1)
    missing = array.null_count
    if hasattr(array, "flatten") and hasattr(array, "offsets"):
        ends = array.offsets.to_numpy().astype(np.int64)
        ends, array = ends - ends[0], array.flatten()
        missing += array.null_count
    if missing:
        raise ValueError(f"`path`: {column!r} must have all values. Received: {missing} missing")
    values = array.to_numpy(zero_copy_only=False)
    if dtype is np.int32 and len(values):
        low, high = values.min(), values.max()
        if values.dtype.kind not in "iu" or low < 0 or high >= 2**31:
            raise ValueError(
                f"`path`: {column!r} must hold whole numbers from 0 to 2^31 - 1. "
                f"Received: {values.dtype} from {low} to {high}"
            )
    return values.astype(dtype, copy=False), ends


def sparse_rows(table: Any, columns: Sequence[str]) -> Labelled:
    """Features csr float32 `(R, v)` and labels csr `(R, n)` of a `pyarrow.Table`.

    v and n are the largest ids plus 1. Lists are kept in their order.

    Raises:
        ValueError: for missing values, wrong ids, unequal lists, or a row without a label.
    """
    types = (np.int32, np.float32, np.int32)
    read = [ids(table, *pair) for pair in zip(columns, types, strict=True)]
    (features, ends), (weights, others), (labels, label_ends) = read
    if not np.array_equal(ends, others):
        raise ValueError(f"`path`: {columns[1]!r} must be as long as {columns[0]!r}")
    if not np.diff(label_ends).all():
        raise ValueError(f"`path`: every row must have one of {columns[2]!r}")
    shapes = [(len(table), 1 + int(ids.max(initial=0))) for ids in (features, labels)]
    ones = np.ones(len(labels), np.float32)
    return Labelled(
        sp.csr_matrix((weights, features, ends), shapes[0]),
        sp.csr_matrix((ones, labels, label_ends), shapes[1]),
    )

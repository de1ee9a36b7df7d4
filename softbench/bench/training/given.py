"""A user's arrays, or what yields batches, as the batches of training and evaluation.

Shape letters: N examples, n classes.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import keras
import numpy as np

from softbench.datasets.base import Batches
from softbench.datasets.shuffled import ShuffledBatches


class Given(NamedTuple):
    """Data as batches: training ones of a seed, validation ones (x, y, weight), and counts (n,)."""

    train: Callable[[int], Any]
    valid: Any
    counts: np.ndarray


class ArrayBatches(ShuffledBatches):
    """Batches (x, y), or (x, y, weight) in evaluation, of arrays of N rows."""

    def __init__(self, x: Any, y: np.ndarray, batch_size: int, seed: int, training: bool) -> None:
        self._x, self._y = keras.tree.map_structure(np.asarray, x), y
        split = "train" if training else "valid"
        super().__init__(np.arange(len(y)), split, batch_size, seed, training, "fill")

    def _batch(self, index: int) -> tuple:
        rows = self._order[self._span(index)]
        x = keras.tree.map_structure(lambda part: self._padded(part[rows]), self._x)
        item = x, self._padded(self._y[rows])
        return (*item, self._mask(len(rows))) if self.masked else item


class StreamBatches(Batches):
    """Batches (x, y) of what can be gone through again, in its order, those of one size."""

    def __init__(self, source: Iterable, size: int, length: int, weighted: bool) -> None:
        self._source, self._size, self._length, self._weighted = source, size, length, weighted
        self._iterator, self._next = iter(()), -1

    def _batch(self, index: int) -> tuple:
        if index != self._next:
            self._iterator, self._next = self._batches(), 0
        while self._next < index:
            next(self._iterator)
            self._next += 1
        self._next += 1
        return next(self._iterator)

    def _batches(self) -> Iterator[tuple]:
        for x, y in _numpy(self._source):
            if self._weighted:
                yield x, y, np.ones(len(y), np.float32)
            elif len(y) == self._size:
                yield x, y


def _numpy(source: Iterable) -> Iterator[tuple]:
    """Batches (x, y) as NumPy arrays."""
    for x, y in source:
        x = keras.tree.map_structure(np.asarray, x)
        yield x, np.asarray(y)


def read(data: tuple[Any, Any], batch_size: int, num_classes: int | None) -> Given:
    """Makes batches of what a user has given; see `softbench.compare`.

    Raises:
        ValueError: for data of no use.
    """
    if not isinstance(data, tuple) or len(data) != 2:
        raise ValueError(f"`data` must be (training, validation). Received: {type(data).__name__}")
    labels, sizes = [], []
    for part in data:
        is_array = isinstance(part, tuple)
        found = [np.asarray(part[1])] if is_array else [y for _, y in _numpy(part)]
        if not found or not sum(map(len, found)):
            raise ValueError("`data` must hold examples in both parts. Received: none")
        labels.append(np.concatenate(found))
        sizes.append([len(y) for y in found])
    for y in labels:
        if y.ndim != 1 or not np.issubdtype(y.dtype, np.integer) or y.min() < 0:
            raise ValueError(
                "`data`: labels must be integers (N,) from 0. "
                f"Received: shape={y.shape}, dtype={y.dtype}, from {y.min()}"
            )
    n = int(max(y.max() for y in labels)) + 1 if num_classes is None else num_classes
    if n <= max(y.max() for y in labels):
        raise ValueError(f"`num_classes` must be above every label. Received: {n}")
    train, valid = data
    if isinstance(train, tuple):
        x, y = train[0], labels[0]
        batches = lambda seed: ArrayBatches(x, y, batch_size, seed, True)  # noqa: E731
    else:
        size = sizes[0][0]
        batches = lambda seed: StreamBatches(train, size, sizes[0].count(size), False)  # noqa: E731
    if isinstance(valid, tuple):
        held_out = ArrayBatches(valid[0], labels[1], batch_size, 0, False)
    else:
        held_out = StreamBatches(valid, 0, len(sizes[1]), True)
    return Given(batches, held_out, np.bincount(labels[0], minlength=n))

"""A user's arrays, or what yields batches, as the batches of training and evaluation.

Shape letters: N examples, n classes.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import keras
import numpy as np

from softbench.bench.training import build
from softbench.datasets.base import Batches
from softbench.datasets.shuffled import ShuffledBatches


class Endless(build.Batches):
    """Batches for one `fit` that a callback ends: pass after pass, as `EpochBatches` go on."""

    def __len__(self) -> int:
        return 10**9


class Given(NamedTuple):
    """Data as batches: training ones of a seed, validation ones (x, y, weight), and counts (n,)."""

    train: Callable[[int], Any]
    valid: Any
    counts: np.ndarray


class ArrayBatches(ShuffledBatches):
    """Batches (x, y), or (x, y, weight) in evaluation, of arrays of N rows."""

    def __init__(self, x: Any, y: np.ndarray, split: str, batch_size: int, seed: int = 0) -> None:
        self._x, self._y = keras.tree.map_structure(np.asarray, x), y
        super().__init__(np.arange(len(y)), split, batch_size, seed)

    def _batch(self, index: int) -> tuple:
        rows = self._order[self._span(index)]
        x = keras.tree.map_structure(lambda array: self._padded(array[rows]), self._x)
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
    """Makes batches of a user's data; see `softbench.compare`.

    Raises:
        ValueError: for data of no use.
    """
    if not isinstance(data, tuple) or len(data) != 2:
        raise ValueError(f"`data` must be (training, validation). Received: {type(data).__name__}")
    (train, valid), (train_labels, valid_labels) = data, map(_labels, data)
    labels = np.concatenate(train_labels)
    largest = max(int(labels.max()), *(int(y.max()) for y in valid_labels))
    n = largest + 1 if num_classes is None else num_classes
    if n <= largest:
        raise ValueError(
            f"`num_classes` must be above every label, {largest} the largest. Received: {n}"
        )

    def batches(seed: int) -> Batches:
        if isinstance(train, tuple):
            return ArrayBatches(train[0], labels, "train", batch_size, seed)
        size = len(train_labels[0])
        return StreamBatches(train, size, sum(len(y) == size for y in train_labels), False)

    if isinstance(valid, tuple):
        held_out = ArrayBatches(valid[0], valid_labels[0], "valid", batch_size)
    else:
        held_out = StreamBatches(valid, 0, len(valid_labels), True)
    return Given(batches, held_out, np.bincount(labels, minlength=n))


def _labels(split: Any) -> list[np.ndarray]:
    """The labels of the arrays, or of each batch."""
    labels = [np.asarray(split[1])] if isinstance(split, tuple) else [y for _, y in _numpy(split)]
    if not sum(map(len, labels)):
        raise ValueError("`data` must hold examples in both parts. Received: none")
    for y in labels:
        if y.ndim != 1 or not np.issubdtype(y.dtype, np.integer) or y.min() < 0:
            raise ValueError(
                "`data`: labels must be integers (N,) from 0. "
                f"Received: shape={y.shape}, dtype={y.dtype}"
            )
    return labels

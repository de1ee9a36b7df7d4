"""Seeded orders of rows, an epoch at a time, and batches that a thread makes ahead of use.

Shape letters: B batch.
"""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from softbench.common import check_positive
from softbench.datasets.base import Batches
from softbench.datasets.draws import random_generator


class EpochBatches(Batches):
    """Batches that differ from epoch to epoch; iterating goes to the next epoch by itself."""

    epoch: int

    def set_epoch(self, epoch: int) -> None:
        """Goes to the start of an epoch."""
        raise NotImplementedError

    def on_epoch_end(self) -> None:
        """Goes to the next epoch (the name that `keras.utils.PyDataset` calls)."""
        self.set_epoch(self.epoch + 1)

    def __iter__(self) -> Iterator[tuple]:
        yield from super().__iter__()
        self.on_epoch_end()


class ShuffledBatches(EpochBatches):
    """Batches of rows of one fixed shape, shuffled in training, in order in evaluation.

    The order of an epoch, and what a subclass draws with `_new_epoch`, depend on `(seed, epoch)`
    only: `set_epoch(e)` continues a run at the start of epoch e. The last batch of a training
    epoch is filled up with rows from the start of the same epoch's order; that of an evaluation, or
    where batches are `masked`, with empty rows. Items of an evaluation have a mask float32 `(B,)`.

    Args:
        rows: numbers of the rows of the split that the batches hold.
        split: "train", or "valid" or "test" of an evaluation.
        batch_size: B.
        seed: of the order.
        masked: whether training has empty rows too.
    """

    def __init__(
        self, rows: np.ndarray, split: str, batch_size: int, seed: int, masked: bool = False
    ) -> None:
        check_positive(batch_size=batch_size)
        self.batch_size, self.seed = batch_size, seed
        self.training = split == "train"
        self.masked = masked or not self.training
        self._rows = rows
        self.num_rows, self.num_numbers = len(rows), int(rows.max(initial=-1)) + 1
        if self.num_rows == 0:
            raise ValueError(f"`data` must have usable rows in split {split!r}. Received: none")
        self._length = -(-self.num_rows // batch_size)
        self.set_epoch(0)

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        if not self.training:
            self._order = self._rows
            return
        generator = random_generator(self.seed, epoch)
        self._order = generator.permutation(self._rows)
        if not self.masked:
            self._order = np.resize(self._order, self._length * self.batch_size)
        self._new_epoch(generator)

    def _new_epoch(self, generator: np.random.Generator) -> None:
        """Draws what belongs to the positions of `_order`."""

    def _span(self, index: int) -> slice:
        """Places of batch `index` in the order; the last batch may have fewer than B."""
        return slice(index * self.batch_size, (index + 1) * self.batch_size)

    def numbers(self, index: int) -> np.ndarray:
        """The numbers int32 `(B,)` of the rows of batch `index` in the split."""
        return self._padded(self._order[self._span(index)].astype(np.int32))

    def _mask(self, size: int) -> np.ndarray:
        return (np.arange(self.batch_size) < size).astype(np.float32)

    def _padded(self, values: np.ndarray) -> np.ndarray:
        """`values` with zeros after them, B in all."""
        padded = np.zeros((self.batch_size, *values.shape[1:]), values.dtype)
        padded[: len(values)] = values
        return padded


class _Wrapped(EpochBatches):
    """Batches made of other batches, in the same epoch as they."""

    def __init__(self, batches: Any) -> None:
        self._batches = batches
        self._length = len(batches)

    @property
    def epoch(self) -> int:
        return self._batches.epoch

    def set_epoch(self, epoch: int) -> None:
        self._batches.set_epoch(epoch)


class Prefetched(_Wrapped):
    """The same batches, made ahead of use by one thread; `set_epoch` drops what it has made.

    Args:
        batches: what to read; only the thread calls it between two `set_epoch`.
        depth: batches made ahead.
    """

    def __init__(self, batches: Any, depth: int = 2) -> None:
        check_positive(depth=depth)
        super().__init__(batches)
        self._depth = depth
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="prefetch")
        self._ahead: deque[tuple[int, Future]] = deque()

    def _batch(self, index: int) -> tuple:
        if not self._ahead or self._ahead[0][0] != index:
            self._drop()
        start = self._ahead[-1][0] + 1 if self._ahead else index
        for later in range(start, min(index + self._depth + 1, self._length)):
            self._ahead.append((later, self._pool.submit(self._batches.__getitem__, later)))
        return self._ahead.popleft()[1].result()

    def set_epoch(self, epoch: int) -> None:
        self._drop()
        super().set_epoch(epoch)

    def _drop(self) -> None:
        """Forgets what was made ahead, and waits for the one that is being made."""
        for _, future in self._ahead:
            if not future.cancel():
                future.exception()
        self._ahead.clear()


class Numbered(_Wrapped):
    """The same batches with the numbers of their rows, int32 `(B,)`, as the last array of x.

    Numbers are those of the rows in the split; the empty rows of a masked batch have number 0.
    """

    def _batch(self, index: int) -> tuple:
        x, *others = self._batches[index]
        arrays = x if isinstance(x, tuple) else (x,)
        return ((*arrays, self._batches.numbers(index)), *others)

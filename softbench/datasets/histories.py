"""Batches of users' histories and interactions: for training, and to be answered with a ranking.

Shape letters: B batch, T length, S seen items, R labels of a user, E excluded items, n items.
"""

from collections.abc import Callable

import numpy as np

from softbench.common import check_positive
from softbench.datasets.base import Batches, InteractionData
from softbench.datasets.draws import random_generator
from softbench.datasets.shuffled import ShuffledBatches


def pack(sizes: np.ndarray, length: int) -> np.ndarray:
    """Packs sequences into rows of one length, the largest that fits first.

    Args:
        sizes: int `(U,)`, in [1, length].
        length: of a row.

    Returns:
        `(U,)`: where each sequence begins, row * length + column. No two overlap.
    """
    sizes = np.asarray(sizes)
    order = np.argsort(sizes, kind="stable")
    ends = np.searchsorted(sizes[order], np.arange(length + 1), side="right")
    left = np.diff(ends, prepend=0)  # how many of each size are not in a row yet
    starts = np.empty(len(sizes), np.int64)
    row = room = 0
    for _ in range(len(sizes)):
        fitting = np.flatnonzero(left[: room + 1])
        if not len(fitting):
            row, room = row + 1, length
            fitting = np.flatnonzero(left)
        size = fitting[-1]
        left[size] -= 1
        starts[order[ends[size] - 1 - left[size]]] = row * length - room
        room -= size
    return starts


class PackedHistories(ShuffledBatches):
    """Training batches of histories, several in one row, every position with a label.

    Item i is `((items, positions), labels, weights)`, all `(B, T)`: the item, its position in the
    history (T - 1 at the last one, one less before), the item that follows, and 1 where there is an
    item, else 0. Histories longer than T + 1 keep their last T + 1 items.
    Rows are shuffled every epoch, see `ShuffledBatches`; which histories share a row stays.

    Args:
        data: an `InteractionData` in the order of time.
        batch_size: B, rows.
        length: T.
        seed: of the order.

    Raises:
        ValueError: if no user has two items in training.
    """

    def __init__(
        self, data: InteractionData, batch_size: int = 32, length: int = 50, *, seed: int = 0
    ) -> None:
        check_positive(length=length)
        ends, sizes = data.train.ends[1:], np.minimum(data.train.sizes() - 1, length)
        ends, sizes = ends[sizes > 0], sizes[sizes > 0]
        if not len(sizes):
            raise ValueError(
                "`data` must have a user with two items or more in training, four with those that "
                "are held out. Received: none"
            )
        starts = pack(sizes, length)
        rows = np.arange(int(starts.max()) // length + 1)
        first = np.cumsum(sizes) - sizes
        column = np.arange(sizes.sum()) - np.repeat(first, sizes)
        cells = np.repeat(starts, sizes) + column
        source = np.repeat(ends - 1 - sizes, sizes) + column
        self.num_positions = len(cells)
        items = np.asarray(data.train.items)

        def grid(values: np.ndarray | float, dtype: type, missing: int = 0) -> np.ndarray:
            flat = np.full(len(rows) * length, missing, dtype)
            flat[cells] = values
            return flat.reshape(len(rows), length)

        from_end = column + length - np.repeat(sizes, sizes)
        inputs = grid(items[source], np.int32), grid(from_end, np.int32, length - 1)
        self._grids = (*inputs, grid(items[source + 1], np.int32), grid(1.0, np.float32))
        super().__init__(rows, "train", batch_size, seed, masked=True)

    def _batch(self, index: int) -> tuple:
        rows = self._order[self._span(index)]
        items, positions, labels, weights = (self._padded(grid[rows]) for grid in self._grids)
        return (items, positions), labels, weights


class InteractionBatches(ShuffledBatches):
    """Training batches of single interactions: item i is `(users, items)`, each int32 `(B,)`.

    With `excluded` E it is `({"users", "excluded"}, items)`: int32 `(B, E)` of what the user has
    had, padded with -1, of a user with more than E some that differ from batch to batch. The item
    itself may be among it.

    Args:
        data: an `InteractionData`.
        excluded: E, or 0.
        batch_size, seed: of `ShuffledBatches`.
    """

    def __init__(
        self, data: InteractionData, batch_size: int = 1024, excluded: int = 0, *, seed: int = 0
    ) -> None:
        if excluded:
            check_positive(excluded=excluded)
        self._lists, self._excluded = data.train, excluded
        sizes = data.train.sizes()
        self._users = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
        self._items = data.train.items
        super().__init__(np.arange(len(self._users)), "train", batch_size, seed)

    def _batch(self, index: int) -> tuple:
        rows = self._order[self._span(index)]
        users, items = self._users[rows], self._items[rows]
        if not self._excluded:
            return users, items
        return {"users": users, "excluded": self._had(users, index)}, items

    def _had(self, users: np.ndarray, index: int) -> np.ndarray:
        """Items of each user, int32 `(B, E)`, from one on that is drawn for the batch."""
        lists, width = self._lists, np.arange(self._excluded)
        sizes = lists.sizes()[users][:, None]
        generator = random_generator(self.seed, self.epoch, index)
        first = generator.integers(np.where(sizes > self._excluded, sizes, 1))
        places = lists.ends[users][:, None] + (first + width) % sizes
        return np.where(width < sizes, lists.items[places], -1).astype(np.int32)


class Queries(Batches):
    """Users to be answered with a ranking of the items that they have not seen.

    Item i is `(x, seen, labels, mask)`: seen int32 `(B, S)`, what they have had before, and labels
    int32 `(B, R)`, what they take in the split, both padded with -1; mask float32 `(B,)`. A label
    that is among the seen items is taken off these. The users are those who have had an item and
    have a label. S and R are the same for all batches.

    Args:
        data: an `InteractionData`.
        split: "valid" or "test".
        batch_size: B.
        inputs: numbers of users (B,) -> x.
        limit: None, or the number of users, the same in every run.
    """

    def __init__(
        self,
        data: InteractionData,
        split: str,
        batch_size: int,
        inputs: Callable[[np.ndarray], object],
        limit: int | None = None,
    ) -> None:
        check_positive(batch_size=batch_size)
        self.batch_size, self._inputs, self._n = batch_size, inputs, data.num_classes
        self._labels, self._before = data.split(split), data.before(split)
        sizes, seen = self._labels.sizes(), self._before.sizes()
        users = np.flatnonzero((sizes > 0) & (seen > 0))
        if not len(users):
            raise ValueError(f"`data` must have users to test in {split!r}. Received: none")
        if limit is not None and limit < len(users):
            users = np.sort(np.random.default_rng(0).choice(users, limit, replace=False))
        self.users = users
        self._widths = int(seen[users].max()), int(sizes[users].max())
        self._length = -(-len(users) // batch_size)

    def _batch(self, index: int) -> tuple:
        queried = self.users[index * self.batch_size : (index + 1) * self.batch_size]
        users = np.append(queried, np.repeat(queried[-1:], self.batch_size - len(queried)))
        width, most = self._widths
        seen, labels = self._before.last(users, width), self._labels.last(users, most)
        first = np.arange(len(users))[:, None] * self._n
        repeated = np.isin(first + seen, (first + labels)[labels >= 0])
        mask = (np.arange(self.batch_size) < len(queried)).astype(np.float32)
        return self._inputs(users), np.where(repeated, -1, seen), labels, mask


def history_inputs(data: InteractionData, split: str, length: int) -> Callable:
    """Users (B,) -> their last items before the split and the positions of these, int32 `(B, T)`.

    A history ends at the last column; before it comes item 0 at position T - 1, a separate history:
    the inputs of `PackedHistories`.
    """
    before = data.before(split)

    def inputs(users: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        items = before.last(users, length, right=True)
        positions = np.where(items < 0, length - 1, np.arange(length)).astype(np.int32)
        return np.maximum(items, 0), positions

    return inputs

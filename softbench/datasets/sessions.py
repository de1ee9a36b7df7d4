"""Batches of what users had to do with before, and the item that came next.

Shape letters: B batch, T items before, E interactions.
"""

import numpy as np

from softbench.common import check_positive
from softbench.datasets.base import check_split
from softbench.datasets.interaction_files import SessionData
from softbench.datasets.shuffled import ShuffledBatches


class SessionBatches(ShuffledBatches):
    """Item i is `(items, labels)`: int32 `(B, T)`, padded with -1, and int32 `(B,)`, the next item.

    In training every item but the first of each user is a label, the two that are held out aside.
    Evaluation: `(items, labels, mask)`, one row a user, see `ShuffledBatches`.

    Args:
        data: a `SessionData`.
        length: T; of longer histories the last T items count.
        limit: None, or how many held-out users there are at most, the same in every run.
        split, batch_size, seed, training, partial: of `ShuffledBatches`.
    """

    def __init__(
        self,
        data: SessionData,
        split: str = "train",
        batch_size: int = 256,
        *,
        length: int = 50,
        seed: int = 0,
        training: bool | None = None,
        partial: str = "fill",
        limit: int | None = None,
    ) -> None:
        check_positive(length=length)
        self._items, self._ends, self.length = data.items, np.asarray(data.ends), length
        if check_split(split) == "train":
            is_label = np.ones(len(self._items), bool)
            is_label[self._ends[:-1]] = False
            is_label[self._ends[1:] - 1] = is_label[self._ends[1:] - 2] = False
            labels = np.flatnonzero(is_label)
        else:
            labels = self._ends[1:] - (2 if split == "valid" else 1)
            if limit is not None and limit < len(labels):
                labels = np.sort(np.random.default_rng(0).choice(labels, limit, replace=False))
        self._labels = labels
        rows = np.arange(len(labels))
        super().__init__(rows, split, batch_size, seed, training, partial)

    def _batch(self, index: int) -> tuple:
        places = self._labels[self._order[self._span(index)]]
        starts = self._ends[np.searchsorted(self._ends, places, side="right") - 1]
        sizes = np.minimum(places - starts, self.length)
        filled = np.arange(self.length) < sizes[:, None]
        before = (places - sizes)[:, None] + np.arange(self.length)
        items = np.full((self.batch_size, self.length), -1, np.int32)
        items[: len(places)][filled] = self._items[before[filled]]
        item = items, self._padded(self._items[places])
        return (*item, self._mask(len(places))) if self.masked else item

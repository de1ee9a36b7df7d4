"""Batches of knowledge-graph triples.

Shape letters: B batch.
"""

import numpy as np

from softbench.datasets.base import TripleData
from softbench.datasets.shuffled import SPLITS, ShuffledBatches


class TripleBatches(ShuffledBatches):
    """Item i is `((heads, relations), tails)`, each int32 `(B,)`; see `ShuffledBatches`.

    Evaluation: `((heads, relations), tails, mask)`, all triples in order.

    Args:
        data: a `TripleData`.
        split: "train", "valid" or "test".
        batch_size: B.
        seed: of the order.
        training: None means `split == "train"`.
        partial: "fill" or "mask", how the last training batch is filled up.
    """

    def __init__(
        self,
        data: TripleData,
        split: str = "train",
        batch_size: int = 256,
        *,
        seed: int = 0,
        training: bool | None = None,
        partial: str = "fill",
    ) -> None:
        if split not in SPLITS:
            raise ValueError(f"`split` must be train, valid or test. Received: {split!r}")
        self._triples = getattr(data, split)
        rows = np.arange(len(self._triples))
        self._start(rows, split, batch_size, seed, training, partial)

    def _batch(self, index: int) -> tuple:
        triples = self._triples[self._order[self._span(index)]]
        heads, relations, tails = (self._padded(triples[:, i]) for i in range(3))
        item = ((heads, relations), tails)
        return (*item, self._mask(len(triples))) if self.masked else item

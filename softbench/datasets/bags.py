"""Batches of sparse multi-label examples, padded to one shape.

Shape letters: B batch, L features of a row, N examples, n classes.
"""

from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp

from softbench.checks import check_positive
from softbench.datasets.base import Batches, MultiLabelData
from softbench.datasets.draws import random_generator


def padded_labels(labels: sp.csr_matrix, width: int | None = None) -> np.ndarray:
    """Label ids of each row as int32 `(N, width)`, padded with -1 (None: the longest row)."""
    sizes = np.diff(labels.indptr)
    longest = int(sizes.max(initial=1))
    width = longest if width is None else width
    if width < longest:
        raise ValueError(f"`width` must be >= {longest}, the longest row. Received: {width}")
    padded = np.full((labels.shape[0], width), -1, np.int32)
    padded[np.arange(width) < sizes[:, None]] = labels.indices
    return padded


def _largest(features: sp.csr_matrix, limit: int) -> sp.csr_matrix:
    """Keeps the `limit` largest |weight| of each row (ties: the lower id), in order of id."""
    rows = np.repeat(np.arange(features.shape[0]), np.diff(features.indptr))
    order = np.lexsort((features.indices, -np.abs(features.data), rows))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order)) - features.indptr[rows[order]]
    keep = rank < limit
    kept = (features.data[keep], (rows[keep], features.indices[keep]))
    return sp.csr_matrix(kept, shape=features.shape)


class BagBatches(Batches):
    """Batches of sparse rows as padded (ids, weights) of one fixed shape.

    Training (`split="train"` unless `training=False`): item i is `((ids, weights), labels)`, ids
    int32 `(B, L)`, weights float32 `(B, L)`, labels int32 `(B,)`. One target per visit is drawn
    uniformly from the labels of the row. Rows are shuffled and targets redrawn every epoch from
    `(seed, epoch)`; `on_epoch_end()` goes to the next epoch, iterating does it by itself. The
    last batch is filled up with rows from the start of the same epoch's order. Rows with no
    label or no feature are left out (`num_without_label`, `num_without_feature`).

    Evaluation: item i is `((ids, weights), labels, mask)`: all rows in order, labels a csr
    `(B, n)`, mask float32 `(B,)`; the last batch is filled up with empty rows of mask 0. Rows
    with no label stay in (the Extreme Classification convention counts them as missed).

    Args:
        data: a `MultiLabelData`.
        split: "train", "valid" or "test".
        batch_size: B.
        max_features: L; None takes the longest row of all three splits, so that they share one
            shape. Longer rows keep their largest weights; `num_dropped_features` counts the rest.
        seed: of the order and of the targets.
        training: None means `split == "train"`.
    """

    def __init__(
        self,
        data: MultiLabelData,
        split: str = "train",
        batch_size: int = 256,
        *,
        max_features: int | None = None,
        seed: int = 0,
        training: bool | None = None,
    ) -> None:
        if split not in ("train", "valid", "test"):
            raise ValueError(f"`split` must be train, valid or test. Received: {split!r}")
        if max_features is None:
            parts = (data.train_features, data.valid_features, data.test_features)
            max_features = max(int(np.diff(part.indptr).max(initial=1)) for part in parts)
        check_positive(batch_size=batch_size, max_features=max_features)
        features, labels = (getattr(data, f"{split}_{part}") for part in ("features", "labels"))
        self.batch_size, self.max_features, self.seed = batch_size, max_features, seed
        self.training = split == "train" if training is None else training
        self._features = _largest(features, max_features)
        self._labels = labels
        self.num_dropped_features = features.nnz - self._features.nnz
        no_label, no_feature = np.diff(labels.indptr) == 0, np.diff(features.indptr) == 0
        self.num_without_label = int(no_label.sum())
        self.num_without_feature = int(no_feature.sum())
        left_out = (no_label | no_feature) & self.training
        self._rows = np.flatnonzero(~left_out)
        self.num_rows = len(self._rows)
        if self.num_rows == 0:
            raise ValueError(f"`data` must have usable rows in split {split!r}. Received: none")
        self._length = -(-self.num_rows // batch_size)
        self.set_epoch(0)

    def set_epoch(self, epoch: int) -> None:
        """Goes to an epoch: its order of rows and its targets depend on `(seed, epoch)` only."""
        self.epoch = epoch
        if not self.training:
            return
        generator = random_generator(self.seed, epoch)
        self._order = np.resize(generator.permutation(self._rows), self._length * self.batch_size)
        starts = self._labels.indptr[self._order]
        sizes = self._labels.indptr[self._order + 1] - starts
        chosen = starts + (generator.random(len(sizes)) * sizes).astype(np.int64)
        self._targets = self._labels.indices[chosen].astype(np.int32)

    def on_epoch_end(self) -> None:
        """Goes to the next epoch (the name that `keras.utils.PyDataset` calls)."""
        self.set_epoch(self.epoch + 1)

    def __iter__(self) -> Iterator[tuple]:
        yield from super().__iter__()
        self.on_epoch_end()

    def _bags(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        part = self._features[rows]
        filled = np.arange(self.max_features) < np.diff(part.indptr)[:, None]
        ids = np.zeros((self.batch_size, self.max_features), np.int32)
        weights = np.zeros((self.batch_size, self.max_features), np.float32)
        ids[: len(rows)][filled] = part.indices
        weights[: len(rows)][filled] = part.data
        return ids, weights

    def _batch(self, index: int) -> tuple:
        span = slice(index * self.batch_size, (index + 1) * self.batch_size)
        if self.training:
            return self._bags(self._order[span]), self._targets[span]
        rows = self._rows[span]
        labels = self._labels[rows]
        labels.resize(self.batch_size, labels.shape[1])
        mask = (np.arange(self.batch_size) < len(rows)).astype(np.float32)
        return self._bags(rows), labels, mask

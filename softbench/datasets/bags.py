"""Batches of sparse multi-label examples, padded to one shape.

Shape letters: B batch, L features of a row, N examples, n classes, v features of the data.
"""

import numpy as np
import scipy.sparse as sp

from softbench.common import check_positive
from softbench.datasets.base import SPLITS, MultiLabelData
from softbench.datasets.draws import random_generator
from softbench.datasets.shuffled import ShuffledBatches


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


def _sizes(features: sp.csr_matrix | np.ndarray) -> np.ndarray:
    """Features `(N,)` of each row."""
    if isinstance(features, np.ndarray):
        return np.full(len(features), features.shape[1])
    return np.diff(features.indptr)


def _largest(rows: sp.csr_matrix, limit: int) -> sp.csr_matrix:
    """Keeps the `limit` largest |value| of each row (ties: the lower id), in their order."""
    sizes = np.diff(rows.indptr)
    if sizes.max(initial=0) <= limit:
        return rows
    owners = np.repeat(np.arange(len(sizes)), sizes)
    order = np.lexsort((rows.indices, -np.abs(rows.data), owners))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order)) - rows.indptr[owners]
    kept, ends = rank < limit, np.append(0, np.cumsum(np.minimum(sizes, limit)))
    return sp.csr_matrix((rows.data[kept], rows.indices[kept], ends), rows.shape)


def padded_features(features: sp.csr_matrix, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Ids int32 and weights float32 `(N, width)` of rows, the largest of longer ones."""
    features = _largest(features, width)
    filled = np.arange(width) < np.diff(features.indptr)[:, None]
    ids, weights = np.zeros(filled.shape, np.int32), np.zeros(filled.shape, np.float32)
    ids[filled], weights[filled] = features.indices, features.data
    return ids, weights


class BagBatches(ShuffledBatches):
    """Batches of sparse rows as padded (ids, weights) of one fixed shape.

    Training (`split="train"`): item i is `((ids, weights), labels)`, ids
    int32 `(B, L)`, weights float32 `(B, L)`, labels int32 `(B,)`. One target per visit is drawn
    uniformly from the labels of the row. With `max_labels` R, labels are int32 `(B, R)` padded with
    -1 (fewer columns where no row has R): all of a row, or R of them drawn uniformly at each visit.
    Rows are shuffled and targets redrawn every epoch, see `ShuffledBatches`. Rows with no label or
    no feature are left out.

    Evaluation: item i is `((ids, weights), labels, mask)`: all rows in order, labels a csr
    `(B, n)`, mask float32 `(B,)`; the last batch is filled up with empty rows of mask 0. Rows
    with no label stay in (the Extreme Classification convention counts them as missed).

    Nothing of the size of the data is made but the order of the rows: the matrices may be
    memory maps.

    Args:
        data: a `MultiLabelData`; features that are an array are passed through.
        max_features: L; None takes the longest row of all three splits, so that they share one
            shape. Longer rows keep their largest weights.
        seed: of the order and of the targets.
        dense: x is a float32 array `(B, v)` instead of `(ids, weights)`.
        max_labels: R, or None for one target per visit.
        split, batch_size: of `ShuffledBatches`.
    """

    def __init__(
        self,
        data: MultiLabelData,
        split: str = "train",
        batch_size: int = 256,
        *,
        max_features: int | None = None,
        seed: int = 0,
        dense: bool = False,
        max_labels: int | None = None,
    ) -> None:
        self._features, self._labels = data.split(split)
        if max_features is None:
            features = [data.split(name).features for name in SPLITS]
            max_features = max(int(_sizes(matrix).max(initial=1)) for matrix in features)
        check_positive(max_features=max_features)
        self.max_features, self.dense = max_features, dense
        if isinstance(self._features, np.ndarray) and not dense:
            raise ValueError("`dense` must be True for features that are an array. Received: False")
        if max_labels is not None:
            check_positive(max_labels=max_labels)
            max_labels = min(max_labels, int(np.diff(self._labels.indptr).max(initial=1)))
        self.max_labels = max_labels
        lacks = (np.diff(self._labels.indptr) == 0) | (_sizes(self._features) == 0)
        rows = np.flatnonzero(~lacks | (split != "train"))
        super().__init__(rows, split, batch_size, seed)

    def _new_epoch(self, generator: np.random.Generator) -> None:
        if self.max_labels is not None:
            self._label_seed = int(generator.integers(2**31))
            return
        starts = self._labels.indptr[self._order]
        sizes = self._labels.indptr[self._order + 1] - starts
        chosen = starts + (generator.random(len(sizes)) * sizes).astype(np.int64)
        self._targets = self._labels.indices[chosen].astype(np.int32)

    def _inputs(self, rows: np.ndarray) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        features = self._features[rows]
        if isinstance(features, np.ndarray):
            return self._padded(features)
        if self.dense:
            return self._padded(features.toarray())
        ids, weights = padded_features(features, self.max_features)
        return self._padded(ids), self._padded(weights)

    def _label_sets(self, rows: np.ndarray, index: int) -> np.ndarray:
        """Labels int32 `(B, R)` of the rows of batch `index`, padded with -1."""
        labels = self._labels[rows]
        labels.data = random_generator(self._label_seed, index).random(labels.nnz)
        return padded_labels(_largest(labels, self.max_labels), self.max_labels)

    def _batch(self, index: int) -> tuple:
        rows = self._order[self._span(index)]
        inputs = self._inputs(rows)
        if self.training:
            several = self.max_labels is not None
            targets = self._label_sets(rows, index) if several else self._targets[self._span(index)]
            return inputs, targets
        labels = self._labels[rows]
        labels.resize(self.batch_size, labels.shape[1])
        return inputs, labels, self._mask(len(rows))

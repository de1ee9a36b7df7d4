"""Containers and batch iterators shared by all data sets (NumPy and SciPy only).

Shape letters: B batch, T steps, L features of a row, N examples, n classes, v features.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp


class LanguageData(NamedTuple):
    """Three token streams over one vocabulary.

    Attributes:
        name: registry name.
        train: int32 stream of token ids.
        valid: int32 stream of token ids.
        test: int32 stream of token ids.
        num_classes: n, the size of the vocabulary.
        vocabulary: the n words, or None where the tokens are only ids.
        counts: int64 `(n,)`, occurrences in `train`.
    """

    name: str
    train: np.ndarray
    valid: np.ndarray
    test: np.ndarray
    num_classes: int
    vocabulary: list[str] | None
    counts: np.ndarray


class MultiLabelData(NamedTuple):
    """Sparse examples with a set of labels each.

    Attributes:
        name: registry name.
        train_features: csr float32 `(N, v)`.
        train_labels: csr binary `(N, n)`.
        valid_features: csr float32, rows held out from the training set by the seed.
        valid_labels: csr binary.
        test_features: csr float32.
        test_labels: csr binary.
        num_features: v.
        num_classes: n.
        counts: int64 `(n,)`, occurrences of each label in `train_labels`.
    """

    name: str
    train_features: sp.csr_matrix
    train_labels: sp.csr_matrix
    valid_features: sp.csr_matrix
    valid_labels: sp.csr_matrix
    test_features: sp.csr_matrix
    test_labels: sp.csr_matrix
    num_features: int
    num_classes: int
    counts: np.ndarray


def check_positive(**sizes: int) -> None:
    """Raises ValueError unless every named size is an integer of at least 1."""
    for name, value in sizes.items():
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
            raise ValueError(f"`{name}` must be an integer >= 1. Received: {name}={value!r}")


def random_generator(*seed: int) -> np.random.Generator:
    """PCG64 generator of a tuple of seeds, the same on every platform."""
    return np.random.Generator(np.random.PCG64(seed))


def unigram_perplexity(counts: np.ndarray, tokens: np.ndarray) -> float:
    """Perplexity of `tokens` under the unigram model with add-one smoothing.

    `exp(-mean log((counts[y] + 1) / (sum(counts) + n)))`: what a model scores that knows only
    the class frequencies.

    Args:
        counts: `(n,)` occurrences of each class in the training stream.
        tokens: `(N,)` ids to score.
    """
    log_prob = np.log(counts + 1.0) - np.log(counts.sum() + float(len(counts)))
    return float(np.exp(-log_prob[np.asarray(tokens)].mean()))


def _stream(tokens: np.ndarray) -> np.ndarray:
    tokens = np.asarray(tokens)
    if tokens.ndim != 1 or not np.issubdtype(tokens.dtype, np.integer):
        raise ValueError(
            "`tokens` must be a one-dimensional array of integers. "
            f"Received: shape={tokens.shape}, dtype={tokens.dtype}"
        )
    return tokens.astype(np.int32, copy=False)


class Batches:
    """A finite sequence of batches: subclasses set `_length` and define `_batch(index)`."""

    _length: int

    def _batch(self, index: int) -> tuple:
        raise NotImplementedError

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> tuple:
        if not 0 <= index < self._length:
            raise IndexError(f"`index` must be in [0, {self._length}). Received: {index}")
        return self._batch(index)

    def __iter__(self) -> Iterator[tuple]:
        return (self._batch(i) for i in range(self._length))


class CarriedBatches(Batches):
    """Batches of a token stream whose rows continue from one batch to the next.

    As Zaremba et al. (2014): the stream is cut into `batch_size` contiguous rows of
    `len(tokens) // batch_size` tokens, and batch i holds columns `[i T, (i + 1) T)` of them, so a
    model that carries its state sees each row as one long text. There are
    `(len(tokens) // batch_size - 1) // num_steps` batches; what does not fill one is dropped
    (`num_dropped` predicted tokens; see `evaluation_batches`, which drops none).

    Args:
        tokens: `(N,)` integer stream.
        batch_size: B, number of rows.
        num_steps: T, tokens of a row in one batch.

    Item i is `(x, y)`, both int32 `(B, T)`, `y` being `x` shifted by one.

    Raises:
        ValueError: if the stream is too short for one batch.
    """

    def __init__(self, tokens: np.ndarray, batch_size: int, num_steps: int) -> None:
        check_positive(batch_size=batch_size, num_steps=num_steps)
        tokens = _stream(tokens)
        row = len(tokens) // batch_size
        self.batch_size, self.num_steps = batch_size, num_steps
        self._length = (row - 1) // num_steps
        if self._length < 1:
            raise ValueError(
                "`tokens` must hold at least batch_size * (num_steps + 1) = "
                f"{batch_size * (num_steps + 1)} tokens. Received: {len(tokens)} tokens"
            )
        self.num_dropped = len(tokens) - 1 - self._length * batch_size * num_steps
        self._rows = tokens[: row * batch_size].reshape(batch_size, row)

    def _batch(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        start, stop = index * self.num_steps, (index + 1) * self.num_steps
        return self._rows[:, start:stop], self._rows[:, start + 1 : stop + 1]


class EvaluationBatches(Batches):
    """Batches that cover every predicted token of a stream exactly once.

    The `len(tokens) - 1` predictions are cut into B contiguous rows of `ceil` equal length, and
    these into batches of T columns; places beyond the end have id 0 and weight 0. A row starts
    without the text before it, so `batch_size=1` is the evaluation with full context.

    Item i is `(x, y, weight)`: int32, int32 and float32, each `(B, T)`. Weights add up to
    `num_predicted = len(tokens) - 1`.
    """

    def __init__(self, tokens: np.ndarray, batch_size: int, num_steps: int) -> None:
        check_positive(batch_size=batch_size, num_steps=num_steps)
        tokens = _stream(tokens)
        self.num_predicted = len(tokens) - 1
        if self.num_predicted < 1:
            raise ValueError(f"`tokens` must hold at least 2 tokens. Received: {len(tokens)}")
        row = -(-self.num_predicted // batch_size)
        self._length = -(-row // num_steps)
        self.batch_size, self.num_steps = batch_size, num_steps

        def rows(values: np.ndarray) -> np.ndarray:
            flat = np.zeros(batch_size * row, values.dtype)
            flat[: self.num_predicted] = values
            width = self._length * num_steps - row
            return np.pad(flat.reshape(batch_size, row), ((0, 0), (0, width)))

        weight = np.ones(self.num_predicted, np.float32)
        self._arrays = (rows(tokens[:-1]), rows(tokens[1:]), rows(weight))

    def _batch(self, index: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        columns = slice(index * self.num_steps, (index + 1) * self.num_steps)
        return tuple(array[:, columns] for array in self._arrays)


def evaluation_batches(tokens: np.ndarray, batch_size: int, num_steps: int) -> EvaluationBatches:
    """Returns the `EvaluationBatches` of a stream: every predicted token once, masked padding."""
    return EvaluationBatches(tokens, batch_size, num_steps)


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

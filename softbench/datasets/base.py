"""What data sets give: containers, and sequences of batches (NumPy and SciPy only).

Shape letters: N examples, n classes, v features.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

SPLITS = ("train", "valid", "test")


def check_split(name: str) -> str:
    """Returns `name`, or raises ValueError unless it is one of `SPLITS`."""
    if name not in SPLITS:
        raise ValueError(f"`split` must be train, valid or test. Received: {name!r}")
    return name


class LanguageData(NamedTuple):
    """Three token streams over one vocabulary.

    Attributes:
        name: registry name.
        train, valid, test: int32 streams of token ids.
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

    def split(self, name: str) -> np.ndarray:
        """The stream `(N,)` of "train", "valid" or "test"."""
        return getattr(self, check_split(name))


class Labelled(NamedTuple):
    """Rows of a split: features csr float32 `(N, v)` and labels csr binary `(N, n)`."""

    features: sp.csr_matrix
    labels: sp.csr_matrix


class MultiLabelData(NamedTuple):
    """Sparse examples with a set of labels each.

    Attributes:
        name: registry name.
        train_features: csr float32 `(N, v)`.
        train_labels: csr binary `(N, n)`.
        valid_features, valid_labels: of rows held out from the training set by the seed.
        test_features, test_labels: of the test set.
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

    def split(self, name: str) -> Labelled:
        """The rows of "train", "valid" or "test"."""
        return Labelled(*(getattr(self, f"{check_split(name)}_{f}") for f in Labelled._fields))


class TripleData(NamedTuple):
    """Triples (head, relation, tail) of a knowledge graph, the tail to be predicted.

    Attributes:
        name: registry name.
        train, valid, test: int32 `(N, 3)` ids of head, relation and tail.
        num_classes: n, the number of entities.
        num_relations: number of relations.
        entities, relations: their names.
        counts: int64 `(n,)`, occurrences of each entity as a tail in `train`.
    """

    name: str
    train: np.ndarray
    valid: np.ndarray
    test: np.ndarray
    num_classes: int
    num_relations: int
    entities: list[str]
    relations: list[str]
    counts: np.ndarray

    def split(self, name: str) -> np.ndarray:
        """The triples `(N, 3)` of "train", "valid" or "test"."""
        return getattr(self, check_split(name))


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

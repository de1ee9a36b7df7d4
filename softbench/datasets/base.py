"""What data sets give: containers, and sequences of batches (NumPy and SciPy only).

Shape letters: N examples, n classes, v features.
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


class TripleData(NamedTuple):
    """Triples (head, relation, tail) of a knowledge graph, the tail to be predicted.

    Attributes:
        name: registry name.
        train: int32 `(N, 3)` ids of head, relation and tail.
        valid: int32 `(N, 3)`.
        test: int32 `(N, 3)`.
        num_classes: n, the number of entities.
        num_relations: number of relations.
        entities: the n names.
        relations: names of the relations.
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

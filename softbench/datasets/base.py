"""What data sets give: containers, and sequences of batches (NumPy and SciPy only).

Shape letters: N examples, n classes, v features.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

SPLITS = ("train", "valid", "test")
# Of generated data: makes an iterator over held-out examples, (probabilities (B, n) float64, labels
# csr (B, n)) at a time, by the distribution that the data were drawn from.
Truth = Callable[[], Iterator[tuple[np.ndarray, sp.csr_matrix]]]


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
        truth: see `Truth`; every token of `test` after the first is an example. None where the
            probabilities cannot be computed.
        valid_truth: the same of `valid`.
    """

    name: str
    train: np.ndarray
    valid: np.ndarray
    test: np.ndarray
    num_classes: int
    vocabulary: list[str] | None
    counts: np.ndarray
    truth: Truth | None = None
    valid_truth: Truth | None = None

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
        train_features: csr float32 `(N, v)`, or an array of dense features.
        train_labels: csr binary `(N, n)`.
        valid_features, valid_labels: of rows held out from the training set by the seed.
        test_features, test_labels: of the test set.
        num_features: v.
        num_classes: n.
        counts: int64 `(n,)`, occurrences of each label in `train_labels`.
        truth: see `Truth`; p(y | x) is that y is a label drawn uniformly from those of the row.
            None where it cannot be computed.
        valid_truth: the same of the validation rows.
        stream: None, or of data that do not fit in memory: (batch_size, seed=) -> the training
            batches, `BagShards`; there are no training rows then.
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
    truth: Truth | None = None
    valid_truth: Truth | None = None
    stream: Callable[..., Any] | None = None

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


class ItemLists(NamedTuple):
    """A list of items for each of U users, in the order of time where there is one.

    Attributes:
        items: int32 `(N,)`, the list of a user after that of the user before.
        ends: int64 `(U + 1,)`; the list of user u is `items[ends[u]:ends[u + 1]]`.
    """

    items: np.ndarray
    ends: np.ndarray

    def sizes(self) -> np.ndarray:
        """The number of items of each user, int64 `(U,)`."""
        return np.diff(self.ends)

    def last(self, users: np.ndarray, width: int, right: bool = False) -> np.ndarray:
        """The last items of some users, int32 `(B, width)`; -1 after a shorter list.

        With `right`, the items end at the last column instead, and -1 comes before them.
        """
        last = np.full((len(users), width), -1, np.int32)
        sizes = np.minimum(self.sizes()[users], width)
        rows = np.repeat(np.arange(len(users)), sizes)
        offset = _offsets(sizes)
        column = offset + np.repeat(width - sizes, sizes) if right else offset
        last[rows, column] = self.items[np.repeat(self.ends[users + 1] - sizes, sizes) + offset]
        return last

    def joined(self, other: "ItemLists") -> "ItemLists":
        """The list of each user, with the user's items of `other` after it."""
        sizes, more = self.sizes(), other.sizes()
        ends = np.append(0, np.cumsum(sizes + more))
        items = np.empty(ends[-1], np.int32)
        items[np.repeat(ends[:-1], sizes) + _offsets(sizes)] = self.items
        items[np.repeat(ends[:-1] + sizes, more) + _offsets(more)] = other.items
        return ItemLists(items, ends)


def _offsets(sizes: np.ndarray) -> np.ndarray:
    """0, 1, ... of each list, for lists of some sizes (U,) one after the other."""
    return np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)


class InteractionData(NamedTuple):
    """What users have had to do with items, and what they do next, to be predicted.

    Attributes:
        name: registry name.
        train, valid, test: `ItemLists` of the same users; those of valid come after train, those
            of test after both.
        num_classes: n, the number of items.
        items: their names; none of streamed data, which have numbers alone.
        counts: int64 `(n,)`, occurrences of each item in training.
        users: names of the U users, if they have names.
        stream: None, or of data that do not fit in memory: (batch_size, seed=) -> the training
            batches, `InteractionShards`; `train` then has the users of valid and test alone.
    """

    name: str
    train: ItemLists
    valid: ItemLists
    test: ItemLists
    num_classes: int
    items: list[str]
    counts: np.ndarray
    users: Sequence[str] = ()
    stream: Callable[..., Any] | None = None

    def split(self, name: str) -> ItemLists:
        """The lists of "train", "valid" or "test"."""
        return getattr(self, check_split(name))

    def before(self, name: str) -> ItemLists:
        """What users have had before "valid" or "test"."""
        return self.train.joined(self.valid) if check_split(name) == "test" else self.train


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

"""Generated data sets: a language with sequential structure, and hierarchical multi-label examples.

Both are functions of their arguments and the seed alone, and never hold an (n, n) array.
"""

import numpy as np
import scipy.sparse as sp

from softbench.datasets.base import (
    LanguageData,
    MultiLabelData,
    check_positive,
    random_generator,
)


def _zipf(size: int, exponent: float, offset: float) -> np.ndarray:
    weights = (np.arange(size) + 1.0 + offset) ** -exponent
    return weights / weights.sum()


def _draw(generator: np.random.Generator, weights: np.ndarray, size: int) -> np.ndarray:
    """Draws ids by bisection of the float64 cumulative sum."""
    cumulative = np.cumsum(weights)
    ids = np.searchsorted(cumulative, generator.random(size) * cumulative[-1], side="right")
    return np.minimum(ids, len(weights) - 1)


class SyntheticLanguage:
    """A second-order language whose exact conditional probabilities are known.

    Every class has a group g and a rank inside it. With a = `collocation`,

        p(y_t | y_{t-1}, y_{t-2}) = a s(y_t | y_{t-1})
                                    + (1 - a) r(g(y_t) | g(y_{t-2}), g(y_{t-1})) z(y_t | g(y_t))

    s: 4 fixed successors of each class, drawn from a Zipf law over the vocabulary; r: 4 possible
    groups after each pair of groups; z: a Zipf law over the members of the group. The first
    term is what a bigram model learns; of the second it sees only the average over y_{t-2}, so
    a recurrent model can be better than any bigram model. Ids are sorted by decreasing train count.

    Args:
        num_classes: n.
        num_train: tokens of each stream; the three are consecutive parts of one text.
        num_valid: see `num_train`.
        num_test: see `num_train`.
        seed: everything depends on it.
        num_groups: G (at most n of them are used).
        collocation: a, in [0, 1].
        exponent: of the Zipf laws. Weights are (rank + 1) ** -exponent inside a group and
            (rank + 2.7) ** -exponent for the successors, ranks counted from 0.

    Attributes:
        data: the `LanguageData`.
    """

    SLOTS = np.array([0.5, 0.25, 0.15, 0.1])

    def __init__(
        self,
        num_classes: int = 10_000,
        num_train: int = 200_000,
        num_valid: int = 20_000,
        num_test: int = 20_000,
        seed: int = 0,
        num_groups: int = 16,
        collocation: float = 0.45,
        exponent: float = 1.1,
    ) -> None:
        check_positive(num_classes=num_classes, num_train=num_train, num_valid=num_valid)
        check_positive(num_test=num_test, num_groups=num_groups)
        if not 0.0 <= collocation <= 1.0:
            raise ValueError(f"`collocation` must be in [0, 1]. Received: {collocation}")
        self._collocation, self._n = collocation, num_classes
        self._groups = min(num_groups, num_classes)
        generator = random_generator(seed)
        shape = (num_classes, len(self.SLOTS))
        weights = _zipf(num_classes, exponent, 1.7)
        self._successors = _draw(generator, weights, shape[0] * shape[1]).reshape(shape)
        shape = (self._groups, self._groups, len(self.SLOTS))
        self._next_group = generator.integers(self._groups, size=shape)
        self._ranks = _zipf(-(-num_classes // self._groups), exponent, 0.0)
        raw = self._generate(generator, num_train + num_valid + num_test)
        counts = np.bincount(raw[:num_train], minlength=num_classes)
        self._raw_id = np.argsort(-counts, kind="stable")
        new_id = np.empty(num_classes, np.int32)
        new_id[self._raw_id] = np.arange(num_classes)
        train, valid, test = np.split(new_id[raw], [num_train, num_train + num_valid])
        self.data = LanguageData(
            "synthetic_language", train, valid, test, num_classes, None, counts[self._raw_id]
        )

    def _generate(self, generator: np.random.Generator, size: int) -> np.ndarray:
        """Draws the text; all random numbers come first, so the loop only follows tables."""
        slots = len(self.SLOTS)
        follows = (generator.random(size) < self._collocation).tolist()
        slot = _draw(generator, self.SLOTS, size).tolist()
        base = (_draw(generator, self._ranks, size) * self._groups).tolist()
        successors = self._successors
        next_group = self._next_group.ravel().tolist()
        groups, n = self._groups, self._n
        text = [0] * size
        before = last = 0  # group of the token before the last one; the last token
        for t in range(size):
            group = last % groups
            if follows[t]:
                last = int(successors[last, slot[t]])
            else:
                chosen = next_group[(before * groups + group) * slots + slot[t]]
                last = base[t] + chosen
                if last >= n:  # the shorter groups have no such rank
                    last = chosen
            before = group
            text[t] = last
        return np.array(text, np.int32)

    def true_log_prob(self, tokens: np.ndarray) -> np.ndarray:
        """Exact log p(y_t | y_{t-1}, y_{t-2}) under the generator, for every t >= 2.

        `exp(-mean)` of it is the perplexity that no model can beat, up to sampling noise.

        Args:
            tokens: `(N,)` stream (or consecutive part of one) in the ids of `data`.

        Returns:
            float64 `(N - 2,)`.
        """
        raw = self._raw_id[np.asarray(tokens)]
        first, last, target = raw[:-2], raw[1:-1], raw[2:]
        groups = self._groups
        followed = (self._successors[last] == target[:, None]) @ self.SLOTS
        chosen = self._next_group[first % groups, last % groups]
        group = (chosen == (target % groups)[:, None]) @ self.SLOTS
        rank = self._ranks[target // groups]
        last_rank = (len(self._ranks) - 1) * groups + target % groups
        folded = (target < groups) & (last_rank >= self._n) & (len(self._ranks) > 1)
        rank = rank + np.where(folded, self._ranks[-1], 0.0)
        return np.log(self._collocation * followed + (1.0 - self._collocation) * group * rank)


def synthetic_language(
    num_classes: int = 10_000,
    num_train: int = 200_000,
    num_valid: int = 20_000,
    num_test: int = 20_000,
    seed: int = 0,
    num_groups: int = 16,
    collocation: float = 0.45,
    exponent: float = 1.1,
) -> LanguageData:
    """Returns `SyntheticLanguage(...).data`; see there for the law and the arguments."""
    return SyntheticLanguage(
        num_classes, num_train, num_valid, num_test, seed, num_groups, collocation, exponent
    ).data


BRANCHING = 16  # children of a node of the class tree
NODE_FEATURES = 6  # features that a node can emit
EMITTED = 3  # features that each node on a label's path emits, per example
NOISE = 4  # features drawn from the background, per example


def _draw_labels(
    generator: np.random.Generator, leaves: np.ndarray, size: int, labels_per_example: float
) -> tuple[np.ndarray, np.ndarray]:
    """Draws (row, class) pairs: a Zipfian first label, then others, mostly its siblings.

    `leaves` `(n,)` is the leaf of each class; the classes under one parent are siblings.
    """
    n = len(leaves)
    class_of_leaf = np.argsort(leaves)
    weights = _zipf(n, 1.0, 4.0)
    first = _draw(generator, weights, size)
    rows = np.repeat(np.arange(size), generator.poisson(labels_per_example - 1.0, size))
    parent = leaves[first[rows]] // BRANCHING * BRANCHING
    width = np.minimum(BRANCHING, n - parent)
    sibling = class_of_leaf[parent + (generator.random(len(rows)) * width).astype(np.int64)]
    other = _draw(generator, weights, len(rows))
    extra = np.where(generator.random(len(rows)) < 0.7, sibling, other)
    return np.concatenate([np.arange(size), rows]), np.concatenate([first, extra])


def _draw_features(
    generator: np.random.Generator, leaf: np.ndarray, rows: np.ndarray, n: int, v: int, size: int
) -> sp.csr_matrix:
    """Features emitted by the nodes on the path of each label, and background noise; counts."""
    ids, owners = [], []
    width = 1
    while True:
        nodes = -(-n // width)
        table = generator.integers(v, size=(nodes, NODE_FEATURES), dtype=np.int32)
        slot = generator.integers(NODE_FEATURES, size=(len(leaf), EMITTED))
        ids.append(table[(leaf // width)[:, None], slot].ravel())
        owners.append(np.repeat(rows, EMITTED))
        width *= BRANCHING
        if width >= n:
            break
    ids.append(_draw(generator, _zipf(v, 1.0, 10.0), NOISE * size))
    owners.append(np.repeat(np.arange(size), NOISE))
    pair = (np.concatenate(owners), np.concatenate(ids))
    return sp.csr_matrix((np.ones(len(pair[0]), np.float32), pair), shape=(size, v))


def _tf_idf(counts: sp.csr_matrix) -> sp.csr_matrix:
    """Weights (1 + log count) log(N / document frequency), each row then of l2 norm 1."""
    size, v = counts.shape
    frequency = np.bincount(counts.indices, minlength=v)
    idf = np.log((size + 1.0) / (frequency + 1.0)) + 1.0
    data = (1.0 + np.log(counts.data)) * idf[counts.indices]
    rows = np.repeat(np.arange(size), np.diff(counts.indptr))
    norm = np.sqrt(np.bincount(rows, data * data, minlength=size))
    data = (data / norm[rows]).astype(np.float32)
    return sp.csr_matrix((data, counts.indices, counts.indptr), shape=counts.shape)


def synthetic_xmc(
    num_classes: int = 5_000,
    num_features: int = 20_000,
    num_train: int = 30_000,
    num_valid: int = 3_000,
    num_test: int = 5_000,
    labels_per_example: float = 3.0,
    seed: int = 0,
) -> MultiLabelData:
    """Hierarchical extreme classification with sparse features.

    The classes are the leaves, in random order, of a tree with 16 children per node. An example
    has a first label from a Zipf law and Poisson(`labels_per_example` - 1) more (7 in 10 siblings
    of the first; a label drawn twice counts once). Every node on the path of every label emits
    3 of its own 6 features, so that close classes share features, and 4 more are noise. Weights
    are tf-idf with rows of norm 1.

    Args:
        num_classes: n.
        num_features: v.
        num_train: training examples, those held out not counted.
        num_valid: examples held out by the seed.
        num_test: test examples.
        labels_per_example: mean number of labels drawn, at least 1.
        seed: everything depends on it.
    """
    check_positive(num_classes=num_classes, num_features=num_features, num_train=num_train)
    check_positive(num_valid=num_valid, num_test=num_test)
    if not labels_per_example >= 1.0:
        raise ValueError(f"`labels_per_example` must be >= 1. Received: {labels_per_example}")
    generator = random_generator(seed, 1)
    size = num_train + num_valid + num_test
    leaves = generator.permutation(num_classes)
    rows, classes = _draw_labels(generator, leaves, size, labels_per_example)
    shape = (size, num_classes)
    labels = sp.csr_matrix((np.ones(len(rows), np.float32), (rows, classes)), shape=shape)
    labels.data[:] = 1.0
    features = _tf_idf(
        _draw_features(generator, leaves[classes], rows, num_classes, num_features, size)
    )
    order = generator.permutation(size)
    train, valid, test = np.split(order, [num_train, num_train + num_valid])
    counts = np.bincount(labels[train].indices, minlength=num_classes)
    return MultiLabelData(
        "synthetic_xmc",
        *(part for ids in (train, valid, test) for part in (features[ids], labels[ids])),
        num_features=num_features,
        num_classes=num_classes,
        counts=counts,
    )

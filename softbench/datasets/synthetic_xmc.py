"""Generated extreme classification: sparse features, labels in a hierarchy.

It is a function of its arguments and the seed alone, and never holds an (n, n) array.
"""

import numpy as np
import scipy.sparse as sp

from softbench.common import check_positive
from softbench.datasets.base import MultiLabelData
from softbench.datasets.draws import draw, random_generator, zipf

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
    weights = zipf(n, 1.0, 4.0)
    first = draw(generator, weights, size)
    rows = np.repeat(np.arange(size), generator.poisson(labels_per_example - 1.0, size))
    parent = leaves[first[rows]] // BRANCHING * BRANCHING
    width = np.minimum(BRANCHING, n - parent)
    sibling = class_of_leaf[parent + (generator.random(len(rows)) * width).astype(np.int64)]
    other = draw(generator, weights, len(rows))
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
    ids.append(draw(generator, zipf(v, 1.0, 10.0), NOISE * size))
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
    has a first label from a Zipf distribution and Poisson(`labels_per_example` - 1) more (7 in 10
    siblings of the first; a label drawn twice counts once). Every node on the path of every label
    emits 3 of its own 6 features, so that close classes share features, and 4 more are noise.
    Weights are tf-idf with rows of norm 1.

    Args:
        num_classes: n.
        num_features: v.
        num_train, num_valid, num_test: examples of each split.
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

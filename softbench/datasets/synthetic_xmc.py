"""Generated extreme classification: sparse features, labels in a hierarchy.

It is a function of its arguments and the seed alone, and never holds an (n, n) array.
"""

import functools

import numpy as np
import scipy.sparse as sp

from softbench.common import check_positive
from softbench.datasets.base import MultiLabelData
from softbench.datasets.draws import draw, random_generator, zipf
from softbench.datasets.xmc_truth import Source

BRANCHING = 16  # children of a node of the class tree
NODE_FEATURES = 6  # features that a node can emit
EMITTED = 3  # features that each node on a label's path emits, per example
SIBLINGS = 0.7  # share of the further labels that are siblings of the first
NOISE = 4  # features drawn from the background, per example


def _draw_labels(
    generator: np.random.Generator,
    leaves: np.ndarray,
    weights: np.ndarray,
    size: int,
    labels_per_example: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Draws (row, class) pairs: a first label by `weights`, then others, mostly its siblings.

    `leaves` `(n,)` is the leaf of each class; the classes under one parent are siblings.
    """
    n = len(leaves)
    class_of_leaf = np.argsort(leaves)
    first = draw(generator, weights, size)
    rows = np.repeat(np.arange(size), generator.poisson(labels_per_example - 1.0, size))
    parent = leaves[first[rows]] // BRANCHING * BRANCHING
    width = np.minimum(BRANCHING, n - parent)
    sibling = class_of_leaf[parent + (generator.random(len(rows)) * width).astype(np.int64)]
    other = draw(generator, weights, len(rows))
    extra = np.where(generator.random(len(rows)) < SIBLINGS, sibling, other)
    return np.concatenate([np.arange(size), rows]), np.concatenate([first, extra])


def _draw_features(
    generator: np.random.Generator,
    leaf: np.ndarray,
    rows: np.ndarray,
    widths: list[int],
    background: np.ndarray,
    n: int,
    size: int,
) -> tuple[sp.csr_matrix, list[np.ndarray]]:
    """Features emitted by the nodes on the path of each label, and background noise.

    Returns:
        Counts `(size, v)`, and the features `(nodes, NODE_FEATURES)` of the nodes of each level.
    """
    ids, owners, tables, v = [], [], [], len(background)
    for width in widths:
        nodes = -(-n // width)
        table = generator.integers(v, size=(nodes, NODE_FEATURES), dtype=np.int32)
        slot = generator.integers(NODE_FEATURES, size=(len(leaf), EMITTED))
        ids.append(table[(leaf // width)[:, None], slot].ravel())
        owners.append(np.repeat(rows, EMITTED))
        tables.append(table)
    ids.append(draw(generator, background, NOISE * size))
    owners.append(np.repeat(np.arange(size), NOISE))
    pair = (np.concatenate(owners), np.concatenate(ids))
    return sp.csr_matrix((np.ones(len(pair[0]), np.float32), pair), shape=(size, v)), tables


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


def _widths(n: int, lowest: int) -> list[int]:
    """Leaves under a node of each level that emits features, from the lowest up to below n."""
    width = BRANCHING**lowest
    widths = [width]
    while (width := width * BRANCHING) < n:
        widths.append(width)
    return widths


def synthetic_xmc(
    num_classes: int = 5_000,
    num_features: int = 20_000,
    num_train: int = 30_000,
    num_valid: int = 3_000,
    num_test: int = 5_000,
    labels_per_example: float = 3.0,
    seed: int = 0,
    lowest_level: int = 0,
) -> MultiLabelData:
    """Hierarchical extreme classification with sparse features.

    The classes are the leaves, in random order, of a tree with 16 children per node. An example
    has a first label from a Zipf distribution and Poisson(`labels_per_example` - 1) more, most of
    them siblings of the first (a label drawn twice counts once). Every node on the path of every
    label emits 3 of its 6 features, so that close classes share features, and 4 more are noise.
    Weights are tf-idf with rows of norm 1.

    It has a `truth` where every example has one label.

    Args:
        num_classes: n.
        num_features: v.
        num_train, num_valid, num_test: examples of each split.
        labels_per_example: mean number of labels drawn, at least 1.
        seed: everything depends on it.
        lowest_level: of the tree, counted from its leaves, that emits features: from 1 on, the
            features do not tell siblings from one another.
    """
    check_positive(num_classes=num_classes, num_features=num_features, num_train=num_train)
    check_positive(num_valid=num_valid, num_test=num_test)
    if not labels_per_example >= 1.0:
        raise ValueError(f"`labels_per_example` must be >= 1. Received: {labels_per_example}")
    if lowest_level < 0:
        raise ValueError(f"`lowest_level` must be >= 0. Received: {lowest_level}")
    generator = random_generator(seed, 1)
    size = num_train + num_valid + num_test
    leaves = generator.permutation(num_classes)
    weights, background = zipf(num_classes, 1.0, 4.0), zipf(num_features, 1.0, 10.0)
    rows, classes = _draw_labels(generator, leaves, weights, size, labels_per_example)
    shape = (size, num_classes)
    labels = sp.csr_matrix((np.ones(len(rows), np.float32), (rows, classes)), shape=shape)
    labels.data[:] = 1.0
    widths = _widths(num_classes, lowest_level)
    emitted, tables = _draw_features(
        generator, leaves[classes], rows, widths, background, num_classes, size
    )
    features = _tf_idf(emitted)
    order = generator.permutation(size)
    train, valid, test = np.split(order, [num_train, num_train + num_valid])
    counts = np.bincount(labels[train].indices, minlength=num_classes)
    source = Source(weights, leaves, widths, tables, EMITTED, background, NOISE)
    truths = [
        functools.partial(source.examples, emitted[ids], labels[ids]) for ids in (test, valid)
    ]
    return MultiLabelData(
        "synthetic_xmc",
        *(matrix[ids] for ids in (train, valid, test) for matrix in (features, labels)),
        num_features=num_features,
        num_classes=num_classes,
        counts=counts,
        **(dict(truth=truths[0], valid_truth=truths[1]) if labels_per_example == 1.0 else {}),
    )

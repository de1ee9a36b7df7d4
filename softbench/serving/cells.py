"""Cells of similar vectors: k-means in two levels, in NumPy, once for an index.

Shape letters: N points, d features, K means, C cells.
"""

from typing import NamedTuple

import numpy as np
from scipy import sparse

PASSES = 8  # Lloyd passes of each k-means
POINTS = 256  # for each mean of the first level, that its passes look at
_CHUNK = 2**24  # products held at a time


class Cells(NamedTuple):
    """Which points are in which cell.

    Attributes:
        means: float32 (C, d), of the points of each cell; near ones are adjacent.
        edges: int32 (C + 1,), the indices of `order` where the cells begin, and N.
        order: int32 (N,), the points by cell; every cell has one or more.
    """

    means: np.ndarray
    edges: np.ndarray
    order: np.ndarray


def cells(points: np.ndarray, size: int, seed: int) -> Cells:
    """About `size` cells of points (N, d): first sqrt(size) of them, then a split of each.

    A first one is split by its share of all squared distances to the means: what a cell's mean
    tells wrongly of its points then is about the same in all. Points that lie close to each other,
    as the rows of classes that were hardly trained, share a few large cells.
    """
    generator, count = np.random.default_rng(seed), len(points)
    first = max(1, min(count, round(size**0.5)))
    some = points
    if count > POINTS * first:
        some = points[generator.choice(count, POINTS * first, replace=False)]
    group = nearest(points, kmeans(some, first, generator))
    order, ids, total = np.argsort(group, kind="stable"), np.empty(count, np.int64), 0
    errors = squared_distances(points, group, first)
    numbers = np.maximum(1, np.rint(size * errors / max(errors.sum(), 1e-30)).astype(int))
    groups = np.split(order, np.searchsorted(group[order], np.arange(1, first)))
    for members, number in zip(groups, numbers, strict=True):
        if len(members):
            inside = points[members]
            ids[members] = total + nearest(inside, kmeans(inside, number, generator))
            total += number
    used, cell = np.unique(ids, return_inverse=True)
    edges = np.concatenate([[0], np.cumsum(np.bincount(cell, minlength=len(used)))])
    order = np.argsort(cell, kind="stable")
    return Cells(means(points, cell, len(used)), edges.astype("int32"), order.astype("int32"))


def kmeans(points: np.ndarray, size: int, generator: np.random.Generator) -> np.ndarray:
    """At most `size` means (K, d) of points (N, d), from random ones of them."""
    size = min(size, len(points))
    centres = points[generator.choice(len(points), size, replace=False)]
    for _ in range(PASSES if size < len(points) else 0):
        assigned = nearest(points, centres)
        filled = np.bincount(assigned, minlength=size) > 0
        centres = np.where(filled[:, None], means(points, assigned, size), centres)
    return centres


def nearest(points: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """The nearest mean (N,) of each point."""
    half = 0.5 * np.square(centres).sum(-1)
    step = max(1, _CHUNK // len(centres))
    starts = range(0, len(points), step)
    return np.concatenate([np.argmax(points[i : i + step] @ centres.T - half, -1) for i in starts])


def means(points: np.ndarray, assigned: np.ndarray, size: int) -> np.ndarray:
    """float32 (K, d): the mean of the points of each, 0 of none."""
    counts = np.bincount(assigned, minlength=size)
    inside = (np.ones(len(assigned), "float32"), (assigned, np.arange(len(assigned))))
    sums = sparse.csr_matrix(inside, shape=(size, len(assigned))) @ points
    return (sums / np.maximum(counts, 1)[:, None]).astype("float32")


def squared_distances(points: np.ndarray, assigned: np.ndarray, size: int) -> np.ndarray:
    """float64 (K,): the sum of the squared distances of the points of each to their mean."""
    lengths = np.bincount(assigned, np.einsum("nd,nd->n", points, points), minlength=size)
    squares = np.square(means(points, assigned, size).astype(float)).sum(-1)
    return np.maximum(lengths - np.bincount(assigned, minlength=size) * squares, 0.0)

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
        means: float32 (C, d), of the points of each cell; near ones stand together.
        edges: int32 (C + 1,), the places in `order` where the cells begin, and N.
        order: int32 (N,), the points by cell; every cell has one or more.
    """

    means: np.ndarray
    edges: np.ndarray
    order: np.ndarray


def cells(points: np.ndarray, size: int, seed: int) -> Cells:
    """About `size` cells of points (N, d): first sqrt(size) of them, then parts of each.

    A first one has parts by its share of all squared distances to the means: what a cell's mean
    tells wrongly of its points then is about the same in all. Points that lie close to each other,
    as the rows of classes that were hardly trained, share a few large cells.
    """
    generator, count = np.random.default_rng(seed), len(points)
    first = max(1, min(count, round(size**0.5)))
    some = points
    if count > POINTS * first:
        some = points[generator.choice(count, POINTS * first, replace=False)]
    own = nearest(points, kmeans(some, first, generator))
    order, places, total = np.argsort(own, kind="stable"), np.empty(count, np.int64), 0
    errors = squared_distances(points, own, first)
    parts = np.maximum(1, np.rint(size * errors / max(errors.sum(), 1e-30)).astype(int))
    groups = np.split(order, np.searchsorted(own[order], np.arange(1, first)))
    for group, number in zip(groups, parts, strict=True):
        if len(group):
            inside = points[group]
            places[group] = total + nearest(inside, kmeans(inside, number, generator))
            total += number
    used, cell = np.unique(places, return_inverse=True)
    edges = np.concatenate([[0], np.cumsum(np.bincount(cell, minlength=len(used)))])
    order = np.argsort(cell, kind="stable")
    return Cells(means(points, cell, len(used)), edges.astype("int32"), order.astype("int32"))


def kmeans(points: np.ndarray, size: int, generator: np.random.Generator) -> np.ndarray:
    """At most `size` means (K, d) of points (N, d), from random ones of them."""
    size = min(size, len(points))
    found = points[generator.choice(len(points), size, replace=False)]
    for _ in range(PASSES if size < len(points) else 0):
        own = nearest(points, found)
        filled = np.bincount(own, minlength=size) > 0
        found = np.where(filled[:, None], means(points, own, size), found)
    return found


def nearest(points: np.ndarray, found: np.ndarray) -> np.ndarray:
    """The nearest mean (N,) of each point."""
    half = 0.5 * np.square(found).sum(-1)
    step = max(1, _CHUNK // len(found))
    starts = range(0, len(points), step)
    return np.concatenate([np.argmax(points[i : i + step] @ found.T - half, -1) for i in starts])


def means(points: np.ndarray, own: np.ndarray, size: int) -> np.ndarray:
    """float32 (K, d): the mean of the points of each, 0 of none."""
    counts = np.bincount(own, minlength=size)
    inside = (np.ones(len(own), "float32"), (own, np.arange(len(own))))
    sums = sparse.csr_matrix(inside, shape=(size, len(own))) @ points
    return (sums / np.maximum(counts, 1)[:, None]).astype("float32")


def squared_distances(points: np.ndarray, own: np.ndarray, size: int) -> np.ndarray:
    """float64 (K,): the sum of the squared distances of the points of each to their mean."""
    lengths = np.bincount(own, np.einsum("nd,nd->n", points, points), minlength=size)
    centres = np.square(means(points, own, size).astype(float)).sum(-1)
    return np.maximum(lengths - np.bincount(own, minlength=size) * centres, 0.0)

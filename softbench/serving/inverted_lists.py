"""Cells of near points, by k-means in two levels, once for an index.

Shape letters: N points, d features, K means, C cells.
"""

import warnings
from typing import NamedTuple

import numpy as np
from scipy.cluster.vq import kmeans2, vq

PASSES = 9  # Lloyd passes of each k-means
POINTS = 256  # for each mean of the first level, that its passes look at
_CHUNK = 2**24  # distances held at a time


class InvertedLists(NamedTuple):
    """The points of each cell, as in an inverted file.

    Attributes:
        means: float32 (C, d), of the points of each cell; near ones follow each other.
        edges: int32 (C + 1,), the positions in `order` where the cells begin, and N.
        order: int32 (N,), the points by cell; every cell has one or more.
    """

    means: np.ndarray
    edges: np.ndarray
    order: np.ndarray


def inverted_lists(points: np.ndarray, size: int, seed: int) -> InvertedLists:
    """About `size` cells of points (N, d): first sqrt(size) groups, then cells of each group.

    A group has cells by its share of all squared distances to the means: what a cell's mean tells
    wrongly of its points then is about the same in all. Points that lie close to each other, as
    the rows of classes that were hardly trained, share a few large cells.
    """
    generator, count = np.random.default_rng(seed), len(points)
    groups = max(1, min(count, round(size**0.5)))
    sample = points
    if count > POINTS * groups:
        sample = points[generator.choice(count, POINTS * groups, replace=False)]
    group, errors = _nearest(points, _kmeans(sample, groups, generator)[0])
    shares = np.bincount(group, errors, minlength=groups)
    sizes = np.maximum(1, np.rint(size * shares / max(shares.sum(), 1e-30)).astype(int))
    by_group = np.argsort(group, kind="stable")
    members = np.split(by_group, np.searchsorted(group[by_group], np.arange(1, groups)))
    cell, total = np.empty(count, np.int64), 0
    for inside, number in zip(members, sizes, strict=True):
        if len(inside):
            cell[inside] = total + _kmeans(points[inside], number, generator)[1]
            total += number
    order = np.argsort(cell, kind="stable")
    starts = np.flatnonzero(np.diff(cell[order], prepend=-1))
    edges = np.append(starts, count)
    sums = np.add.reduceat(points[order], starts, dtype=float)
    means = (sums / np.diff(edges)[:, None]).astype("float32")
    return InvertedLists(means, edges.astype("int32"), order.astype("int32"))


def _kmeans(
    points: np.ndarray, size: int, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """At most `size` means (K, d) of points (N, d), and which of them (N,) each point is nearest.

    From random points. A mean that no point is nearest to stays where it was.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "One of the clusters is empty")
        return kmeans2(points, min(size, len(points)), PASSES, minit="points", seed=generator)


def _nearest(points: np.ndarray, means: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The nearest mean (N,) of each point, and the squared distance to it (N,)."""
    step = max(1, _CHUNK // len(means))
    chunks = [vq(points[i : i + step], means) for i in range(0, len(points), step)]
    nearest, distance = (np.concatenate(x) for x in zip(*chunks, strict=True))
    return nearest, np.square(distance)

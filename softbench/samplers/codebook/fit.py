"""Codebooks of class vectors: nearest codewords, weighted sums, seeding, Lloyd passes.

c_i is written as c1[k1] + c2[k2]: of two residual codebooks (the second is of what the first leaves
over), of a product (one codebook for the first half of the features, one for the second), or of a
single one. Everything is a function of arrays.

Shape letters: N points or class ids, d features, d1 and d2 those of either codebook (d and d, or
the two halves), K codewords, n classes.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from keras import ops

from softbench.common import Tensor
from softbench.ops import argmax, matmul_transposed
from softbench.table import l2_normalize

CHUNK = 2**22  # numbers (classes x max(K, d)) held at a time
POINTS = 256  # classes for each codeword that a full fit looks at
CANDIDATES = 8  # for each seed
ITERATIONS = 12  # Lloyd passes of a full fit, for each codebook
Rows = Callable[[Tensor], Tensor]  # ids (N,) -> rows (N, d) as scores compare them
QUANTIZERS = ("residual", "product", "single")


class Statistics(NamedTuple):
    """Weighted sums over the classes of each codeword, from which the codewords follow.

    Attributes:
        first, second: (K, d1), (K, d2) sums of a_i times the part of c_i that the codebook is of,
            not yet without the other codebook's share.
        mass: (K, K) sums of a_i over the cells.
    """

    first: Tensor
    second: Tensor
    mass: Tensor


class Codewords(NamedTuple):
    """The two codebooks, (K, d1) and (K, d2); the second of "single" is one row of zeros."""

    first: Tensor
    second: Tensor


def shapes(size: int, width: int, quantizer: str) -> tuple[tuple[int, int], tuple[int, int]]:
    """Those of both codebooks of K = `size` codewords, for `width` = d features."""
    if quantizer == "product":
        return (size, (width + 1) // 2), (size, width // 2)
    return (size, width), (size if quantizer == "residual" else 1, width)


def halves(x: Tensor, quantizer: str) -> tuple[Tensor, Tensor]:
    """What either codebook sees of points (N, d): (N, d1), (N, d2)."""
    if quantizer != "product":
        return x, x
    half = (x.shape[-1] + 1) // 2
    return x[:, :half], x[:, half:]


def nearest(points: Tensor, codewords: Tensor) -> Tensor:
    """The nearest of the codewords (K, d) to each point (N, d): int32 (N,)."""
    length = ops.sum(ops.square(codewords), axis=-1)
    return argmax(matmul_transposed(points, codewords) - 0.5 * length)


def encode(points: Tensor, codewords: Codewords, quantizer: str) -> Tensor:
    """The cell k1 K + k2 of each point (N, d): int32 (N,)."""
    first, second = halves(points, quantizer)
    k1 = nearest(first, codewords.first)
    if quantizer == "single":
        return k1
    if quantizer == "residual":
        second = second - ops.take(codewords.first, k1, axis=0)
    return k1 * codewords.second.shape[0] + nearest(second, codewords.second)


def statistics(
    points: Tensor, weight: Tensor, cell: Tensor, sizes: tuple[int, int], quantizer: str
) -> Statistics:
    """The sums of points (N, d) with weight (N,) in their cells (N,)."""
    first, second = halves(points * ops.expand_dims(weight, -1), quantizer)
    return Statistics(
        ops.segment_sum(first, cell // sizes[1], sizes[0]),
        ops.segment_sum(second, ops.mod(cell, sizes[1]), sizes[1]),
        ops.reshape(ops.segment_sum(weight, cell, sizes[0] * sizes[1]), sizes),
    )


def means(found: Statistics, old: Codewords, quantizer: str) -> Codewords:
    """The weighted means of the cells; a codeword without classes stays where it was."""

    def mean(total: Tensor, mass: Tensor, before: Tensor) -> Tensor:
        mass = ops.expand_dims(mass, -1)
        return ops.where(mass > 0, total / ops.where(mass > 0, mass, 1.0), before)

    first = mean(found.first, ops.sum(found.mass, axis=1), old.first)
    if quantizer == "single":
        return Codewords(first, old.second)
    second = found.second
    if quantizer == "residual":
        second = second - ops.matmul(ops.transpose(found.mass), first)
    return Codewords(first, mean(second, ops.sum(found.mass, axis=0), old.second))


def seeds(points: Tensor, weight: Tensor, uniform: Tensor) -> Tensor:
    """Greedy k-means++ (Arthur & Vassilvitskii 2007): K of the points (N, d).

    In turn, the one of several candidates, drawn by weight times squared distance, that leaves the
    smallest sum of these. With heavy-tailed weights the first try alone is often a poor one.

    Args:
        uniform: (K, T) random numbers in [0, 1), for T candidates.
    """
    size, norms = uniform.shape[0], ops.sum(ops.square(points), axis=-1)
    places = ops.arange(size, dtype="int32")

    def add(k: Tensor, state: tuple) -> tuple:
        chosen, distance = state
        running = ops.cumsum(distance * weight)
        wanted = ops.expand_dims(ops.take(uniform, k, axis=0) * running[-1], -1)
        past = ops.sum(ops.cast(running <= wanted, "int32"), axis=-1)
        tried = ops.take(points, ops.minimum(past, points.shape[0] - 1), axis=0)
        apart = ops.expand_dims(ops.sum(ops.square(tried), axis=-1), -1) + norms
        apart = ops.minimum(apart - 2.0 * matmul_transposed(tried, points), distance)  # (T, N)
        apart = ops.maximum(apart, 0.0)
        best = ops.argmin(ops.sum(apart * weight, axis=-1))
        here = ops.expand_dims(ops.equal(places, k), -1)
        return ops.where(here, ops.take(tried, best, axis=0), chosen), ops.take(apart, best, axis=0)

    # The first distance is beyond any other: the first candidates are drawn by weight alone.
    far = 4.0 * ops.max(norms) + 1.0
    start = ops.zeros((size, points.shape[1]), "float32"), ops.ones_like(norms) * far
    return ops.fori_loop(0, size, add, start)[0]


def lloyd(points: Tensor, weight: Tensor, uniform: Tensor) -> Tensor:
    """Codewords (K, d) of points (N, d): weighted k-means from `seeds` by `uniform` (K, T)."""
    size = uniform.shape[0]

    def step(_: Tensor, codewords: Tensor) -> Tensor:
        found = statistics(points, weight, nearest(points, codewords), (size, 1), "single")
        return means(found, Codewords(codewords, codewords[:1]), "single").first

    return ops.fori_loop(0, ITERATIONS, step, seeds(points, weight, uniform))


def largest(weight: Tensor, size: int, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """Priority sampling (Duffield et al. 2007): `size` of the classes (n,), and their weights.

    The classes with the largest weight / uniform number (n,) stand for all, each with the larger of
    its weight and the first of these quotients that was left out: sums over them are unbiased.
    """
    priority, ids = ops.top_k(weight / uniform, size + 1)
    ids = ops.cast(ids[:size], "int32")
    return ids, ops.maximum(ops.take(weight, ids, axis=0), priority[size])


def golden_shift(step: Tensor) -> Tensor:
    """In [0, 1): multiples of the golden ratio, modulo 1, one for each step, an int32 ()."""
    return ops.cast(ops.mod(ops.mod(step, 2**15) * 20_251, 2**15), "float32") / 2**15


def in_proportion(weight: Tensor, size: int | Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    """Systematic sampling: `size` places of weight (U,), and the weight that each stands for.

    Points at equal distances in the running sum of the weights, all shifted by a fraction `shift`
    of the distance. Each stands for one distance, so on average over the shifts every place counts
    with its own weight; one that is heavier than the distance is never left out.
    """
    running, distance = ops.cumsum(weight), ops.sum(weight) / ops.cast(size, "float32")
    points = (ops.cast(ops.arange(size), "float32") + shift) * distance
    past = ops.cast(ops.searchsorted(running, points, side="right"), "int32")
    places = ops.minimum(past, ops.shape(weight)[0] - 1)
    return places, ops.where(ops.take(weight, places, axis=0) > 0, distance, 0.0)


def fit(
    kernel: Tensor,
    weight: Tensor,
    uniform: Tensor,
    priority: Tensor | None,
    *,
    quantizer: str,
    normalize: bool,
) -> tuple[Codewords, Tensor, Statistics]:
    """Codebooks of the rows of `kernel` (n, d), divided by their norms if `normalize`.

    Args:
        weight: of the classes (n,).
        uniform: (2, K, T) random numbers, for the seeds.
        priority: (n,) random numbers by which `POINTS` K classes are chosen; None for all.

    Returns:
        The codewords, and the cell (n,) of every class with the sums over the cells.
    """

    def rows(ids: Tensor) -> Tensor:
        points = ops.cast(ops.take(kernel, ids, axis=0), "float32")
        return l2_normalize(points) if normalize else points

    ids, own = ops.arange(weight.shape[0], dtype="int32"), weight
    if priority is not None:
        ids, own = largest(weight, POINTS * uniform.shape[1], priority)
    codewords = codebooks(rows(ids), own, uniform, quantizer)
    return codewords, *sums_of(rows, quantizer, 0, weight.shape[0], weight, None, codewords)


def codebooks(points: Tensor, weight: Tensor, uniform: Tensor, quantizer: str) -> Codewords:
    """Codebooks of points (N, d) with weight (N,), from random numbers (2, K, T)."""
    first, second = halves(points, quantizer)
    found = lloyd(first, weight, uniform[0])
    if quantizer == "single":
        return Codewords(found, ops.zeros((1, points.shape[1]), "float32"))
    if quantizer == "residual":
        second = second - ops.take(found, nearest(first, found), axis=0)
    return Codewords(found, lloyd(second, weight, uniform[1]))


def over_classes(
    part: Callable, start: Any, first: Tensor | int, units: int, width: int
) -> tuple[Any, Tensor]:
    """`part(carry, ids (N,), inside (N,)) -> (carry, int32 (N,))` over classes in chunks.

    These are the `units` from `first` on. `inside` says which ids are new; the others repeat the
    last class.

    Returns:
        The last carry, and the values (n,).
    """
    size = min(units, max(1, CHUNK // width))
    chunks, steps = -(-units // size), ops.arange(size, dtype="int32")

    def step(chunk: Tensor, state: tuple) -> tuple:
        carry, values = state
        ids = chunk * size + steps
        carry, own = part(carry, first + ops.minimum(ids, units - 1), ids < units)
        return carry, ops.slice_update(values, (chunk * size,), own)

    state = start, ops.zeros((chunks * size,), "int32")
    carry, values = ops.fori_loop(0, chunks, step, state)
    return carry, values[:units]


def sums_of(
    rows: Rows, quantizer: str, first: Tensor | int, count: int, *arrays: Any
) -> tuple[Tensor, Statistics]:
    """The cells (N,) of the classes [first, first + count), and the sums over them.

    Args:
        arrays: weight (n,) and cells (n,) of all classes, and the `Codewords`. Without cells (None)
            they are those of the nearest codewords.
    """
    weight, known, codewords = arrays
    codewords = Codewords(*codewords)
    sizes = codewords.first.shape[0], codewords.second.shape[0]

    def part(total: Statistics, ids: Tensor, inside: Tensor) -> tuple[Statistics, Tensor]:
        points = rows(ids)
        own = ops.where(inside, ops.take(weight, ids, axis=0), 0.0)
        cell = encode(points, codewords, quantizer) if known is None else ops.take(known, ids)
        found = statistics(points, own, cell, sizes, quantizer)
        return Statistics(*(a + b for a, b in zip(total, found, strict=True))), cell

    start = Statistics(
        ops.zeros_like(codewords.first), ops.zeros_like(codewords.second), ops.zeros(sizes)
    )
    width = max(*sizes, 2 * codewords.first.shape[1])
    total, cell = over_classes(part, start, first, count, width)
    return cell, Statistics(*total)


def joined(found: tuple[Tensor, Statistics]) -> tuple[Tensor, Statistics]:
    """`sums_of` all classes from those of S parts, (S, ...)."""
    cell, sums = found
    return ops.reshape(cell, (-1,)), Statistics(*(ops.sum(x, axis=0) for x in sums))

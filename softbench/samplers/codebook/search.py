"""The classes of the best cells: what a search for the best classes looks at.

Shape letters: B queries, n classes, C cells, P of them whose classes are taken, M candidates.
"""

from typing import NamedTuple

from keras import ops

from softbench.common import Tensor
from softbench.ops import number_at_most

BLOCK = 64  # successive cells of which only the best is looked at first
SPARE = 2  # times as many cells are taken as M classes fill if all are usual ones


class Candidates(NamedTuple):
    """Distinct classes, those of better cells first.

    Attributes:
        ids: int32 (B, M).
        known: bool (B, M), False where the cells that were taken had fewer classes.
    """

    ids: Tensor
    known: Tensor


def candidates(
    scores: Tensor, edges: Tensor, order: Tensor, size: int, k: int, usual: int | None = None
) -> Candidates:
    """The classes of the cells with the best scores.

    Args:
        scores: (B, C).
        edges: int32 (C + 1,), the places in `order` where the cells begin, and n.
        order: int32 (n,), the classes by cell.
        size: M <= n.
        k: at least so many of the candidates are known, k <= M.
        usual: classes of a usual cell; None for n / C.
    """
    units, count = order.shape[0], scores.shape[1]
    sizes = edges[1:] - edges[:-1]
    # Of a query that is not finite too, cells with classes are taken: their scores will show it.
    scores = ops.where(ops.isfinite(scores), scores, 0.0)
    scores = ops.where(sizes > 0, scores, -float("inf"))
    wanted = -(-size // usual) if usual else -(-size * count // units)
    cell = _best(scores, min(count, size, max(k, SPARE * wanted)))
    ends = ops.cumsum(ops.take(sizes, cell, axis=0), axis=-1)
    shift = ops.take(edges[1:], cell, axis=0) - ends  # from a candidate's number to its place
    places = ops.arange(size, dtype="int32")
    number = number_at_most(ends, ops.broadcast_to(places, (ops.shape(cell)[0], size)))
    known = number < cell.shape[1]
    number = ops.minimum(number, cell.shape[1] - 1)
    place = places + ops.take_along_axis(shift, number, axis=-1)
    ids = ops.take(order, ops.clip(place, 0, units - 1), axis=0)
    return Candidates(ids, known)


def _best(scores: Tensor, count: int) -> Tensor:
    """The cells (B, P) with the best scores (B, C), the best first.

    The P best are in the P blocks with the best of their own, so that only these are sorted.
    """
    blocks = -(-scores.shape[1] // BLOCK)
    if count >= blocks:
        return ops.cast(ops.top_k(scores, count)[1], "int32")
    missing = blocks * BLOCK - scores.shape[1]
    padded = ops.pad(scores, ((0, 0), (0, missing)), constant_values=-float("inf"))
    padded = ops.reshape(padded, (-1, blocks, BLOCK))
    block = ops.cast(ops.top_k(ops.max(padded, axis=-1), count)[1], "int32")
    inside = ops.take_along_axis(padded, ops.expand_dims(block, -1), axis=1)
    best = ops.cast(ops.top_k(ops.reshape(inside, (-1, count * BLOCK)), count)[1], "int32")
    found = ops.take_along_axis(block, best // BLOCK, axis=-1) * BLOCK + ops.mod(best, BLOCK)
    return ops.minimum(found, scores.shape[1] - 1)

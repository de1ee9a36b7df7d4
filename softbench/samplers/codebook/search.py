"""The classes of the best cells of a codebook: what a search for the best classes looks at.

An inverted multi-index (Babenko & Lempitsky 2012): a cell's score is the sum of those of its two
codewords, so all cells are scored by 2 K inner products, and only classes of the best are looked
at.

Shape letters: B queries, n classes, K1 and K2 codewords, C = K1 K2 cells, A of the K1 that are
looked at, P cells whose classes are taken, M candidates.
"""

from typing import NamedTuple

from keras import ops

from softbench.common import Tensor
from softbench.samplers.groups import number_at_most

SCANNED = 2**14  # cells whose scores are compared
SPARE = 2  # times as many cells are taken as M classes fill on average


class Candidates(NamedTuple):
    """Distinct classes, those of better cells first.

    Attributes:
        ids: int32 (B, M).
        known: bool (B, M), False where the cells that were looked at had fewer classes.
    """

    ids: Tensor
    known: Tensor


def candidates(
    first: Tensor,
    second: Tensor,
    offset: Tensor,
    edges: Tensor,
    order: Tensor,
    size: int,
    k: int,
) -> Candidates:
    """The classes of the cells with the best scores first + second + offset.

    Args:
        first, second: scores (B, K1), (B, K2) of the codewords.
        offset: (K1, K2), of the cells.
        edges: int32 (C + 1,), the places in `order` where the cells begin, and n.
        order: int32 (n,), the classes by cell.
        size: M <= n.
        k: at least so many of the candidates are known, k <= M.
    """
    units, (count, width) = order.shape[0], offset.shape
    sizes = edges[1:] - edges[:-1]
    empty = ops.equal(ops.reshape(sizes, (count, width)), 0)
    offset = ops.where(empty, -float("inf"), offset)
    # Of a query that is not finite too, cells with classes are taken: their scores will show it.
    first, second = (ops.where(ops.isfinite(x), x, 0.0) for x in (first, second))
    rows = min(count, max(k, SCANNED // width))
    taken = min(rows * width, size, max(k, SPARE * -(-size * count * width // units)))
    scores, best = ops.expand_dims(first, -1) + offset, None
    if rows < count:
        best = ops.top_k(first + ops.max(offset, axis=1), rows)[1]
        best = ops.cast(best, "int32")
        own = ops.take_along_axis(first, best, axis=-1)
        scores = ops.expand_dims(own, -1) + ops.take(offset, best, axis=0)
    scores = ops.reshape(scores + ops.expand_dims(second, 1), (-1, rows * width))
    cell = ops.cast(ops.top_k(scores, taken)[1], "int32")
    if best is not None:
        cell = ops.take_along_axis(best, cell // width, axis=-1) * width + ops.mod(cell, width)
    return _classes_of(cell, sizes, edges, order, size)


def _classes_of(cell: Tensor, sizes: Tensor, edges: Tensor, order: Tensor, size: int) -> Candidates:
    """The first M classes of the cells (B, P)."""
    ends = ops.cumsum(ops.take(sizes, cell, axis=0), axis=-1)
    shift = ops.take(edges[1:], cell, axis=0) - ends  # from a candidate's number to its place
    places = ops.arange(size, dtype="int32")
    number = number_at_most(ends, ops.broadcast_to(places, (ops.shape(cell)[0], size)))
    known = number < cell.shape[1]
    number = ops.minimum(number, cell.shape[1] - 1)
    place = places + ops.take_along_axis(shift, number, axis=-1)
    ids = ops.take(order, ops.clip(place, 0, order.shape[0] - 1), axis=0)
    return Candidates(ids, known)

"""Rows of draws and the examples that they serve; groups of similar examples.

R rows of draws serve a batch of B examples: row r the examples [r k, (r + 1) k), k = ceil(B / R).
R = 1 is the whole batch, R = B each example alone.

Shape letters: B batch, d features, R rows or groups, k examples in a group (fewer, or none, in the
last ones).
"""

from keras import ops

from softbench.common import Tensor
from softbench.ops import number_at_most

PASSES = 4  # of the power iteration that looks for a group's main direction
_FAR = 3e38


def check_splits(groups: int) -> None:
    """Raise a ValueError unless halving a batch again and again ends at this many groups."""
    if groups & (groups - 1):
        raise ValueError(
            "`share_draws` must be True, False or a power of two: groups of similar examples are "
            f"halves of halves of the batch. Received: share_draws={groups}"
        )


def similar(hidden: Tensor, groups: int) -> Tensor:
    """An order (B,) of the examples of hidden (B, d) that puts similar ones into the same group.

    The batch is halved at the median of its main direction, each half at that of its own, until
    there are G groups of k: O(B d log G). What does not fill a group is the end of the last ones.
    """
    batch = ops.shape(hidden)[0]
    missing = groups * group_size(batch, groups) - batch
    order = ops.arange(batch + missing, dtype="int32")
    points = ops.cast(ops.concatenate([hidden, ops.zeros_like(hidden[:1])], axis=0), "float32")
    for depth in range(groups.bit_length() - 1):
        halves = ops.reshape(order, (2**depth, -1))
        inside = halves < batch
        members = ops.take(points, ops.minimum(halves, batch), axis=0)
        position = _along_main_direction(members, inside)
        position = ops.where(
            ops.isfinite(position), position, 0.0
        )  # NaN would be sorted to the end
        position = ops.where(inside, position, _FAR)
        order = ops.take_along_axis(halves, ops.argsort(position, axis=-1), axis=-1)
    order = ops.reshape(order, (-1,))
    return order[:batch]  # positions beyond the batch were sorted to the end


def _along_main_direction(points: Tensor, inside: Tensor) -> Tensor:
    """Positions (P, S) of sets of points (P, S, d) along the axis of their largest variance."""
    weight = ops.expand_dims(ops.cast(inside, "float32"), -1)
    count = ops.maximum(ops.sum(weight, axis=1, keepdims=True), 1.0)
    centred = points - ops.sum(points * weight, axis=1, keepdims=True) / count
    centred = centred * weight
    far = ops.argmax(ops.sum(ops.square(centred), axis=-1), axis=-1)
    position = ops.matmul(centred, ops.expand_dims(_rows_at(centred, far), -1))  # (P, S, 1)
    for _ in range(PASSES):
        direction = ops.matmul(ops.transpose(centred, (0, 2, 1)), position)
        length = ops.sqrt(ops.sum(ops.square(direction), axis=1, keepdims=True))
        position = ops.matmul(centred, direction / ops.where(length > 0, length, 1.0))
    return ops.squeeze(position, -1)


def _rows_at(sets: Tensor, position: Tensor) -> Tensor:
    """The point (P, d) at `position` (P,) of each set (P, S, d)."""
    index = ops.cast(position, "int32")[:, None, None]
    return ops.squeeze(ops.take_along_axis(sets, index, axis=1), 1)


def group_size(batch: int | Tensor, rows: int) -> int | Tensor:
    """k."""
    return (batch + rows - 1) // rows


def by_groups(x: Tensor, rows: int) -> Tensor:
    """x (B, ...) as (R, k, ...); what is missing repeats the last example."""
    if rows == 1:
        return ops.expand_dims(x, 0)
    batch = ops.shape(x)[0]
    size = group_size(batch, rows)
    index = ops.minimum(ops.arange(rows * size, dtype="int32"), batch - 1)
    return ops.reshape(ops.take(x, index, axis=0), (rows, size, *x.shape[1:]))


def has_row_each(x: Tensor, hidden: Tensor) -> bool:
    """Whether x (R, ...) has a row for each example of hidden (B, d), as far as shapes tell.

    The number of rows that the batch or groups share is always known, that of a batch may not be.
    """
    return x.shape[0] is None or x.shape[0] == hidden.shape[0]


def of_examples(x: Tensor, hidden: Tensor) -> Tensor:
    """x (R, ...) as what each example of hidden (B, d) has: (B, ...), or (1, ...) for R = 1."""
    if x.shape[0] == 1 or has_row_each(x, hidden):
        return x
    batch = ops.shape(hidden)[0]
    index = ops.arange(batch, dtype="int32") // group_size(batch, x.shape[0])
    return ops.take(x, index, axis=0)


def of_every_example(x: Tensor, hidden: Tensor) -> Tensor:
    """As `of_examples`, (B, ...) for R = 1 too."""
    return ops.broadcast_to(of_examples(x, hidden), (ops.shape(hidden)[0], *x.shape[1:]))


def contains(sets: Tensor, ids: Tensor) -> Tensor:
    """Whether each of the ids (R, N) is in its row's set (R, T); bool (R, N)."""
    ordered = ops.sort(sets, axis=-1)
    position = ops.maximum(number_at_most(ordered, ids) - 1, 0)
    return ops.equal(ops.take_along_axis(ordered, position, axis=-1), ids)


def of_own_set(ids: Tensor, sets: Tensor) -> Tensor:
    """Whether each of the ids (R, m) is in the set (B, k) of an example that has it; bool (B, m).

    In k passes over (B, m): up to some hundreds they take less time than to search each set.
    """
    ids = of_examples(ids, sets)

    def also(slot: Tensor, found: Tensor) -> Tensor:
        return ops.logical_or(found, ops.equal(ids, ops.take(sets, slot, axis=1)[:, None]))

    none = ops.zeros((ops.shape(sets)[0], ids.shape[1]), "bool")
    return ops.fori_loop(0, sets.shape[1], also, none)

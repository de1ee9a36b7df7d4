"""Groups of similar examples of a batch, each of which shares its draws.

Shape letters: B batch, d features, G groups, k = ceil(B / G) examples in a group (fewer, or none,
in the last ones).
"""

from keras import ops

from softbench.common import Tensor
from softbench.ops import number_at_most

PASSES = 4  # of the power iteration that looks for a group's main direction
_FAR = 3e38


def check_splits(groups: int) -> None:
    """Raise a ValueError unless halving a batch again and again ends at `groups` parts."""
    if groups & (groups - 1):
        raise ValueError(
            "`share_draws` (or `groups`) must be a power of two: groups of similar examples are "
            f"halves of halves of the batch. Received: {groups}"
        )


def similar(hidden: Tensor, groups: int) -> Tensor:
    """The examples of hidden (B, d) in an order (B,) in which similar ones stand together.

    The batch is halved at the median of its main direction, each half at that of its own, until
    there are G parts of k: O(B d log G). What does not fill a part is the end of the last ones.
    """
    batch = ops.shape(hidden)[0]
    missing = groups * size_of(batch, groups) - batch
    order = ops.arange(batch + missing, dtype="int32")
    points = ops.cast(ops.concatenate([hidden, ops.zeros_like(hidden[:1])], axis=0), "float32")
    for depth in range(groups.bit_length() - 1):
        parts = ops.reshape(order, (2**depth, -1))
        inside = parts < batch
        own = ops.take(points, ops.minimum(parts, batch), axis=0)
        place = _along_main_direction(own, inside)
        place = ops.where(ops.isfinite(place), place, 0.0)  # a NaN would be sorted to the end
        place = ops.where(inside, place, _FAR)
        order = ops.take_along_axis(parts, ops.argsort(place, axis=-1), axis=-1)
    order = ops.reshape(order, (-1,))
    return order[:batch]  # places beyond the batch were sorted to the end


def _along_main_direction(points: Tensor, inside: Tensor) -> Tensor:
    """Of each set of points (P, S, d): their places (P, S) on the axis of the largest variance."""
    weight = ops.expand_dims(ops.cast(inside, "float32"), -1)
    count = ops.maximum(ops.sum(weight, axis=1, keepdims=True), 1.0)
    centred = points - ops.sum(points * weight, axis=1, keepdims=True) / count
    centred = centred * weight
    far = ops.argmax(ops.sum(ops.square(centred), axis=-1), axis=-1)
    place = ops.matmul(centred, ops.expand_dims(_rows_at(centred, far), -1))  # (P, S, 1)
    for _ in range(PASSES):
        direction = ops.matmul(ops.transpose(centred, (0, 2, 1)), place)
        length = ops.sqrt(ops.sum(ops.square(direction), axis=1, keepdims=True))
        place = ops.matmul(centred, direction / ops.where(length > 0, length, 1.0))
    return ops.squeeze(place, -1)


def _rows_at(sets: Tensor, position: Tensor) -> Tensor:
    """The point (P, d) at `position` (P,) of each set (P, S, d)."""
    index = ops.cast(position, "int32")[:, None, None]
    return ops.squeeze(ops.take_along_axis(sets, index, axis=1), 1)


def size_of(batch: int | Tensor, groups: int) -> int | Tensor:
    """k."""
    return (batch + groups - 1) // groups


def by_groups(x: Tensor, groups: int) -> Tensor:
    """x (B, ...) as (G, k, ...); what is missing repeats the last example."""
    batch = ops.shape(x)[0]
    size = size_of(batch, groups)
    places = ops.minimum(ops.arange(groups * size, dtype="int32"), batch - 1)
    return ops.reshape(ops.take(x, places, axis=0), (groups, size, *x.shape[1:]))


def of_examples(x: Tensor, batch: int | Tensor) -> Tensor:
    """x (G, ...) of groups as that of each example's group (B, ...)."""
    own = ops.arange(batch, dtype="int32") // size_of(batch, x.shape[0])
    return ops.take(x, own, axis=0)


def contains(sets: Tensor, ids: Tensor) -> Tensor:
    """Whether each of the ids (R, N) is in its row's set (R, T); bool (R, N)."""
    ordered = ops.sort(sets, axis=-1)
    place = ops.maximum(number_at_most(ordered, ids) - 1, 0)
    return ops.equal(ops.take_along_axis(ordered, place, axis=-1), ids)

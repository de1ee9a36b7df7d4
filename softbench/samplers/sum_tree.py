"""Draws from explicit masses by a descent over partial sums.

Masses (R, n) are summed in groups of 16, those sums again, until 16 are left. A draw goes down
with a fresh uniform number at each level, so its precision is float32's at every level instead
of float32's over the whole cumulative sum, and it reads 16 numbers a level: O(m log n) after
the O(n) sums. Few masses are one line where the backend has float64: a draw is one search among
running sums, as precise as the descent. Shape letters: R rows (the batch, or 1), n classes, m
samples.
"""

from typing import Any

import numpy as np
from keras import ops

from softbench.common import Tensor
from softbench.ops import FLOAT64, matmul_float32, number_at_most, random_uniform, take_rows

BRANCHING = 16
LINE = 1024  # masses of a row that are one line, at most


def partial_sums(masses: Tensor, widest: int = BRANCHING) -> list[Tensor]:
    """Levels (R, groups, 16), the top one first, with one group of `widest` at most."""
    size, levels = masses.shape[-1], []
    while size > widest:
        levels.append(_grouped(masses))
        masses = ops.sum(levels[-1], axis=-1)
        size = masses.shape[-1]
    top = _grouped(masses) if size <= BRANCHING else ops.expand_dims(masses, 1)
    return [top, *levels[::-1]]


def _grouped(masses: Tensor) -> Tensor:
    size = masses.shape[-1]
    groups = -(-size // BRANCHING)
    padded = ops.pad(masses, ((0, 0), (0, groups * BRANCHING - size)))
    return ops.reshape(padded, (-1, groups, BRANCHING))


def draw(masses: Tensor, num_sampled: int, seed: Any, widest: int = BRANCHING) -> Tensor:
    """`num_sampled` positions (R, m), each with probability mass / (sum of its row's masses).

    A position without mass is never drawn unless its row has none at all; that row's draws are
    its last position. `widest` is that of `partial_sums`, where the masses are no line.
    """
    size = masses.shape[-1]
    if not FLOAT64 or size > LINE:
        return descend(partial_sums(masses, widest), size, num_sampled, seed)
    uniform = random_uniform((ops.shape(masses)[0], num_sampled), seed.next(), "float64")
    return ops.minimum(_first_past(_line(masses), uniform), size - 1)


def _line(masses: Tensor) -> Tensor:
    """The running sums (R, n) of masses (R, n) in float64, filled up to a multiple of 16.

    Within 16 they are float32's, so that a position without mass adds nothing there; a group begins
    with the sum that the group before it ends with (where sums are made one after the other: on a
    GPU up to the last bit of a float64).
    """
    within = ops.cast(running_sums(_grouped(masses)), "float64")
    ends = ops.cumsum(within[:, :, -1], axis=1)
    before = ops.pad(ends[:, :-1], ((0, 0), (1, 0)))
    return ops.reshape(within + before[:, :, None], (-1, within.shape[1] * BRANCHING))


def descend(levels: list[Tensor], size: int, num_sampled: int, seed: Any) -> Tensor:
    """As `draw`, from the `partial_sums` of masses (R, size)."""
    rows = ops.shape(levels[0])[0]
    uniform = random_uniform((len(levels), rows, num_sampled), seed.next())
    # One group: all draws look at it.
    position = _first_past(running_sums(levels[0])[:, 0], uniform[0])
    for depth, level in enumerate(levels[1:], 1):
        # A row without mass comes to the last position of the padding, which is no group.
        position = ops.minimum(position, level.shape[1] - 1)
        if level.shape[1] <= num_sampled:  # fewer groups than draws
            running = take_entries(running_sums(level), position)
        else:
            running = running_sums(take_entries(level, position))
        position = position * BRANCHING + _child(running, uniform[depth])
    return ops.minimum(position, size - 1)


def running_sums(masses: Tensor) -> Tensor:
    """The running sums (..., K) of masses (..., K), in float32: a product with a triangle.

    All sums add up in the same order, so that of a position without mass equals the one before it.
    Columns past a multiple of 16 may be added up in another: K is filled up with zeros.
    """
    size = masses.shape[-1]
    wide = -(-size // BRANCHING) * BRANCHING
    flat = ops.pad(ops.reshape(masses, (-1, size)), ((0, 0), (0, wide - size)))
    running = matmul_float32(flat, np.triu(np.ones((wide, wide), "float32")))
    return ops.reshape(running[:, :size], ops.shape(masses))


def _first_past(running: Tensor, uniform: Tensor) -> Tensor:
    """The position whose share of the masses holds each uniform number (R, N): int32 (R, N).

    It is the first whose running sum (R, K) exceeds the number, so it has a mass; without any
    mass, it is the last position.
    """
    past = number_at_most(running, uniform * running[:, -1:])
    return ops.minimum(past, running.shape[-1] - 1)


def _child(running: Tensor, uniform: Tensor) -> Tensor:
    """As `_first_past`, of running sums (R, m, K) for each number (R, m)."""
    flat = ops.reshape(running, (-1, running.shape[-1]))
    child = _first_past(flat, ops.reshape(uniform, (-1, 1)))
    return ops.reshape(child, ops.shape(uniform))


def choose(children: Tensor, uniform: Tensor) -> Tensor:
    """The child of each (R, m) whose share of the masses (R, m, K) holds a uniform number (R, m).

    A child without mass is not chosen unless no other has any; then it is the last.
    """
    return _child(running_sums(children), uniform)


def choose_with_share(children: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """`choose`, and the child's share of the sum, float32 (R, m)."""
    child = choose(children, uniform)
    total = ops.sum(children, axis=-1)
    order = np.arange(children.shape[-1], dtype="int32")
    chosen = ops.where(ops.equal(order, ops.expand_dims(child, -1)), children, 0.0)
    return child, ops.sum(chosen, axis=-1) / ops.where(total > 0, total, 1.0)


def take_entries(table: Tensor, position: Tensor) -> Tensor:
    """Entries (R, m, ...) of a table (R, K, ...) at `position` (R, m)."""
    size, rest = table.shape[1], table.shape[2:]
    first = ops.expand_dims(ops.arange(ops.shape(table)[0], dtype="int32") * size, -1)
    return take_rows(ops.reshape(table, (-1, *rest)), position + first)

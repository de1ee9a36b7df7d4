"""Draws from explicit masses by a descent over partial sums.

Masses (R, n) are summed in groups of 16, those sums again, until 16 are left. A draw goes down
with a fresh uniform number at each level, so its precision is float32's at every level instead
of float32's over the whole cumulative sum, and it reads 16 numbers a level: O(m log n) after
the O(n) sums. Shape letters: R rows (the batch, or 1), n classes, m samples.
"""

from typing import Any

import keras
import numpy as np
from keras import ops

from softbench.common import Tensor

BRANCHING = 16


def partial_sums(masses: Tensor) -> list[Tensor]:
    """Levels (R, groups, 16), the top one first, with one group."""
    levels = [_grouped(masses)]
    while levels[-1].shape[1] > 1:
        levels.append(_grouped(ops.sum(levels[-1], axis=-1)))
    return levels[::-1]


def _grouped(masses: Tensor) -> Tensor:
    size = masses.shape[-1]
    groups = -(-size // BRANCHING)
    padded = ops.pad(masses, ((0, 0), (0, groups * BRANCHING - size)))
    return ops.reshape(padded, (-1, groups, BRANCHING))


def draw(masses: Tensor, num_sampled: int, seed: Any) -> Tensor:
    """`num_sampled` positions (R, m), each with probability mass / (sum of its row's masses).

    A position without mass is never drawn unless its row has none at all; that row's draws are
    its last position.
    """
    return descend(partial_sums(masses), masses.shape[-1], num_sampled, seed)


def descend(levels: list[Tensor], size: int, num_sampled: int, seed: Any) -> Tensor:
    """As `draw`, from the `partial_sums` of masses (R, size)."""
    rows = ops.shape(levels[0])[0]
    uniform = keras.random.uniform((len(levels), rows, num_sampled), seed=seed)
    position = None
    for depth, level in enumerate(levels):
        if position is None:  # one group: all draws look at it
            groups = ops.repeat(level, num_sampled, axis=1)
        else:
            groups = take_entries(level, position)
        child = choose(groups, uniform[depth])[0]
        position = child if position is None else position * BRANCHING + child
    return ops.minimum(position, size - 1)


def choose(children: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """The child whose share of the masses holds a uniform number, and that share.

    The first child with a mass whose running sum exceeds the number; the running sums are one
    product with a triangular matrix, in float32. The mass is asked for by itself: whatever the
    rounding, a child without mass is not chosen. Without any mass, it is the last child.

    Args:
        children: masses (R, m, K).
        uniform: (R, m), in [0, 1).

    Returns:
        The child, int32 (R, m), and its share of the sum, float32 (R, m).
    """
    size = children.shape[-1]
    order = np.arange(size, dtype="int32")
    running = ops.matmul(children, np.triu(np.ones((size, size), "float32")))
    total = running[..., -1]
    past = ops.cast(running <= ops.expand_dims(uniform * total, -1), "int32")
    rank = ops.where(children > 0, past * size + order, 3 * size - 1)
    child = ops.mod(ops.min(rank, axis=-1), size)
    chosen = ops.where(ops.equal(order, ops.expand_dims(child, -1)), children, 0.0)
    return child, ops.sum(chosen, axis=-1) / ops.where(total > 0, total, 1.0)


def take_entries(table: Tensor, position: Tensor) -> Tensor:
    """Entries (R, m, ...) of a table (R, K, ...) at `position` (R, m)."""
    size, rest = table.shape[1], table.shape[2:]
    first = ops.expand_dims(ops.arange(ops.shape(table)[0], dtype="int32") * size, -1)
    return ops.take(ops.reshape(table, (-1, *rest)), position + first, axis=0)

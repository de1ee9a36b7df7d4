"""Draws from explicit masses by a descent over partial sums.

Masses (R, n) are summed in groups of 16, those sums again, until 16 are left. A draw goes down
with a fresh uniform number at each level, so its precision is float32's at every level instead
of float32's over the whole cumulative sum, and it reads 16 numbers a level: O(m log n) after
the O(n) sums. Shape letters: R rows (the batch, or 1), n classes, m samples.
"""

import functools
import operator
from typing import Any

import keras
from keras import ops

Tensor = Any

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
    levels = partial_sums(masses)
    rows = ops.shape(masses)[0]
    uniform = keras.random.uniform((len(levels), rows, num_sampled), seed=seed)
    position = ops.zeros((rows, num_sampled), dtype="int32")
    for depth, level in enumerate(levels):
        child = choose(_take_groups(level, position), uniform[depth])
        position = position * BRANCHING + child
    return ops.minimum(position, masses.shape[-1] - 1)


def choose(children: Tensor, uniform: Tensor) -> Tensor:
    """The child (R, m) whose share of the masses (R, m, K) holds `uniform` (R, m).

    The sums run in order, term by term: a child without mass then has a share of exactly no
    width. A parallel prefix sum adds in another order at each place and can give it one.
    """
    masses = [children[..., i] for i in range(children.shape[-1])]
    target = uniform * functools.reduce(operator.add, masses)
    running, child = ops.zeros_like(target), ops.zeros_like(target, dtype="int32")
    for mass in masses[:-1]:
        running = running + mass
        child = child + ops.cast(running <= target, "int32")
    return child


def _take_groups(level: Tensor, position: Tensor) -> Tensor:
    """The groups at `position` (R, m) of a level (R, groups, 16): (R, m, 16)."""
    groups = level.shape[1]
    first = ops.expand_dims(ops.arange(ops.shape(level)[0], dtype="int32") * groups, -1)
    return ops.take(ops.reshape(level, (-1, BRANCHING)), position + first, axis=0)

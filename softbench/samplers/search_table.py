"""Where a number falls in a sorted table, 16 entries at a time.

Level 0 is the table in groups of 16; each further level holds the first entry of every group
below, until one group is left. A search reads one group, one cache line, at each level: log16(n)
of them in place of log2(n) single entries, in a quarter of the operations.
"""

from collections.abc import Callable

import keras
import numpy as np
from keras import ops

from softbench.common import Tensor
from softbench.ops import gather_rows

GROUP = 16


def search_levels(
    table: np.ndarray, filler: int, add: Callable[[str, np.ndarray], keras.Variable]
) -> list[keras.Variable]:
    """Variables (groups, 16) of a non-decreasing table, level 0 first, made by `add(name, value)`.

    The last group of a level is filled up with `filler`, which must exceed whatever is searched.
    """
    levels = []
    while not levels or levels[-1].shape[0] > 1:
        groups = -(-len(table) // GROUP)
        padded = np.full(groups * GROUP, filler, table.dtype)
        padded[: len(table)] = table
        levels.append(add(f"level_{len(levels)}", padded.reshape(groups, GROUP)))
        table = padded[::GROUP]
    return levels


def search(levels: list[keras.Variable], values: Tensor) -> Tensor:
    """The last position p with table[p] <= value, elementwise; table[0] must be <= every value."""
    position = ops.zeros_like(values, dtype="int32")
    values = ops.expand_dims(values, -1)
    for level in reversed(levels):
        below = ops.cast(gather_rows(level, position) <= values, "int32")
        position = position * GROUP + ops.sum(below, axis=-1) - 1
    return position

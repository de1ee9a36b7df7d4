"""The draws of a step in the shapes that a head needs.

Shape letters: B batch, G groups, m samples.
"""

from typing import Any

import keras
from keras import ops

from softbench.common import Tensor
from softbench.heads import inputs
from softbench.samplers import Samples
from softbench.samplers.groups import of_examples


def in_order(arrays: Any, order: Tensor) -> Any:
    """Arrays (B, ...), or None, with the examples in another order (B,)."""
    take = lambda x: None if x is None else ops.take(x, order, axis=0)  # noqa: E731
    return keras.tree.map_structure(take, arrays)


def joined(parts: list[Tensor]) -> Tensor:
    """Blocks side by side along the last axis."""
    return parts[0] if len(parts) == 1 else ops.concatenate(parts, axis=-1)


def of_all_examples(draw: Samples, hidden: Tensor, groups: int | None) -> Samples:
    """The draws of all blocks as one, (B, m); those of a single block (m,) as they are."""
    batch, blocks = ops.shape(hidden)[0], draw.blocks()

    def own(x: Tensor) -> Tensor:
        if len(x.shape) == 2:
            return of_examples(x, batch) if _is_of_groups(x, groups) else x
        return x if len(blocks) == 1 else ops.broadcast_to(x, (batch, x.shape[0]))

    ids, count = (joined([own(x) for x in each]) for each in zip(*blocks, strict=True))
    return Samples(ids, count, draw.true_log_expected_count)


def _is_of_groups(x: Tensor, groups: int | None) -> bool:
    """Whether x (G, m) has a row for each group (as many as examples: then it is the same)."""
    return groups is not None and x.shape[0] == groups


def of_present(draw: Samples, weight: Tensor, groups: int | None) -> Samples:
    """The draws, with those of the first example that counts for examples of weight 0."""

    def own(x: Tensor) -> Tensor:
        if len(x.shape) == 1 or _is_of_groups(x, groups):
            return x
        return inputs.from_present(x, weight)

    ids, count, true = draw
    ids, count = keras.tree.map_structure(own, (ids, count))
    return Samples(ids, count, None if true is None else inputs.from_present(true, weight))

"""The components of a set of draws, as a head scores them.

Shape letters: B batch, P labels of an example, R rows of draws, m samples.
"""

from typing import Any, NamedTuple

import keras
from keras import ops

from softbench.common import Tensor
from softbench.groups import has_row_each, of_every_example, of_examples
from softbench.samplers import Samples
from softbench.targets import from_present


class Compared(NamedTuple):
    """What a set of draws has for each example, its components side by side.

    Attributes:
        ids: int32 (B, m), or (1, m) of a single component that the batch shares.
        log_expected_count, true_log_expected_count: as of `Samples`.
        num_drawn: m without the negatives that the head was called with.
    """

    ids: Tensor
    log_expected_count: Tensor
    true_log_expected_count: Tensor | None
    num_drawn: int | Tensor


def in_order(arrays: Any, order: Tensor) -> Any:
    """Structures of arrays (B, ...), or None, with the examples in another order (B,)."""
    take = lambda x: None if x is None else ops.take(x, order, axis=0)  # noqa: E731
    return keras.tree.map_structure(take, arrays)


def side_by_side(arrays: list[Tensor]) -> Tensor:
    return arrays[0] if len(arrays) == 1 else ops.concatenate(arrays, axis=-1)


def joined(parts: list[Samples], hidden: Tensor, num_negatives: int = 0) -> Compared:
    """The components of a set as one; `num_negatives` of its columns are no draws."""
    spread = of_examples if len(parts) == 1 else of_every_example
    ids = side_by_side([spread(part.ids, hidden) for part in parts])
    count = side_by_side([spread(part.log_expected_count, hidden) for part in parts])
    num_drawn = ops.shape(ids)[-1] - num_negatives
    return Compared(ids, count, parts[0].true_log_expected_count, num_drawn)


def with_flat_count(part: Samples) -> Samples:
    """True counts (B, 1) as (B,)."""
    count: Any = part.true_log_expected_count
    return part._replace(true_log_expected_count=count[:, 0])


def of_present(part: Samples, features: Tensor, weight: Tensor) -> Samples:
    """A component, with the draws of the first example that counts for examples of weight 0."""
    ids, count, true = part
    ids = from_present(ids, weight) if has_row_each(ids, features) else ids
    count = from_present(count, weight) if has_row_each(count, features) else count
    return Samples(ids, count, None if true is None else from_present(true, weight))

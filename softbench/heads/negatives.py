"""Negatives that a head is called with, next to those that its sampler draws.

Shape letters: B batch, P labels of an example, R rows of draws, m samples, k negatives.
"""

from typing import Any, NamedTuple

import numpy as np
from keras import ops

from softbench.common import Tensor
from softbench.groups import contains, of_every_example
from softbench.labels import check_integers, check_values, fits, safe_ids
from softbench.ops import is_concrete
from softbench.samplers import Samples
from softbench.targets import PADDING, Targets, also_valid


class Negatives(NamedTuple):
    """Negatives of every example.

    Attributes:
        ids: int32 (B, k), each class once; -1 where a slot holds none.
        log_count: float32 (B, k), what they count for, as log E[count] of a draw does.
    """

    ids: Tensor
    log_count: Tensor


def check_shapes(ids: Any, log_count: Any, hidden: Tensor) -> None:
    """Raise a ValueError unless `negatives` are integers (..., k) for hidden vectors (..., d)."""
    if ids is None:
        if log_count is not None:
            raise ValueError(
                "`negatives_log_count` must be left out without `negatives`. "
                f"Received shape: {tuple(log_count.shape)}"
            )
        return
    check_integers("negatives", ids)
    shape, leading = tuple(ids.shape), tuple(hidden.shape[:-1])
    if not (len(shape) == len(leading) + 1 and shape[-1] and fits(shape[:-1], leading)):
        raise ValueError(
            f"`negatives` must have the leading dimensions of `hidden`, {leading}, and a fixed "
            f"number of ids for each. Received shape: {shape}"
        )
    if log_count is not None and not fits(tuple(log_count.shape), shape):
        raise ValueError(
            f"`negatives_log_count` must have the shape of `negatives`, {shape}. "
            f"Received shape: {tuple(log_count.shape)}"
        )


def flat(
    ids: Any, log_count: Any, hidden: Tensor, targets: Targets, units: int
) -> tuple[Negatives, Targets]:
    """Negatives (..., k) as `Negatives`, and the targets: an id out of range makes one invalid.

    Of duplicates the first counts. Examples that do not count have the negatives of one that does.

    Raises:
        ValueError: if shapes do not fit, or ids or counts that can be seen are not valid.
    """
    check_shapes(ids, log_count, hidden)
    size = ids.shape[-1]
    ids = ops.reshape(ids, (-1, size))
    check_values("negatives", ids, units, targets.weight, first=PADDING)
    safe, valid = safe_ids(ids, units, first=PADDING)
    if not is_concrete(ids) or targets.weight is not None:
        targets = also_valid(targets, ops.all(valid, axis=-1))
    if log_count is None:
        count = ops.zeros_like(safe, dtype="float32")
    else:
        count = ops.reshape(ops.cast(log_count, "float32"), (-1, size))
        _check_counts(safe, count)
    order = ops.argsort(safe, axis=-1)  # stable
    safe, count = (ops.take_along_axis(x, order, axis=-1) for x in (safe, count))
    again = ops.equal(safe[:, 1:], safe[:, :-1])
    again = ops.concatenate([ops.zeros_like(safe[:, :1], dtype="bool"), again], axis=-1)
    return Negatives(ops.where(again, PADDING, safe), count), targets


def _check_counts(ids: Tensor, log_count: Tensor) -> None:
    """Raise a ValueError unless the counts of ids that are there are finite, if concrete."""
    if not (is_concrete(ids) and is_concrete(log_count)):
        return
    values = np.asarray(ops.convert_to_numpy(log_count))[np.asarray(ops.convert_to_numpy(ids)) >= 0]
    if not np.isfinite(values).all():
        raise ValueError(
            "`negatives_log_count` must be finite where `negatives` are not -1. Received "
            f"{int((~np.isfinite(values)).sum())} values that are not"
        )


def with_negatives(
    components: list[Samples], negatives: Negatives, labels: Tensor
) -> list[Samples]:
    """The components of a set of draws, and the negatives as one more.

    A draw that is one of its example's negatives does not count. A label that is one has its count
    as the expected count: given the negatives, it is how often the class is there.

    Args:
        components: of the set.
        negatives: of every example.
        labels: int32 (B,), or (B, P).
    """
    ids, log_count = negatives
    exists = ids >= 0
    labels = ops.expand_dims(labels, -1) if len(labels.shape) == 1 else labels
    true = components[0].true_log_expected_count
    if true is not None:
        same = ops.equal(ops.expand_dims(labels, -1), ops.expand_dims(ids, 1))  # (B, P, k)
        count = ops.max(ops.where(same, ops.expand_dims(log_count, 1), -float("inf")), axis=-1)
        is_negative = ops.reshape(ops.any(same, axis=-1), ops.shape(true))
        true = ops.where(is_negative, ops.reshape(count, ops.shape(true)), true)

    def of_others(drawn: Samples) -> Samples:
        again = contains(ids, of_every_example(drawn.ids, ids))
        count = of_every_example(drawn.log_expected_count, ids)
        return Samples(drawn.ids, ops.where(again, -float("inf"), count), true)

    # An empty slot looks up a row that is looked up anyway.
    slots = ops.where(exists, ids, labels[:, :1])
    counts = ops.where(exists, log_count, -float("inf"))
    return [*map(of_others, components), Samples(slots, counts, true)]

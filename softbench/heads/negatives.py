"""Negatives that a head is called with, next to those that its sampler draws, and what is none.

Shape letters: B batch, P labels of an example, R rows of draws, m samples, k negatives, E excluded.
"""

from typing import Any, NamedTuple

import numpy as np
from keras import ops

from softbench.common import Tensor
from softbench.groups import of_every_example, of_own_set
from softbench.labels import check_integers, check_values, fits, safe_ids
from softbench.ops import is_concrete
from softbench.samplers import Samples
from softbench.targets import PADDING, Targets, also_valid

NAMES = ("negatives", "negatives_log_count", "excluded")  # of what a head is called with


class Negatives(NamedTuple):
    """Negatives of every example, and what it is not compared with.

    Attributes:
        ids: int32 (B, k), each class once; -1 where a slot holds none. None: there are none.
        log_count: float32 (B, k), what they count for, as log E[count] of a draw does; or None.
        excluded: int32 (B, E), -1 where a slot holds none; or None.
    """

    ids: Tensor | None
    log_count: Tensor | None
    excluded: Tensor | None


def check_shapes(hidden: Tensor, ids: Any = None, log_count: Any = None, own: Any = None) -> None:
    """Raise a ValueError unless `negatives` are integers (..., k) for hidden vectors (..., d).

    So must be `excluded`, the last argument.
    """
    for name, x in (("negatives", ids), ("excluded", own)):
        if x is None:
            continue
        check_integers(name, x)
        shape, leading = tuple(x.shape), tuple(hidden.shape[:-1])
        if not (len(shape) == len(leading) + 1 and shape[-1] and fits(shape[:-1], leading)):
            raise ValueError(
                f"`{name}` must have the leading dimensions of `hidden`, {leading}, and a fixed "
                f"number of ids for each. Received shape: {shape}"
            )
    if log_count is None:
        return
    if ids is None:
        raise ValueError(
            "`negatives_log_count` must be left out without `negatives`. "
            f"Received shape: {tuple(log_count.shape)}"
        )
    if not fits(tuple(log_count.shape), tuple(ids.shape)):
        raise ValueError(
            f"`negatives_log_count` must have the shape of `negatives`, {tuple(ids.shape)}. "
            f"Received shape: {tuple(log_count.shape)}"
        )


def flat(
    hidden: Tensor, targets: Targets, units: int, ids: Any, log_count: Any, excluded: Any
) -> tuple[Negatives, Targets]:
    """What a head is called with as `Negatives`, and the targets, of which ids may be invalid.

    Of duplicates the first counts. Examples that do not count have the negatives of one that does.

    Raises:
        ValueError: if shapes do not fit, or ids or counts that can be seen are not valid.
    """
    check_shapes(hidden, ids, log_count, excluded)
    count = None
    if excluded is not None:
        excluded, targets = _safe("excluded", excluded, targets, units)
    if ids is not None:
        ids, targets = _safe("negatives", ids, targets, units)
        ids, count = _once(ids, log_count)
    return Negatives(ids, count, excluded), targets


def _safe(name: str, ids: Any, targets: Targets, units: int) -> tuple[Tensor, Targets]:
    """Ids (..., k) as (B, k), and the targets: an id out of range makes one invalid."""
    ids = ops.reshape(ids, (-1, ids.shape[-1]))
    check_values(name, ids, units, targets.weight, first=PADDING)
    safe, valid = safe_ids(ids, units, first=PADDING)
    if not is_concrete(ids) or targets.weight is not None:
        targets = also_valid(targets, ops.all(valid, axis=-1))
    return safe, targets


def _once(safe: Tensor, log_count: Any) -> tuple[Tensor, Tensor]:
    """Ids (B, k), -1 for those that are there again, and their counts (B, k)."""
    size = safe.shape[-1]
    if log_count is None:
        count = ops.zeros_like(safe, dtype="float32")
    else:
        count = ops.reshape(ops.cast(log_count, "float32"), (-1, size))
        _check_counts(safe, count)
    order = ops.argsort(safe, axis=-1)  # stable
    safe, count = (ops.take_along_axis(x, order, axis=-1) for x in (safe, count))
    again = ops.equal(safe[:, 1:], safe[:, :-1])
    again = ops.concatenate([ops.zeros_like(safe[:, :1], dtype="bool"), again], axis=-1)
    return ops.where(again, PADDING, safe), count


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
    as the expected count: given the negatives, it is how often the class is there. No class counts
    that is excluded, but as the label.

    Args:
        components: of the set.
        negatives: of every example.
        labels: int32 (B,), or (B, P).
    """
    if negatives.ids is not None:
        components = _beside(components, negatives.ids, negatives.log_count, labels)
    if negatives.excluded is not None:
        components = [_without(part, negatives.excluded) for part in components]
    return components


def _without(drawn: Samples, ids: Tensor) -> Samples:
    """A component (R, m) in which those of an example's `ids` (B, k) do not count."""
    again = of_own_set(drawn.ids, ids)
    count = of_every_example(drawn.log_expected_count, ids)
    return drawn._replace(log_expected_count=ops.where(again, -float("inf"), count))


def _beside(
    components: list[Samples], ids: Tensor, log_count: Tensor, labels: Tensor
) -> list[Samples]:
    """The components, and negatives (B, k) as one more."""
    exists = ids >= 0
    labels = ops.expand_dims(labels, -1) if len(labels.shape) == 1 else labels
    true = components[0].true_log_expected_count
    if true is not None:
        same = ops.equal(ops.expand_dims(labels, -1), ops.expand_dims(ids, 1))  # (B, P, k)
        count = ops.max(ops.where(same, ops.expand_dims(log_count, 1), -float("inf")), axis=-1)
        is_negative = ops.reshape(ops.any(same, axis=-1), ops.shape(true))
        true = ops.where(is_negative, ops.reshape(count, ops.shape(true)), true)

    # An empty slot looks up a row that is looked up anyway.
    slots = ops.where(exists, ids, labels[:, :1])
    counts = ops.where(exists, log_count, -float("inf"))
    others = [_without(part, ids)._replace(true_log_expected_count=true) for part in components]
    return [*others, Samples(slots, counts, true)]

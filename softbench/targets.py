"""What the examples of a batch are compared with: labels, weights, masks and padding as one value.

`make_targets` is the only way from what a user gives to what heads and samplers see. The rule for
the values of labels and weights is that of `softbench.labels`.

Shape letters: B batch (all leading dimensions), d features, n classes, P labels of an example.
"""

from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from softbench.common import Tensor
from softbench.labels import check_integers, check_values, check_weights, fits, is_any_of, safe_ids
from softbench.ops import is_concrete, random_uniform

PADDING = -1  # the label of a slot that holds none, where an example has several


class Targets(NamedTuple):
    """Labels and weights of a batch.

    Every label is in [0, n): one that is absent or out of range has been replaced by one that
    counts, which is looked up anyway.

    Attributes:
        labels: int32 (B,), or (B, P) where an example has several.
        weight: float32 (B,), 0 where an example is not there; None: all are there.
        label_weight: float32 (B, P) of several labels, 0 where a slot holds none; else None.
        valid: bool (B,), False where a label that is there is out of range; None: all are valid.
    """

    labels: Tensor
    weight: Tensor | None = None
    label_weight: Tensor | None = None
    valid: Tensor | None = None

    @property
    def counts(self) -> Tensor | None:
        """The weights (B,) of the mean: 0 where an example is absent or its label invalid.

        None says that all examples count equally.
        """
        if self.valid is None:
            return self.weight
        weight = 1.0 if self.weight is None else self.weight
        return ops.where(self.valid, weight, 0.0)

    def present(self) -> Tensor:
        """Which examples count, bool (B,)."""
        counts = self.counts
        if counts is None:
            return ops.ones(ops.shape(self.labels)[:1], "bool")
        return ops.not_equal(counts, 0)


def make_targets(
    hidden: Tensor,
    labels: Any,
    sample_weight: Any = None,
    masks: tuple = (),
    *,
    units: int,
    padding: tuple[int, ...] = (),
    several: bool = False,
) -> Targets:
    """The targets of hidden vectors (..., d).

    Args:
        labels: integers (...), also as (..., 1); of `several` (..., P).
        sample_weight: (...), or None; of `several` also (..., P), of the labels.
        masks: bool (...) of Keras, or None; an example for which one is False is not there.
        units: n.
        padding: labels that say that an example, or of `several` a slot, is not there.

    Raises:
        ValueError: if shapes do not fit, labels are not integers or, where they can be seen, not in
            [0, n), or a weight that can be seen is negative or not finite.
    """
    check_weights(sample_weight)
    if several:
        check_ids("labels", labels, hidden, several=True)
        weight, label_weight = _several_weights(labels, sample_weight, masks, padding)
        check_labels(labels, units, padding, label_weight)
        return _flat_several(labels, weight, label_weight, units)
    single = without_last_one(labels, hidden)
    if single is not labels:
        sample_weight, *masks = (
            x if x is None else without_last_one(x, hidden) for x in (sample_weight, *masks)
        )
    check_ids("labels", single, hidden)
    _check_shape("sample_weight", sample_weight, hidden)
    if padding:
        masks = (*masks, ~is_any_of(single, padding))
    weight = _with_masks(sample_weight, hidden, masks)
    check_labels(single, units, padding, weight)
    safe, valid = safe_ids(ops.reshape(single, (-1,)), units)
    if weight is not None:
        weight = ops.reshape(ops.cast(weight, "float32"), (-1,))
    return _looked_up(Targets(safe, weight, None, valid), is_concrete(single))


def _looked_up(targets: Targets, checked: bool) -> Targets:
    """Labels that do not count replaced; without `valid` where the values were `checked`."""
    if checked and targets.weight is None:
        return targets._replace(valid=None)
    return targets._replace(labels=from_present(targets.labels, targets.counts))


def also_valid(targets: Targets, valid: Tensor) -> Targets:
    """The targets, of which only those count that are `valid` (B,) too."""
    if targets.valid is not None:
        valid = ops.logical_and(targets.valid, valid)
    return _looked_up(targets._replace(valid=valid), False)


def check_ids(name: str, ids: Tensor, hidden: Tensor, several: bool = False) -> None:
    """Raise a ValueError unless ids are integers, one (or `several`) for each vector of hidden."""
    check_integers(name, ids)
    shape, leading = tuple(ids.shape), tuple(hidden.shape[:-1])
    if not several and not fits(shape, leading):
        raise ValueError(
            f"`{name}` must have the shape of `hidden` without its last dimension, {leading}. "
            f"Received shape: {shape}"
        )
    if several and not (len(shape) == len(leading) + 1 and shape[-1] and fits(shape[:-1], leading)):
        raise ValueError(
            f"`{name}` must have the leading dimensions of `hidden`, {leading}, and a fixed number "
            f"of labels for each, because `multi_label` is given. Received shape: {shape}"
        )


def check_labels(labels: Any, units: int, padding: tuple[int, ...], weight: Any = None) -> None:
    """Raise a ValueError unless labels are integers and, where they can be seen, in [0, n).

    With weights of their shape, labels of weight 0 may be anything. Padding may be there.
    """
    if padding and is_concrete(labels):
        values = ops.convert_to_numpy(labels) if ops.is_tensor(labels) else np.asarray(labels)
        labels = np.where(is_any_of(values, padding), values.dtype.type(0), values)
    check_values("labels", labels, units, weight)


def without_last_one(x: Any, hidden: Tensor) -> Any:
    """`x` (..., 1), one entry for each vector of hidden (..., d), as (...); others as they are."""
    if len(x.shape) == len(hidden.shape) and x.shape[-1] == 1:
        return x[..., 0]
    return x


def _check_shape(name: str, weight: Any, hidden: Tensor) -> None:
    if weight is None:
        return
    received, expected = tuple(weight.shape), tuple(hidden.shape[:-1])
    if not fits(received, expected):
        raise ValueError(
            f"`{name}` must have the shape of `labels`, {expected}. Received shape: {received}"
        )


def _with_masks(sample_weight: Any, hidden: Tensor, masks: tuple | list) -> Tensor | None:
    """`sample_weight` (...), or ones, and 0 where a mask (...) is False; None without any."""
    for mask in masks:
        if mask is None:
            continue
        received, expected = tuple(mask.shape), tuple(hidden.shape[:-1])
        if not fits(received, expected):
            raise ValueError(
                "The Keras mask of `hidden` or `labels` must have the shape of `labels`, "
                f"{expected}. Received shape: {received}"
            )
        weight = 1.0 if sample_weight is None else ops.cast(sample_weight, "float32")
        sample_weight = ops.where(ops.cast(mask, "bool"), weight, 0.0)
    return sample_weight


def _several_weights(
    labels: Any, sample_weight: Any, masks: tuple, padding: tuple[int, ...]
) -> tuple[Tensor, Tensor]:
    """Weights of the examples (...) and of their labels (..., P).

    A label of weight 0 is not there, and an example without labels has weight 0.
    """
    shape = tuple(labels.shape)
    of_labels = ops.where(is_any_of(labels, padding), 0.0, 1.0)
    of_examples = ops.cast(ops.any(ops.not_equal(of_labels, 0), axis=-1), "float32")
    names = ("sample_weight", *["Keras mask"] * len(masks))
    for name, x in zip(names, (sample_weight, *masks), strict=True):
        if x is None:
            continue
        received = tuple(x.shape)
        if fits(received, shape):
            of_labels = _product(of_labels, x)
        elif fits(received, shape[:-1]):
            of_examples = _product(of_examples, x)
        else:
            raise ValueError(
                f"`{name}` must have the shape of `labels`, {shape}, or that of the examples, "
                f"{shape[:-1]}. Received shape: {received}"
            )
    exists = ops.any(ops.not_equal(of_labels, 0), axis=-1)
    of_examples = ops.where(exists, of_examples, 0.0)
    counts = ops.expand_dims(ops.not_equal(of_examples, 0), -1)
    return of_examples, ops.where(counts, of_labels, 0.0)


def _product(weight: Tensor, x: Tensor) -> Tensor:
    """weight * x; 0 where the weight is, whatever x is."""
    return ops.where(ops.not_equal(weight, 0), weight * ops.cast(x, "float32"), 0.0)


def _flat_several(labels: Any, weight: Tensor, label_weight: Tensor, units: int) -> Targets:
    """A slot that holds no label has the first label of its example, which is looked up anyway."""
    size = labels.shape[-1]
    label_weight = ops.reshape(ops.cast(label_weight, "float32"), (-1, size))
    safe, in_range = safe_ids(ops.reshape(labels, (-1, size)), units)
    exists = ops.not_equal(label_weight, 0)
    valid = ops.all(ops.logical_or(in_range, ops.logical_not(exists)), axis=-1)
    first = ops.expand_dims(ops.argmax(ops.cast(exists, "int32"), axis=-1), -1)
    filler = ops.take_along_axis(safe, ops.cast(first, "int32"), axis=-1)
    labels, weight = ops.where(exists, safe, filler), ops.reshape(weight, (-1,))
    return _looked_up(Targets(labels, weight, label_weight, valid), False)


def from_present(x: Tensor, weight: Tensor | None) -> Tensor:
    """`x` (B, ...), where examples of weight 0 have the entries of the first one that counts.

    So that what they look up is looked up anyway, and no row moves because of them.
    """
    if weight is None:
        return x
    present = ops.not_equal(weight, 0)
    first = ops.take(x, ops.argmax(ops.cast(present, "int32")), axis=0)
    return ops.where(_like(present, x), x, first)


def spread_present(x: Tensor, weight: Tensor) -> Tensor:
    """`x` (B, ...), where examples of weight 0 have the entries of those that count, in turn.

    So that what is computed of the batch as a whole is of these alone.
    """
    present = ops.not_equal(weight, 0)
    order = ops.argsort(ops.where(present, 0, 1))
    count = ops.maximum(ops.sum(ops.cast(present, "int32")), 1)
    turn = ops.arange(ops.shape(x)[0], dtype="int32") % count
    return ops.where(_like(present, x), x, ops.take(x, ops.take(order, turn), axis=0))


def without_absent_nan(hidden: Tensor, weight: Tensor | None) -> Tensor:
    """`hidden` (B, d) or features (B, v), with 0 for what is not finite in examples of weight 0.

    0 * NaN is NaN: a loss of 0 alone would not keep it from the gradient of the rows.
    """
    if weight is None:
        return hidden
    kept = ops.logical_or(ops.expand_dims(ops.not_equal(weight, 0), -1), ops.isfinite(hidden))
    return ops.where(kept, hidden, ops.zeros_like(hidden))


def _like(present: Tensor, x: Tensor) -> Tensor:
    """`present` (B,) that broadcasts against x (B, ...)."""
    return ops.reshape(present, (-1,) + (1,) * (len(x.shape) - 1))


def one_label(targets: Targets, seed: keras.random.SeedGenerator) -> Targets:
    """Of several labels (B, P) one of each example, with probabilities as their weights."""
    labels, weight = targets.labels, targets.label_weight
    if labels.shape[1] > 1:
        uniform = random_uniform(ops.shape(labels), seed.next())
        exists = ops.not_equal(weight, 0)
        keys = ops.log(uniform) / ops.where(exists, weight, 1.0)
        position = ops.argmax(ops.where(exists, keys, -float("inf")), axis=-1)
        labels = ops.take_along_axis(labels, ops.cast(position, "int32")[:, None], axis=-1)
    return targets._replace(labels=labels[:, 0], label_weight=None)


def reduced(losses: Tensor, label_weight: Tensor, reduction: str | None) -> Tensor:
    """The weighted mean, or sum, (B,) of the losses (B, P) of an example's labels."""
    exists = ops.not_equal(label_weight, 0)
    total = ops.sum(ops.where(exists, losses * label_weight, 0.0), axis=-1)
    if reduction == "sum":
        return total
    weight = ops.sum(label_weight, axis=-1)
    return total / ops.where(weight > 0, weight, 1.0)

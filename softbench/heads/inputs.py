"""Checks of what a head is called with, and the mean of its losses."""

from typing import Any

from keras import ops

from softbench.common import Tensor
from softbench.labels import check_integers, fits
from softbench.ops import mean_of_replicas, replicas


def check_hidden(hidden: Tensor, width: int) -> None:
    """Raise a ValueError unless hidden is (..., width) with a batch dimension."""
    if len(hidden.shape) < 2 or hidden.shape[-1] != width:
        raise ValueError(
            f"`hidden` must have shape (..., {width}) with at least one batch dimension. "
            f"Received shape: {tuple(hidden.shape)}"
        )


def check_hidden_shape(shape: tuple) -> None:
    """Raise a ValueError unless a layer can be built for hidden vectors of this shape."""
    if len(shape) < 2 or shape[-1] is None:
        raise ValueError(
            "`hidden` must have shape (..., d) with at least one batch dimension and a known "
            f"d. Received shape: {tuple(shape)}"
        )


def check_not_empty(hidden: Tensor) -> None:
    """Raise a ValueError if hidden (..., d) is known to hold no vector."""
    if 0 in hidden.shape[:-1]:
        raise ValueError(
            "`hidden` must hold at least one vector to have a loss; leave empty batches out. "
            f"Received shape: {tuple(hidden.shape)}"
        )


def check_ids(name: str, ids: Tensor, hidden: Tensor, several: bool = False) -> None:
    """Raise a ValueError unless ids are integers, one (or `several`) for each vector of hidden."""
    check_integers(name, ids)
    shape, leading = tuple(ids.shape), tuple(hidden.shape[:-1])
    if not several:
        _check_leading(name, shape, leading, "without its last dimension")
        return
    if len(shape) != len(leading) + 1 or not shape[-1] or not fits(shape[:-1], leading):
        raise ValueError(
            f"`{name}` must have the leading dimensions of `hidden`, {leading}, and a known number "
            f"of labels for each, because `multi_label` is given. Received shape: {shape}"
        )


def without_last_one(x: Any, hidden: Tensor) -> Any:
    """`x` (..., 1), one entry for each vector of hidden (..., d), as (...); others as they are."""
    if len(x.shape) == len(hidden.shape) and x.shape[-1] == 1:
        return x[..., 0]
    return x


def check_features(name: str, features: Tensor, hidden: Tensor) -> None:
    """Raise a ValueError unless features are one vector for each of hidden."""
    shape, leading = tuple(features.shape), tuple(hidden.shape[:-1])
    if len(shape) != len(leading) + 1:
        raise ValueError(
            f"`{name}` must have the leading dimensions of `hidden`, {leading}, and one more. "
            f"Received shape: {shape}"
        )
    _check_leading(name, shape[:-1], leading, "up to its last dimension")


def _check_leading(name: str, received: tuple, expected: tuple, how: str) -> None:
    if not fits(received, expected):
        raise ValueError(
            f"`{name}` must have the shape of `hidden` {how}, {expected}. "
            f"Received shape: {received}"
        )


def flat_weight(sample_weight: Tensor | None, hidden: Tensor) -> Tensor | None:
    """`sample_weight` float32 (B,), or None; a ValueError unless each vector has one."""
    if sample_weight is None:
        return None
    received, expected = tuple(sample_weight.shape), tuple(hidden.shape[:-1])
    if not fits(received, expected):
        raise ValueError(
            f"`sample_weight` must have the shape of `labels`, {expected}. "
            f"Received shape: {received}"
        )
    return ops.reshape(ops.cast(sample_weight, "float32"), (-1,))


def with_masks(sample_weight: Tensor | None, labels: Any, *masks: Tensor | None) -> Tensor | None:
    """`sample_weight` (...), or ones, and 0 where a mask (...) is False; None without any."""
    for mask in masks:
        if labels is None or mask is None:
            continue
        received, expected = tuple(mask.shape), tuple(labels.shape)
        if not fits(received, expected):
            raise ValueError(
                "The Keras mask of `hidden` or `labels` must have the shape of `labels`, "
                f"{expected}. Received shape: {received}"
            )
        own = 1.0 if sample_weight is None else ops.cast(sample_weight, "float32")
        sample_weight = ops.where(ops.cast(mask, "bool"), own, 0.0)
    return sample_weight


def counted(weight: Tensor | None, valid: Tensor) -> Tensor:
    """float32 (B,): the weights, or ones, and 0 where an example is not `valid`."""
    return ops.where(valid, 1.0 if weight is None else weight, 0.0)


def from_present(x: Tensor, weight: Tensor | None) -> Tensor:
    """`x` (B, ...), where examples of weight 0 have the entries of the first one that counts.

    So that what they look up is looked up anyway, and no row moves because of them.
    """
    if weight is None:
        return x
    present = ops.not_equal(weight, 0)
    own = ops.take(x, ops.argmax(ops.cast(present, "int32")), axis=0)
    return ops.where(ops.reshape(present, (-1,) + (1,) * (len(x.shape) - 1)), x, own)


def spread_present(x: Tensor, weight: Tensor) -> Tensor:
    """`x` (B, ...), where examples of weight 0 have the entries of those that count, in turn.

    So that what is computed of the batch as a whole is of these alone.
    """
    present = ops.not_equal(weight, 0)
    order = ops.argsort(ops.where(present, 0, 1))
    count = ops.maximum(ops.sum(ops.cast(present, "int32")), 1)
    turn = ops.arange(ops.shape(x)[0], dtype="int32") % count
    own = ops.take(x, ops.take(order, turn), axis=0)
    return ops.where(ops.reshape(present, (-1,) + (1,) * (len(x.shape) - 1)), x, own)


def without_absent_nan(hidden: Tensor, weight: Tensor) -> Tensor:
    """`hidden` (B, d) or features (B, v), with 0 for what is not finite in examples of weight 0.

    0 * NaN is NaN: a loss of 0 alone would not keep it from the gradient of the rows.
    """
    kept = ops.logical_or(ops.expand_dims(ops.not_equal(weight, 0), -1), ops.isfinite(hidden))
    return ops.where(kept, hidden, ops.zeros_like(hidden))


def flat_vectors(x: Tensor) -> Tensor:
    """(..., k) as (B, k)."""
    return ops.reshape(x, (-1, x.shape[-1]))


def mean_of_weighted(losses: Tensor, weight: Tensor | None) -> Tensor:
    """sum(losses) / sum(weight) of losses already multiplied by their weights; 0 if all are 0.

    Its gradient is that of both sums over all replicas of a `tf.distribute` strategy.
    """
    if weight is None and replicas() == 1:
        return ops.mean(losses)
    total = ops.sum(ops.ones_like(losses) if weight is None else weight)
    mean = ops.sum(losses) / ops.where(total > 0, total, 1.0)
    return mean_of_replicas(mean, total)

"""Checks of what a head is called with, and the mean of its losses."""

from keras import ops

from softbench.common import Tensor
from softbench.labels import fits
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


def check_features(name: str, features: Tensor, hidden: Tensor) -> None:
    """Raise a ValueError unless features are one vector for each of hidden."""
    shape, leading = tuple(features.shape), tuple(hidden.shape[:-1])
    if len(shape) != len(leading) + 1:
        raise ValueError(
            f"`{name}` must have the leading dimensions of `hidden`, {leading}, and one more. "
            f"Received shape: {shape}"
        )
    if not fits(shape[:-1], leading):
        raise ValueError(
            f"`{name}` must have the shape of `hidden` up to its last dimension, {leading}. "
            f"Received shape: {shape[:-1]}"
        )


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

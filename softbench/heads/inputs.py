"""Checks of what a head is called with, and the mean of its losses."""

from typing import Any

import keras
from keras import ops

from softbench.common import Tensor


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


def check_ids(name: str, ids: Tensor, hidden: Tensor) -> None:
    """Raise a ValueError unless ids are integers, one for each vector of hidden."""
    check_integers(name, ids)
    _check_leading(name, tuple(ids.shape), tuple(hidden.shape[:-1]), "without its last dimension")


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
    pairs = zip(expected, received, strict=False)
    if len(expected) != len(received) or any(
        a != b for a, b in pairs if a is not None and b is not None
    ):
        raise ValueError(
            f"`{name}` must have the shape of `hidden` {how}, {expected}. "
            f"Received shape: {received}"
        )


def check_integers(name: str, ids: Any) -> None:
    """Raise a ValueError unless ids have an integer type."""
    dtype = keras.backend.standardize_dtype(ids.dtype)
    if "int" not in dtype:
        raise ValueError(
            f"`{name}` must be integers (a `keras.Input` of {name} needs dtype='int32'). "
            f"Received dtype: {dtype}"
        )


def check_values(name: str, ids: Any, size: int) -> None:
    """Raise a ValueError unless concrete ids are integers in [0, size)."""
    check_integers(name, ids)
    values = ops.convert_to_numpy(ids)
    if values.size and (values.min() < 0 or values.max() >= size):
        raise ValueError(
            f"`{name}` must be in [0, {size}). "
            f"Received values from {values.min()} to {values.max()}"
        )


def flat_weight(sample_weight: Tensor | None, labels: Tensor) -> Tensor | None:
    """`sample_weight` (B,), or None; a ValueError unless it has the rank of labels."""
    if sample_weight is None:
        return None
    if len(sample_weight.shape) != len(labels.shape):
        raise ValueError(
            "`sample_weight` must have the shape of `labels`, "
            f"{tuple(labels.shape)}. Received shape: {tuple(sample_weight.shape)}"
        )
    return ops.reshape(sample_weight, (-1,))


def flat_vectors(x: Tensor) -> Tensor:
    """(..., k) as (B, k)."""
    return ops.reshape(x, (-1, x.shape[-1]))


def mean_of_weighted(losses: Tensor, weight: Tensor | None) -> Tensor:
    """sum(losses) / sum(weight) of losses already multiplied by their weights; 0 if all are 0."""
    if weight is None:
        return ops.mean(losses)
    total = ops.sum(ops.cast(weight, "float32"))
    return ops.sum(losses) / ops.where(total > 0, total, 1.0)

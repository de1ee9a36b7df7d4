"""Searches in ordered rows on TensorFlow. Shape letters: R rows, S entries of each, N values."""

import tensorflow as tf

from softbench.common import Tensor

# Entries of a row that are compared with one value at once: searches of rows share no threads.
SHORT = 16


def number_at_most(ordered: Tensor, values: Tensor, size: int | None = None) -> Tensor:
    """How many entries of its row (R, S), which does not decrease, are <= each value (R, N).

    With `size`, of so many at its end; the others are below all values. (A part would be a copy.)
    """
    if size is not None:
        return number_at_most(ordered, values) - (ordered.shape[-1] - size)
    if values.shape[-1] == 1 and ordered.dtype.is_floating and ordered.shape[-1] <= SHORT:
        below = tf.cast(ordered <= values, tf.int32)
        return tf.reduce_sum(below, axis=-1, keepdims=True)
    return tf.searchsorted(ordered, values, side="right")

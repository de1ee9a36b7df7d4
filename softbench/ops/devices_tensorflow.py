"""Several devices on TensorFlow: replicas of `tf.distribute`, and tables that are never divided.

What the others do is in `devices_jax.py`: `keras.distribution` divides tables on JAX alone.
"""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from softbench.common import Tensor


def replicas() -> int:
    """How many replicas of its own variables a model trains at once."""
    return tf.distribute.get_strategy().num_replicas_in_sync


def mean_of_replicas(mean: Tensor, weight: Tensor) -> Tensor:
    """A mean over examples of total weight `weight`, with the gradient of that over all replicas.

    Keras averages the gradients of the replicas. They talk to each other in the backward pass
    alone: in the forward pass, Keras would mix the losses that they add.
    """
    if replicas() == 1 or tf.distribute.in_cross_replica_context():
        return mean

    @tf.custom_gradient
    def shared(mean: Tensor, weight: Tensor) -> tuple[Tensor, Callable]:
        def backward(upstream: Tensor) -> tuple[Tensor, None]:
            context = tf.distribute.get_replica_context()
            whole = context.all_reduce(tf.distribute.ReduceOp.MEAN, weight)
            return upstream * tf.math.divide_no_nan(weight, whole), None

        return tf.identity(mean), backward

    return shared(mean, weight)


def planned_shards(path: str, shape: tuple) -> int:
    """Into how many shards the rows of a new variable are cut: `keras.distribution` cuts none."""
    return 1


def shards(variable: keras.Variable) -> int:
    """Into how many parts the rows of a variable are cut."""
    return 1


def by_shards(
    function: Callable,
    join: Callable,
    units: int,
    variables: Sequence[keras.Variable],
    others: Sequence[keras.Variable],
    *arrays: Any,
) -> Any:
    """`function(first, count, *arrays)` of all classes."""
    return function(0, units, *arrays)

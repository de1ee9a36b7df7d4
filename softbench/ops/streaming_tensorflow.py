"""What `softbench.streaming` needs of TensorFlow; `streaming_jax.py` says what each function is.

Outside XLA arrays that `buffer` made are written in place: an update of a tensor would copy all of
it, even in a loop. `softbench.streaming` uses no such array once it has been written anew.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from keras import ops
from tensorflow.python.eager import record  # whether a tape records has no public name

from softbench.common import Tensor


def differentiable(
    value: Callable, forward: Callable, backward: Callable, arrays: tuple, fixed: Any
) -> Tensor:
    """A graph drops what is made for a gradient that no one wants, an eager call cannot."""
    if tf.executing_eagerly() and not record.could_possibly_record():
        return value(tuple(map(tf.convert_to_tensor, arrays)), fixed)

    @tf.custom_gradient
    def function(*arrays: Tensor) -> tuple[Tensor, Callable]:
        # Else a tape would record each step of it, which have no gradients.
        result, kept = forward(*tf.nest.map_structure(tf.stop_gradient, (arrays, fixed)))
        return result, lambda upstream: backward(arrays, fixed, kept, upstream)

    return function(*map(tf.convert_to_tensor, arrays))


def loop(count: Tensor | int, step: Callable, state: tuple) -> tuple:
    def body(index: Tensor, state: tuple) -> tuple:
        return index + 1, step(index, state)

    arguments = (lambda index, _: index < count, body, (0, state))
    return tf.while_loop(*arguments, parallel_iterations=1)[1]


def buffer(shape: tuple) -> Tensor:
    if is_under_xla():
        return tf.zeros(shape)
    # Not zeros, which may be one constant of all steps.
    return tf.raw_ops.Empty(shape=shape, dtype=tf.float32, init=True)


def write(x: Tensor, block: Tensor, start: Tensor) -> Tensor:
    if is_under_xla():
        return ops.slice_update(x, (start, *[0] * (len(x.shape) - 1)), block)
    return tf.raw_ops.InplaceUpdate(x=x, i=start + tf.range(tf.shape(block)[0]), v=block)


def add_rows(x: Tensor, ids: Tensor, rows: Tensor) -> Tensor:
    ids, rows = tf.reshape(ids, (-1,)), tf.reshape(rows, (-1, *x.shape[1:]))
    is_row = (ids >= 0) & (ids < x.shape[0])
    rows = tf.where(tf.reshape(is_row, (-1,) + (1,) * (len(x.shape) - 1)), rows, 0.0)
    ids = tf.where(is_row, ids, 0)
    if is_under_xla():
        return tf.tensor_scatter_nd_add(x, ids[:, None], rows)
    return tf.raw_ops.InplaceAdd(x=x, i=ids, v=rows)


def scaled(x: Tensor, factor: Tensor) -> Tensor:
    return tf.math.multiply_no_nan(x, factor)


def exclude(scores: Tensor, column: Tensor, value: float) -> Tensor:
    is_here = (column >= 0) & (column < scores.shape[1])
    # A scatter: to compare all with all would take P times the memory.
    example = tf.broadcast_to(tf.range(tf.shape(column)[0])[:, None], tf.shape(column))
    at = tf.reshape(tf.stack([example, tf.where(is_here, column, 0)], axis=-1), (-1, 2))
    number = tf.scatter_nd(at, tf.reshape(tf.cast(is_here, tf.int32), (-1,)), tf.shape(scores))
    return tf.where(number > 0, value, scores)


def pulled(function: Callable, arrays: tuple, upstream: Tensor) -> tuple:
    with tf.GradientTape() as tape:
        tape.watch(arrays)
        result = function(*arrays)
    return tape.gradient(result, arrays, upstream, unconnected_gradients="zero")


def product_dtype(dtype: str) -> str:
    """XLA alone has products of bfloat16 with float32 sums; a graph would round the sums."""
    return "bfloat16" if dtype == "bfloat16" and is_under_xla() else "float32"


def product(
    a: Tensor, b: Tensor, *, transpose_a: bool = False, transpose_b: bool = False
) -> Tensor:
    return tf.matmul(a, b, transpose_a, transpose_b, output_type=tf.float32)


def is_under_xla() -> bool:
    """Whether what is traced now will be compiled by XLA, which has no updates in place."""
    graph = tf.compat.v1.get_default_graph()
    while graph is not None:
        context = graph._get_control_flow_context()
        while context is not None:
            if context.IsXLAContext():
                return True
            context = context.outer_context
        graph = getattr(graph, "outer_graph", None)
    return False

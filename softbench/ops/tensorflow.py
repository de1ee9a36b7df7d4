"""Backend operations on TensorFlow; `softbench.ops` describes them.

Shape letters: B batch, d features, n classes, m samples, N row ids with duplicates, U row ids
without.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import keras
import tensorflow as tf

from softbench.common import Tensor
from softbench.ops.devices_tensorflow import by_shards as by_shards
from softbench.ops.devices_tensorflow import mean_of_replicas as mean_of_replicas
from softbench.ops.devices_tensorflow import planned_shards as planned_shards
from softbench.ops.devices_tensorflow import replicas as replicas
from softbench.ops.devices_tensorflow import shards as shards
from softbench.ops.products_tensorflow import matmul_by_parts as matmul_by_parts
from softbench.ops.products_tensorflow import matmul_float32 as matmul_float32
from softbench.ops.products_tensorflow import matmul_transposed as matmul_transposed
from softbench.ops.search_tensorflow import number_at_most as number_at_most
from softbench.ops.streaming_tensorflow import add_rows as add_rows
from softbench.ops.streaming_tensorflow import buffer as buffer
from softbench.ops.streaming_tensorflow import differentiable as differentiable
from softbench.ops.streaming_tensorflow import exclude as exclude
from softbench.ops.streaming_tensorflow import is_under_xla
from softbench.ops.streaming_tensorflow import loop as loop
from softbench.ops.streaming_tensorflow import product as product
from softbench.ops.streaming_tensorflow import product_dtype as product_dtype
from softbench.ops.streaming_tensorflow import pulled as pulled
from softbench.ops.streaming_tensorflow import scaled as scaled
from softbench.ops.streaming_tensorflow import write as write

# `fit` compiles with XLA by default, and there a scatter into a variable copies the variable.
SCATTER_UNDER_JIT = False
# A variable that a scatter has updated is copied whenever all of it is read.
READ_COPIES = True
COND_COPIES = False  # `cond` updates variables in place
FLOAT64 = True  # at hand without a switch
# Ordered entries among which one search is faster than a descent over groups of 16, at most.
LONGEST_LINE = 2**16
# The values that `read_once` has read, by the ids of their variables.
_READ: ContextVar[dict[int, Tensor] | None] = ContextVar("read", default=None)


def read(variable: keras.Variable) -> Tensor:
    """The value of a variable as a tensor."""
    known = (_READ.get() or {}).get(id(variable))
    return tf.convert_to_tensor(variable.value) if known is None else known


@contextlib.contextmanager
def read_once(variables: Sequence[keras.Variable]) -> Iterator[None]:
    """Read `variables`, which nothing within assigns to: each `read` within takes that value.

    TensorFlow drops the order between a read and the optimizer's update where the update needs
    nothing but the shape of what was read. A second read, of the label's row, say, then may see
    the table after its update; the first, which the gradient is computed from, cannot.
    """
    token = _READ.set({**(_READ.get() or {}), **{id(v): read(v) for v in variables}})
    try:
        yield
    finally:
        _READ.reset(token)


def gather_rows(variable: keras.Variable, ids: Tensor) -> Tensor:
    """Rows `ids` of `variable`, without reading the others; the gradient is dense.

    TensorFlow's own gradient of a gather is a list of slices with duplicates, whose squares
    Keras' optimizers add up one by one: Adagrad and Adam would not see the summed gradient.
    """
    if not variable.trainable:
        return tf.gather(variable.value, ids)

    @tf.custom_gradient
    def gather(table: Tensor) -> tuple[Tensor, Callable]:
        def gradient(upstream: Tensor) -> Tensor:
            return tf.math.unsorted_segment_sum(upstream, ids, variable.shape[0])

        return tf.gather(table, ids), gradient

    return gather(read(variable))


def take_rows(x: Tensor, ids: Tensor) -> Tensor:
    """Rows `ids` of a tensor, all in range: `keras.ops.take` looks at their signs first."""
    return tf.gather(x, ids)


def argmax(x: Tensor) -> Tensor:
    """The first place of the largest entry along the last axis, int32."""
    return tf.argmax(x, axis=-1, output_type=tf.int32)


def gather_groups(variable: keras.Variable, groups: Tensor, size: int) -> Tensor:
    """Rows [g size, (g + 1) size) of `variable` (V, D) for every group g: (..., size, D)."""
    ids = tf.expand_dims(groups, -1) * size + tf.range(size)
    return tf.gather(variable.value, ids)


def cosine(angles: Tensor) -> Tensor:
    """cos(angles)."""
    return tf.cos(angles)


def mean_cosine(angles: Tensor) -> Tensor:
    """The mean (N,) of cos(angles) (N, D)."""
    return tf.reduce_mean(tf.cos(angles), axis=-1)


def read_first(first: Tensor, later: Tensor) -> Tensor:
    """`later`, for use after `first` was computed; a graph reads in that order by itself."""
    return later


def scatter_add(variable: keras.Variable, ids: Tensor, updates: Tensor) -> None:
    """`variable[ids] += updates`, in place; duplicated ids add up."""
    variable.value.scatter_add(tf.IndexedSlices(updates, ids))


def scatter_update(variable: keras.Variable, ids: Tensor, rows: Tensor) -> None:
    """`variable[ids] = rows`, in place; `ids` must be distinct."""
    variable.value.scatter_update(tf.IndexedSlices(rows, ids))


def assign_when(condition: Tensor, variables: Sequence[keras.Variable], compute: Callable) -> None:
    """Assign the tensors of `compute()` to `variables` if `condition`, a boolean scalar."""

    def assign() -> Tensor:
        for variable, value in zip(variables, compute(), strict=True):
            variable.assign(value)
        return tf.constant(True)

    tf.cond(condition, assign, lambda: tf.constant(False))


def cond(
    condition: Tensor, first: Callable, second: Callable, variables: Sequence[keras.Variable]
) -> Any:
    """`first()` if `condition`, a boolean scalar, else `second()`: tensors of the same shapes.

    Both may read any variable, and assign to those of `variables` that are not trainable.
    """
    return tf.cond(condition, first, second)


def run(function: Callable, *arrays: Tensor | None, **static: Any) -> Any:
    """`function(*arrays, **static)`; on JAX compiled as a whole."""
    return function(*arrays, **static)


def rows_when(
    condition: Tensor, ids: Tensor, values: Sequence[Tensor], num_rows: int
) -> tuple[Tensor, list[Tensor]]:
    """`ids` (N,) and `values`, each (N, ...), of a row update: made if `condition`, else none.

    None is no rows at all.
    """
    size = tf.where(condition, tf.shape(ids)[0], 0)
    return ids[:size], [v[:size] for v in values]


def sum_duplicates(
    ids: Tensor, values: Sequence[Tensor], num_rows: int
) -> tuple[Tensor, list[Tensor]]:
    """Distinct ids (U,), and the sums of `values` (N, ...) over equal ids, each (U, ...)."""
    distinct, position = tf.unique(ids)
    count = tf.size(distinct)
    return distinct, [tf.math.unsorted_segment_sum(v, position, count) for v in values]


def on_distinct(
    function: Callable, ids: Tensor, num_rows: int, variables: Sequence[keras.Variable] | None
) -> Tensor:
    """Rows (N, ...) of ids (N,), of which `function(ids (U,))` computes those of the distinct ones.

    Under XLA, where shapes are fixed, it computes a row for each of the N. `variables` are of JAX.
    """
    if is_under_xla():
        return function(ids)
    distinct, position = tf.unique(ids)

    @tf.custom_gradient
    def spread(rows: Tensor) -> tuple[Tensor, Callable]:
        count = tf.shape(rows)[0]
        add_up = lambda g: tf.math.unsorted_segment_sum(g, position, count)  # noqa: E731
        return tf.gather(rows, position), add_up

    return spread(function(distinct))


def recomputed_map(function: Callable, values: Sequence[Tensor], starts: Tensor) -> Tensor:
    """`function(values, start)` of each of `starts` (S,), one after another: (S, ...).

    Its gradient, by `values`, computes each of them again: nothing that is inside is kept.
    """
    options: dict[str, Any] = {"parallel_iterations": 1}

    @tf.custom_gradient
    def mapped(*values: Tensor) -> tuple[Tensor, Callable]:
        def add(totals: list[Tensor], each: tuple[Tensor, Tensor]) -> list[Tensor]:
            start, upstream = each
            with tf.GradientTape() as tape:
                tape.watch(values)
                result = function(values, start)
            found = tape.gradient(result, values, upstream, unconnected_gradients="zero")
            return [a + tf.convert_to_tensor(b) for a, b in zip(totals, found, strict=True)]

        def gradient(upstream: Tensor) -> list[Tensor]:
            zeros = [tf.zeros_like(value) for value in values]
            return tf.foldl(add, (starts, upstream), zeros, **options) if zeros else []

        signature = tf.TensorSpec(None, values[0].dtype if values else tf.float32)
        body = lambda start: function(values, start)  # noqa: E731
        return tf.map_fn(body, starts, fn_output_signature=signature, **options), gradient

    return mapped(*values)


def apply_adagrad(
    variable: keras.Variable,
    accumulator: keras.Variable,
    ids: Tensor,
    gradient: Tensor,
    learning_rate: Tensor,
    epsilon: float,
) -> None:
    """a += g^2; c -= learning_rate * g / (sqrt(a) + epsilon) on the distinct rows `ids`."""
    if variable.dtype != accumulator.dtype:  # which the fused operation takes for equal
        sums = gather_rows(accumulator, ids) + tf.square(gradient)
        scatter_update(accumulator, ids, sums)
        change = -learning_rate * gradient / (tf.sqrt(sums) + epsilon)
        scatter_add(variable, ids, tf.cast(change, variable.dtype))
        return
    tf.raw_ops.ResourceSparseApplyAdagradV2(
        var=variable.value.handle,
        accum=accumulator.value.handle,
        lr=learning_rate,
        epsilon=epsilon,
        grad=gradient,
        indices=ids,
    )


def gradients_and_aux(function: Callable, arrays: Sequence[Tensor]) -> tuple:
    """Of `scalar, aux = function(*arrays)`: the gradients of the scalar, and aux.

    What `function` closes over can still be differentiated through aux.
    """
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(arrays)
        value, aux = function(*arrays)
    return tape.gradient(value, arrays), aux


def share_backward(function: Callable) -> Callable:
    """`function` with a backward pass that is computed once, however often it is asked for.

    For losses (B,) of arrays (B, ...), each loss of its own entries alone: the gradients
    of their sum are taken at once, and every later backward pass scales them.
    """

    @tf.custom_gradient
    def shared(*arrays: Tensor) -> tuple[Tensor, Callable]:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(arrays)
            losses = function(*arrays)
            total = tf.reduce_sum(losses)
        slopes = tape.gradient(total, arrays)

        def backward(upstream: Tensor) -> list[Tensor | None]:
            upstream = tf.convert_to_tensor(upstream)  # of a gather it is IndexedSlices
            column = upstream[:, None]
            return [
                None if g is None else g * (upstream if len(g.shape) == 1 else column)
                for g in slopes
            ]

        return losses, backward

    return shared


def is_concrete(x: Tensor) -> bool:
    """Whether the values of `x` can be looked at now."""
    return hasattr(x, "numpy") or not tf.is_tensor(x)


def random_integers(shape: Sequence, maximum: int | Tensor, seed: Tensor) -> Tensor:
    """Integers uniform on `[0, maximum)`, `maximum` (int32) broadcast against `shape`.

    From 62 random bits or more, so a probability is off by at most 2**-31 of itself; the
    remainder of 32 bits (as both backends' own `randint` takes) can be off by a factor of 2.
    """
    if isinstance(maximum, int):
        wide = tf.random.stateless_uniform(shape, seed, 0, maximum, tf.int64)
        return tf.cast(wide, tf.int32)
    words = tf.random.stateless_uniform([2, *shape], seed, None, None, tf.int32)
    words = tf.bitwise.bitwise_and(tf.cast(words, tf.int64), 2**31 - 1)
    maximum = tf.cast(maximum, tf.int64)
    low = tf.bitwise.right_shift(words[1] * maximum, tf.constant(31, tf.int64))
    scaled = tf.bitwise.right_shift(words[0] * maximum + low, tf.constant(31, tf.int64))
    return tf.cast(scaled, tf.int32)


def random_uniform(shape: Sequence, seed: Tensor, dtype: str = "float32") -> Tensor:
    """Numbers uniform on `[0, 1)`: multiples of 2**-23, or of 2**-52 if "float64".

    Of random integers, which XLA and TensorFlow's own kernels draw alike. Floats they make of
    different bits of these: the same seed would draw others under `jit_compile`.
    """
    integers, width = ("int64", 52) if dtype == "float64" else ("int32", 23)
    words = tf.random.stateless_uniform(shape, seed, None, None, integers)
    return tf.cast(tf.bitwise.bitwise_and(words, 2**width - 1), dtype) * 2.0**-width


def random_points(shape: Sequence, maximum: Tensor, seed: Tensor) -> Tensor:
    """As `random_integers`, from 52 bits: w of `maximum` are off by maximum / w 2**-52 of it."""
    uniform = random_uniform(shape, seed, "float64")
    return tf.cast(uniform * tf.cast(maximum, tf.float64), tf.int32)


def random_words(shape: Sequence, seed: Tensor) -> Tensor:
    """Integers uniform on `[0, 2^16)`, int32."""
    return tf.random.stateless_uniform(shape, seed, 0, 2**16, tf.int32)


def write_mark(variable: keras.Variable) -> object:
    """The graph that is being built; of eager calls, something that equals nothing."""
    return object() if tf.executing_eagerly() else tf.compat.v1.get_default_graph()


def on_cpu() -> bool:
    """Whether computations run on a CPU."""
    return not (tf.config.list_physical_devices("GPU") or tf.config.list_physical_devices("TPU"))


def copies_bfloat16() -> bool:
    """Whether a scatter into a bfloat16 variable makes a float32 copy of it."""
    return False


def device_memory() -> tuple[int, int] | None:
    """Bytes held on the accelerator, now and at most; None on a CPU."""
    if not tf.config.list_physical_devices("GPU"):
        return None
    information = tf.config.experimental.get_memory_info("GPU:0")
    return int(information["current"]), int(information["peak"])

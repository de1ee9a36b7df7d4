"""Backend operations on JAX; `softbench.ops` describes them.

Shape letters: B batch, d features, n classes, m samples, N row ids with duplicates, U row ids
without.
"""

import contextlib
import functools
import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import keras

from softbench.common import Tensor
from softbench.ops.devices_jax import by_shards as by_shards
from softbench.ops.devices_jax import local_ids
from softbench.ops.devices_jax import planned_shards as planned_shards
from softbench.ops.devices_jax import shards as shards
from softbench.ops.products_jax import matmul_by_parts as matmul_by_parts
from softbench.ops.products_jax import matmul_float32 as matmul_float32
from softbench.ops.products_jax import matmul_transposed as matmul_transposed
from softbench.ops.search_jax import bisect, padded_size
from softbench.ops.search_jax import number_at_most as number_at_most
from softbench.ops.streaming_jax import add_rows as add_rows
from softbench.ops.streaming_jax import buffer as buffer
from softbench.ops.streaming_jax import differentiable as differentiable
from softbench.ops.streaming_jax import exclude as exclude
from softbench.ops.streaming_jax import loop as loop
from softbench.ops.streaming_jax import product as product
from softbench.ops.streaming_jax import product_dtype as product_dtype
from softbench.ops.streaming_jax import pulled as pulled
from softbench.ops.streaming_jax import scaled as scaled
from softbench.ops.streaming_jax import write as write

SCATTER_UNDER_JIT = True
READ_COPIES = False
COND_COPIES = True  # `cond` copies the variables that both of its functions update
FLOAT64 = False  # only where the user has switched it on for all
LONGEST_LINE = 16  # a search compares with all of a group at once, and is a loop for more


def read(variable: keras.Variable) -> Tensor:
    """The value of a variable as a tensor."""
    return variable.value


def read_once(variables: Sequence[keras.Variable]) -> contextlib.AbstractContextManager:
    """Within it `variables` do not change; a compiled step reads them once by itself."""
    return contextlib.nullcontext()


def gather_rows(variable: keras.Variable, ids: Tensor) -> Tensor:
    """Rows `ids` of `variable`; ids past the end read the last row."""
    value = variable.value
    return jnp.take(value, local_ids(value, variable, ids), axis=0, mode="clip")


def take_rows(x: Tensor, ids: Tensor) -> Tensor:
    """Rows `ids` of a tensor, all in range."""
    return jnp.take(x, ids, axis=0, mode="clip")


def argmax(x: Tensor) -> Tensor:
    """The first place of the largest entry along the last axis, int32."""
    return jnp.argmax(x, axis=-1).astype("int32")


def gather_groups(variable: keras.Variable, groups: Tensor, size: int) -> Tensor:
    """Rows [g size, (g + 1) size) of `variable` (V, D) for every group g: (..., size, D)."""
    value = variable.value
    grouped = jnp.reshape(value, (-1, size, value.shape[-1]))
    return jnp.take(grouped, groups, axis=0, mode="clip")


# cos(2 pi sqrt(u)) on [0, 1/4], fitted at Chebyshev points: within 4e-7.
_COSINE = (
    0.999999989,
    -19.7392045,
    64.9391175,
    -85.4501395,
    60.167631,
    -25.9675992,
    6.52865816,
)


def cosine(angles: Tensor) -> Tensor:
    """cos(angles) (XLA's own takes 18 times as long on a CPU)."""
    turns = angles / (2 * math.pi)
    square = jnp.square(turns - jnp.round(turns))
    result: Tensor = _COSINE[-1]
    for coefficient in _COSINE[-2::-1]:
        result = result * square + coefficient
    return result


def mean_cosine(angles: Tensor) -> Tensor:
    """The mean (N,) of cos(angles) (N, D).

    As a product: inside a sum XLA computes one cosine after the other on a CPU.
    """
    share = jnp.full((angles.shape[-1],), 1 / angles.shape[-1])
    return jnp.matmul(cosine(angles), share, precision=jax.lax.Precision.HIGHEST)


def read_first(first: Tensor, later: Tensor) -> Tensor:
    """`later`, for use after `first` (N, ...) was computed from the rows that it reads.

    XLA copies a variable that is updated unless what it computes reads its old value before that.
    """
    nothing = 0.0 * first.reshape(first.shape[0], -1)[:, 0].astype("float32")
    nothing = jnp.sum(jnp.where(nothing == 0, nothing, 0.0))  # of infinite rows too
    return later + nothing.astype(later.dtype)


def scatter_add(variable: keras.Variable, ids: Tensor, updates: Tensor) -> None:
    """`variable[ids] += updates`; ids past the end are dropped, duplicated ids add up."""
    value = variable.value
    variable.assign(value.at[ids].add(updates.astype(value.dtype), mode="drop"))


def scatter_update(variable: keras.Variable, ids: Tensor, rows: Tensor) -> None:
    """`variable[ids] = rows`; ids past the end are dropped, the others must be distinct."""
    value = variable.value
    variable.assign(value.at[ids].set(rows.astype(value.dtype), mode="drop"))


def assign_when(condition: Tensor, variables: Sequence[keras.Variable], compute: Callable) -> None:
    """Assign the tensors of `compute()` to `variables` if `condition`, a boolean scalar."""
    present = [variable.value for variable in variables]
    # What it reads of trainable variables is held constant: else a step that does not compute it
    # fills what the derivative would need of it with zeros.
    values, read = jax.closure_convert(lambda: list(compute()))
    read = jax.lax.stop_gradient(read)
    values = jax.lax.cond(condition, lambda: values(*read), lambda: present)
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def cond(
    condition: Tensor, first: Callable, second: Callable, variables: Sequence[keras.Variable]
) -> Any:
    """`first()` if `condition`, a boolean scalar, else `second()`: tensors of the same shapes.

    Both may read any variable, and assign to those of `variables` that are not trainable.
    """
    changing = [variable for variable in variables if not variable.trainable]

    def stateless(function: Callable) -> Callable:
        def call(values: list) -> tuple:
            with keras.StatelessScope(zip(changing, values, strict=True)) as scope:
                outer = scope.original_scope  # whose values a new scope does not see by itself
                known = {} if outer is None else outer.state_mapping
                scope.state_mapping = {**known, **scope.state_mapping}
                result = function()
            return result, [scope.get_current_value(variable) for variable in changing]

        return call

    present = [variable.value for variable in changing]
    result, values = jax.lax.cond(condition, stateless(first), stateless(second), present)
    for variable, value in zip(changing, values, strict=True):
        variable.assign(value)
    return result


@functools.cache
def _jitted(function: Callable, static: tuple[str, ...]) -> Callable:
    return jax.jit(function, static_argnames=static)


def run(function: Callable, *arrays: Tensor | None, **static: Any) -> Any:
    """`function(*arrays, **static)`, compiled as a whole: eager loops would be compiled each time.

    It must be a function of a module, whose compiled forms are kept.
    """
    return _jitted(function, tuple(static))(*arrays, **static)


def rows_when(
    condition: Tensor, ids: Tensor, values: Sequence[Tensor], num_rows: int
) -> tuple[Tensor, list[Tensor]]:
    """`ids` (N,) and `values`, each (N, ...), of a row update: made if `condition`, else none.

    None is N ids past the end, which updates drop.
    """
    return jnp.where(condition, ids, num_rows), list(values)


def sum_duplicates(
    ids: Tensor, values: Sequence[Tensor], num_rows: int
) -> tuple[Tensor, list[Tensor]]:
    """Distinct ids (N,), elsewhere `num_rows`, and the sums of `values` there.

    An id stands where it is first in sorted order. Sorting the ids and bisecting for each is
    several times faster on a CPU than `jnp.unique`, which sorts pairs. Of no more rows than ids
    each has its own place, and there are `num_rows` instead of N.
    """
    size = ids.shape[0]
    if num_rows <= size:
        seen = jnp.zeros((num_rows,), bool).at[ids].set(True, mode="drop")
        places = jnp.arange(num_rows, dtype=ids.dtype)
        sums = [jax.ops.segment_sum(v, ids, num_rows) for v in values]
        return jnp.where(seen, places, num_rows), sums
    ordered = jnp.sort(ids)
    shifted = jnp.concatenate([jnp.full((1,), -1, ordered.dtype), ordered])
    distinct = jnp.where(ordered == shifted[:-1], num_rows, ordered)
    length = padded_size(size + 1)
    padded = jnp.pad(shifted, (0, length - size - 1), constant_values=num_rows)
    first = bisect(lambda p: padded[p], length, ids - 1)
    return distinct, [jax.ops.segment_sum(v, first, size) for v in values]


def on_distinct(
    function: Callable, ids: Tensor, num_rows: int, variables: Sequence[keras.Variable] | None
) -> Tensor:
    """Rows (N, ...) of ids (N,), of which `function(ids (U,))` computes those of the distinct ones.

    Shapes are fixed: it computes N / 2 rows if no more ids are distinct, and N otherwise; those
    beyond the distinct ones are of the same ids, in turn.

    Args:
        variables: what `function` assigns to; None: N rows are computed in any case.
    """
    size = ids.shape[0]
    if num_rows <= size:
        return jnp.take(function(jnp.arange(num_rows, dtype=ids.dtype)), ids, axis=0, mode="clip")
    order = jnp.argsort(ids)
    ordered = ids[order]
    rank = jnp.cumsum(jnp.diff(ordered, prepend=-1) > 0) - 1  # among the distinct ids
    distinct = jnp.zeros_like(ids).at[rank].set(ordered)
    count = rank[-1] + 1
    distinct = distinct[jnp.arange(size) % count]
    position = jnp.zeros_like(rank).at[order].set(rank)

    def rows_of(ids: Tensor) -> Tensor:
        return jnp.take(function(ids), position, axis=0, mode="clip")

    if variables is None or size < 2:
        return rows_of(distinct)
    half = distinct[: size // 2]
    arguments = (lambda: rows_of(half), lambda: rows_of(distinct), variables)
    return cond(count <= size // 2, *arguments)


def recomputed_map(function: Callable, values: Sequence[Tensor], starts: Tensor) -> Tensor:
    """`function(values, start)` of each of `starts` (S,), one after another: (S, ...).

    Its gradient, by `values`, computes each of them again: nothing that is inside is kept.
    """
    # No common computations to be kept apart: each is in its own iteration of the loop.
    body = jax.checkpoint(functools.partial(function, values), prevent_cse=False)
    return jax.lax.map(body, starts)


def apply_adagrad(
    variable: keras.Variable,
    accumulator: keras.Variable,
    ids: Tensor,
    gradient: Tensor,
    learning_rate: Tensor,
    epsilon: float,
) -> None:
    """a += g^2; c -= learning_rate * g / (sqrt(a) + epsilon) on the distinct rows `ids`."""
    sums = gather_rows(accumulator, ids) + jnp.square(gradient)
    scatter_update(accumulator, ids, sums)
    scatter_add(variable, ids, -learning_rate * gradient / (jnp.sqrt(sums) + epsilon))


def gradients_and_aux(function: Callable, arrays: Sequence[Tensor]) -> tuple:
    """Of `scalar, aux = function(*arrays)`: the gradients of the scalar, and aux.

    What `function` closes over can still be differentiated through aux.
    """
    return jax.grad(function, argnums=tuple(range(len(arrays))), has_aux=True)(*arrays)


def share_backward(function: Callable) -> Callable:
    """`function` itself: XLA computes once what two backward passes have in common."""
    return function


def is_concrete(x: Tensor) -> bool:
    """Whether the values of `x` can be looked at now."""
    return not isinstance(x, jax.core.Tracer)


def random_integers(shape: Sequence, maximum: Tensor, seed: Tensor) -> Tensor:
    """Integers uniform on `[0, maximum)`, `maximum` (int32) broadcast against `shape`.

    64 random bits are scaled, so a probability is off by at most 2**-33 of itself; the
    remainder of 32 bits (as both backends' own `randint` takes) can be off by a factor of 2.
    """
    high, low = jax.random.bits(seed, (2, *shape), jnp.uint32)
    maximum = jnp.asarray(maximum).astype(jnp.uint32)
    carried = _high_word(low, maximum)
    bottom = high * maximum + carried
    scaled = _high_word(high, maximum) + (bottom < carried).astype(jnp.uint32)
    return scaled.astype(jnp.int32)


random_points = random_integers  # in as few operations as any


def random_uniform(shape: Sequence, seed: Tensor, dtype: str = "float32") -> Tensor:
    """Numbers uniform on `[0, 1)`: multiples of 2**-23."""
    return jax.random.uniform(seed, tuple(shape), dtype)


def random_words(shape: Sequence, seed: Tensor) -> Tensor:
    """Integers uniform on `[0, 2^16)`, int32."""
    return jax.random.bits(seed, tuple(shape), jnp.uint16).astype(jnp.int32)


def _high_word(a: Tensor, b: Tensor) -> Tensor:
    """The upper 32 bits of the 64-bit product of two uint32 (JAX has no 64-bit integers)."""
    a_high, a_low, b_high, b_low = a >> 16, a & 0xFFFF, b >> 16, b & 0xFFFF
    middle = a_high * b_low + ((a_low * b_low) >> 16)
    other = a_low * b_high + (middle & 0xFFFF)
    return a_high * b_high + (middle >> 16) + (other >> 16)


def write_mark(variable: keras.Variable) -> object:
    """The array that the variable holds: another one once it is assigned or traced again."""
    return variable.value


def replicas() -> int:
    """How many replicas of its own variables a model trains at once: JAX shards one."""
    return 1


def mean_of_replicas(mean: Tensor, weight: Tensor) -> Tensor:
    """A mean over examples of total weight `weight`: JAX has one replica, of the whole batch."""
    return mean


def on_cpu() -> bool:
    """Whether computations run on a CPU."""
    return jax.default_backend() == "cpu"


def copies_bfloat16() -> bool:
    """Whether a scatter into a bfloat16 variable makes a float32 copy of it: on a CPU it does."""
    return on_cpu() and "float-normalization-bf16" not in os.environ.get("XLA_FLAGS", "")


def device_memory() -> tuple[int, int] | None:
    """Bytes held on the accelerator, now and at most; None on a CPU."""
    statistics = jax.devices()[0].memory_stats()
    return statistics and (statistics["bytes_in_use"], statistics["peak_bytes_in_use"])

"""What `softbench.streaming` needs of JAX.

Shape letters: n rows, R examples of a tile, P labels, C classes of a block.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from softbench.common import Tensor


def differentiable(
    value: Callable, forward: Callable, backward: Callable, arrays: tuple, fixed: Any
) -> Tensor:
    """`value(arrays, fixed)`, whose gradient by the arrays is what `backward` makes.

    Args:
        value: what is called where no gradient will be wanted, if that can be seen.
        forward: the same arguments -> value, and what `backward` needs.
        backward: arrays, fixed, what it needs, the gradient from above -> gradients of the arrays.
        arrays: a tuple of arrays.
        fixed: a tree of arrays that are not differentiated.
    """
    function = jax.custom_vjp(value)

    def kept(arrays: tuple, fixed: Any) -> tuple:
        result, rest = forward(arrays, fixed)
        return result, (arrays, fixed, rest)

    function.defvjp(kept, lambda kept, upstream: (backward(*kept, upstream), None))
    return function(arrays, fixed)


def loop(count: Tensor | int, step: Callable, state: tuple) -> tuple:
    """`state = step(index, state)` for each index below `count`."""
    return jax.lax.fori_loop(0, count, step, state)


def buffer(shape: tuple) -> Tensor:
    """float32 zeros for `write` and `add_rows`."""
    return jnp.zeros(shape, jnp.float32)


def write(x: Tensor, block: Tensor, start: Tensor) -> Tensor:
    """`x` with `block` from its row `start` on, in place where it is not used any more."""
    return jax.lax.dynamic_update_slice_in_dim(x, block, start, 0)


def add_rows(x: Tensor, ids: Tensor, rows: Tensor) -> Tensor:
    """`x` (n, ...) with rows (R, P, ...) added to its rows `ids` (R, P), if they are in [0, n)."""
    return x.at[jnp.where(ids < 0, x.shape[0], ids)].add(rows, mode="drop")


def scaled(x: Tensor, factor: Tensor) -> Tensor:
    """`x` times a scalar, and 0 where that is 0, whatever x is."""
    return jnp.where(factor == 0, 0.0, x * factor)


def exclude(scores: Tensor, column: Tensor, value: float) -> Tensor:
    """Scores (R, C), of which `value` takes the place in the columns (R, P) that there are."""
    column = jnp.where(column < 0, scores.shape[1], column)  # past the end, which is dropped
    example = jnp.arange(scores.shape[0])[:, None]
    return scores.at[example, column].set(value, mode="drop")


def pulled(function: Callable, arrays: tuple, upstream: Tensor) -> tuple:
    """The gradients by `arrays` of `function(*arrays)`, of which `upstream` is that from above."""
    return jax.vjp(function, *arrays)[1](upstream)


def product_dtype(dtype: str) -> str:
    """What is multiplied under a compute dtype.

    Products of bfloat16 have float32 sums; float16 would not hold small probabilities.
    """
    return "bfloat16" if dtype == "bfloat16" else "float32"


def product(
    a: Tensor, b: Tensor, *, transpose_a: bool = False, transpose_b: bool = False
) -> Tensor:
    """a b in float32, of which one may be transposed first."""
    a, b = a.T if transpose_a else a, b.T if transpose_b else b
    return jnp.matmul(a, b, preferred_element_type=jnp.float32)

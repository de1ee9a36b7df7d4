"""Matrix products on JAX as `keras.ops.matmul` does not make them.

Shape letters: R and K rows, D columns, P parts of g columns each.
"""

import jax
import jax.numpy as jnp

from softbench.common import Tensor


def matmul_transposed(a: Tensor, b: Tensor) -> Tensor:
    """a b^T of a (..., R, D) and b (..., K, D): neither it nor its gradient transposes b."""
    return jnp.matmul(a, jnp.swapaxes(b, -1, -2))


def matmul_float32(a: Tensor, b: Tensor) -> Tensor:
    """a b, each product in float32: an accelerator's default rounds what it multiplies."""
    return jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST)


def matmul_by_parts(a: Tensor, b: Tensor, parts: int) -> Tensor:
    """a_p b_p^T in float32 for each of P parts of the columns of a (R, P g) and b (K, P g).

    Returns:
        (R, P K), the first part's products first.
    """
    a, b = (jnp.reshape(x, (x.shape[0], parts, -1)) for x in (a, b))
    found = jnp.einsum("rpg,kpg->rpk", a, b, precision=jax.lax.Precision.HIGHEST)
    return jnp.reshape(found, (a.shape[0], -1))

"""Matrix products on TensorFlow as `keras.ops.matmul` does not make them.

Shape letters: R and K rows, D columns, P parts of g columns each.
"""

import tensorflow as tf

from softbench.common import Tensor


def matmul_transposed(a: Tensor, b: Tensor) -> Tensor:
    """a b^T of a (..., R, D) and b (..., K, D): neither it nor its gradient transposes b."""
    return tf.matmul(a, b, transpose_b=True)


def matmul_float32(a: Tensor, b: Tensor) -> Tensor:
    """a b in float32; on a GPU TensorFlow rounds to TF32 what it multiplies, unless told not to."""
    return tf.matmul(a, b)


def matmul_by_parts(a: Tensor, b: Tensor, parts: int) -> Tensor:
    """a_p b_p^T in float32 for each of P parts of the columns of a (R, P g) and b (K, P g).

    Returns:
        (R, P K), the first part's products first. Not one product of (P, R, g): transposing to that
        shape and back takes longer than the products.
    """
    pairs = zip(tf.split(a, parts, axis=1), tf.split(b, parts, axis=1), strict=True)
    return tf.concat([tf.matmul(x, y, transpose_b=True) for x, y in pairs], axis=1)

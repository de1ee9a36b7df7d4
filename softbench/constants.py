"""Weights that nothing trains."""

import keras
import numpy as np
from keras import ops


def add_constant(layer: keras.layers.Layer, name: str, value: np.ndarray) -> keras.Variable:
    """A weight of `layer`, float32 or int32: saved with it, never trained, never cast."""
    dtype = "float32" if np.issubdtype(value.dtype, np.floating) else "int32"
    return layer.add_weight(
        name=name,
        shape=value.shape,
        dtype=dtype,
        initializer=lambda shape, dtype=None: ops.convert_to_tensor(value, dtype=dtype),
        trainable=False,
        autocast=False,
    )

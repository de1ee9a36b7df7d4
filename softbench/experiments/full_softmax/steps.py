"""Forward and backward of the exact softmax: gradients of hidden vectors and table, no update.

A method is {"product": True}, the three matrix products alone in the compute dtype, of which the
first's result takes the place of the scores' gradient; {"keras": True}, a `Dense` layer without
bias and Keras' cross-entropy from logits; or a row of `FullSoftmax`, with "chunks" the number of
chunks that its `class_chunk` makes of n. XLA compiles all but the products, as it does in Keras'
`fit`; with "jit_compile": False TensorFlow runs them as a graph.

Shape letters: B batch, n classes, d features.
"""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from softbench.bench.training import build
from softbench.ops import steps as compiled_steps

_SCALE = 4.0  # standard deviation of the logits


def make_inputs(model: dict, num_classes: int, seed: int) -> tuple[Any, Any]:
    """Returns normal hidden vectors (B, d) and uniform labels (B,)."""
    generator = np.random.default_rng(seed)
    hidden = generator.standard_normal((model["batch_size"], model["dim"]), "float32")
    labels = generator.integers(num_classes, size=model["batch_size"]).astype("int32")
    return ops.convert_to_tensor(hidden), ops.convert_to_tensor(labels)


def make_step(method: dict, model: dict, num_classes: int, seed: int) -> Callable:
    """Returns step(hidden, labels) -> gradients of hidden (B, d) and table, (n, d) or (d, n)."""
    generator = np.random.default_rng(seed + 1)
    rows = generator.standard_normal((num_classes, model["dim"]), "float32")
    rows *= np.float32(_SCALE / np.sqrt(model["dim"]))
    policy = keras.DTypePolicy(model["dtype"])
    if "product" in method:
        return _products(ops.cast(rows, policy.compute_dtype))
    if "keras" in method:
        layer: Any = keras.layers.Dense(
            num_classes, use_bias=False, kernel_initializer="zeros", dtype=policy
        )
        layer.build((None, model["dim"]))
        kernel, rows = layer.kernel, rows.T
        cross_entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

        def loss(hidden: Any, labels: Any) -> Any:
            return cross_entropy(labels, layer(hidden))
    else:
        kwargs = {**method.get("kwargs", {}), "kernel_initializer": "zeros", "dtype": policy}
        if "chunks" in method:
            kwargs["class_chunk"] = max(num_classes // method["chunks"], 1)
        layer = build.head({**method, "kwargs": kwargs}, num_classes, np.ones(num_classes), seed)
        layer.build((None, model["dim"]))
        kernel = layer.table.kernel

        def loss(hidden: Any, labels: Any) -> Any:
            return ops.mean(layer(hidden, labels, training=True))

    kernel.assign(rows)
    return compiled_steps.compile_gradients(loss, kernel, method.get("jit_compile", True))


def _products(rows: Any) -> Callable:
    def products(hidden: Any, rows: Any) -> tuple:
        scores = ops.matmul(hidden, ops.transpose(rows))
        return ops.matmul(scores, rows), ops.matmul(ops.transpose(scores), hidden)

    call = compiled_steps.Calls([]).compile(products)
    return lambda hidden, labels: call(ops.cast(hidden, rows.dtype), rows)

"""A Keras model's training step as one `tf.function`."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf


def compile_step(model: keras.Model, optimizer: keras.optimizers.Optimizer) -> Callable:
    """Returns step(x, y) -> loss for a model ([x, y] -> losses) that adds its own loss.

    XLA compiles it where every layer allows that: the rule that Keras' own `fit` follows.
    """
    optimizer.build(model.trainable_variables)
    model.compile(optimizer=optimizer)

    @tf.function(jit_compile=model.jit_compile, autograph=False)
    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            model([x, y], training=True)
            loss = tf.add_n(model.losses)
        variables = model.trainable_variables
        gradients = tape.gradient(loss, [variable.value for variable in variables])
        optimizer.apply(gradients, variables)
        return loss

    return step


def compile_gradients(
    loss: Callable, variable: keras.Variable, jit_compile: bool = True
) -> Callable:
    """Returns step(x, y) -> gradients of `loss(x, y)` by x and by the variable.

    Args:
        loss: of arrays, a scalar, which may read the variable.
        variable: of Keras.
        jit_compile: whether XLA compiles the step, as in Keras' `fit`, or it runs as a graph.
    """

    @tf.function(jit_compile=jit_compile, autograph=False)
    def step(x: Any, y: Any) -> list:
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = loss(x, y)
        return tape.gradient(value, [x, variable.value])

    return step


compile_divided = None  # `keras.distribution` works on JAX alone


def wait(result: Any) -> None:
    """Waits for what runs on a device; on a CPU a `tf.function` returns when all is done."""
    tf.test.experimental.sync_devices()


class Calls:
    """Functions compiled as graphs (`tf.function`); the variables keep what they assign."""

    wait = staticmethod(wait)

    def __init__(self, variables: list[keras.Variable]) -> None:
        self.add(variables)

    def add(self, variables: list[keras.Variable]) -> None:
        """Takes more variables; a graph finds its own."""

    def compile(self, function: Callable) -> Callable:
        """Returns the compiled function. Not by XLA, which would copy a variable to update it."""
        return tf.function(function, autograph=False)

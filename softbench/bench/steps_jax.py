"""A Keras model's training step as one compiled JAX call, its state donated."""

from collections.abc import Callable

import jax
import keras


def compile_step(model: keras.Model, optimizer: keras.optimizers.Optimizer) -> Callable:
    """Returns step(x, y) -> loss for a model ([x, y] -> losses) that adds its own loss."""
    optimizer.build(model.trainable_variables)

    def loss_of(trainable: list, fixed: list, x: jax.Array, y: jax.Array) -> tuple:
        _, fixed, losses = model.stateless_call(
            trainable, fixed, [x, y], training=True, return_losses=True
        )
        return sum(losses), fixed

    def update(trainable: list, fixed: list, slots: list, x: jax.Array, y: jax.Array) -> tuple:
        gradient = jax.value_and_grad(loss_of, has_aux=True)
        (loss, fixed), gradients = gradient(trainable, fixed, x, y)
        trainable, slots = optimizer.stateless_apply(slots, gradients, trainable)
        return loss, (trainable, fixed, slots)

    compiled = jax.jit(update, donate_argnums=(0, 1, 2))
    variables = (model.trainable_variables, model.non_trainable_variables, optimizer.variables)
    state = tuple([variable.value for variable in group] for group in variables)

    def step(x: jax.Array, y: jax.Array) -> tuple:
        nonlocal state
        loss, state = compiled(*state, x, y)
        return loss, state

    return step


def wait(result: tuple) -> None:
    """Waits for the loss and for the new state."""
    jax.block_until_ready(result)

"""A Keras model's training step as one compiled JAX call, its state donated."""

from collections.abc import Callable
from typing import Any

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


def compile_gradients(
    loss: Callable, variable: keras.Variable, jit_compile: bool = True
) -> Callable:
    """Returns step(x, y) -> gradients of `loss(x, y)` by x and by the variable.

    Args:
        loss: of arrays, a scalar, which may read the variable.
        variable: of Keras.
        jit_compile: whether XLA compiles the step, as it always does here.
    """

    def of_value(x: jax.Array, value: jax.Array, y: jax.Array) -> jax.Array:
        with keras.StatelessScope([(variable, value)]):
            return loss(x, y)

    compiled = jax.jit(jax.grad(of_value, argnums=(0, 1)))
    return lambda x, y: compiled(x, variable.value, y)


def compile_divided(
    model: keras.Model, optimizer: keras.optimizers.Optimizer, inputs: list
) -> tuple[Callable, Any]:
    """Returns step(inputs) -> (loss, state) on the devices of the distribution of now.

    The second result is the compiled form: `as_text()` is its HLO.

    Args:
        model: inputs -> losses; it adds its own loss, and was built under the distribution.
        inputs: arrays of one batch, all of it.
    """
    optimizer.build(model.trainable_variables)
    groups = model.trainable_variables, model.non_trainable_variables, optimizer.variables
    state = [[variable.value for variable in group] for group in groups]

    def update(state: list, inputs: list) -> tuple:
        def loss_of(trainable: list) -> tuple:
            options = {"training": True, "return_losses": True}
            _, fixed, losses = model.stateless_call(trainable, state[1], inputs, **options)
            return sum(losses), fixed

        (loss, fixed), gradients = jax.value_and_grad(loss_of, has_aux=True)(state[0])
        trainable, slots = optimizer.stateless_apply(state[2], gradients, state[0])
        return loss, [trainable, fixed, slots]

    layouts = jax.tree.map(lambda x: x.sharding, state)
    lowered = jax.jit(update, donate_argnums=0, out_shardings=(None, layouts)).lower
    compiled = lowered(state, [_placed(x) for x in inputs]).compile()

    def step(inputs: list) -> tuple:
        nonlocal state
        loss, state = compiled(state, [_placed(x) for x in inputs])
        for group, values in zip(groups, state, strict=True):
            for variable, value in zip(group, values, strict=True):
                variable.assign(value)
        return loss, state

    return step, compiled


def _placed(x: Any) -> jax.Array:
    """A batch (B, ...) where the distribution of now has it."""
    distribution = keras.distribution.distribution()
    if distribution is None:
        return jax.numpy.asarray(x)
    return jax.device_put(x, distribution.get_data_layout(x.shape).backend_layout)


wait = jax.block_until_ready  # of a step: for the loss and for the new state


class Calls:
    """Compiled functions that read and assign one set of Keras variables.

    What a function assigns is donated to it, so that an update of a few rows is in place; its new
    value is what the other functions read from then on.
    """

    wait = staticmethod(wait)

    def __init__(self, variables: list[keras.Variable]) -> None:
        self._variables: list[keras.Variable] = []
        self._values: list[jax.Array] = []
        self.add(variables)

    def add(self, variables: list[keras.Variable]) -> None:
        """Takes more variables, for the functions compiled from now on."""
        known = {id(variable) for variable in self._variables}
        variables = [variable for variable in variables if id(variable) not in known]
        self._variables += variables
        self._values += [variable.value for variable in variables]

    def compile(self, function: Callable) -> Callable:
        """Returns the compiled function; it gives (result, the assigned values)."""
        size = len(self._variables)
        order: list[int] = []  # the assigned variables
        traced = False

        def stateless(values: list, *arguments: jax.Array) -> tuple:
            pairs = list(zip(self._variables[:size], values, strict=True))
            with keras.StatelessScope(state_mapping=pairs) as scope:
                before = [scope.get_current_value(variable) for variable, _ in pairs]
                result = function(*arguments)
                after = [scope.get_current_value(variable) for variable, _ in pairs]
            order[:] = [i for i in range(size) if after[i] is not before[i]]
            return result, [after[i] for i in order]

        def split(donated: list, others: list, *arguments: jax.Array) -> tuple:
            values = list(others)
            for i, value in zip(list(order), donated, strict=True):
                values[i] = value
            return stateless(values, *arguments)

        compiled = jax.jit(split, donate_argnums=0)

        def call(*arguments: jax.Array) -> tuple:
            nonlocal traced
            if not traced:  # once, also where nothing is assigned
                jax.eval_shape(stateless, self._values[:size], *arguments)
                traced = True
            donated = [self._values[i] for i in order]
            others = [None if i in order else self._values[i] for i in range(size)]
            result, assigned = compiled(donated, others, *arguments)
            for i, value in zip(order, assigned, strict=True):
                self._values[i] = value
            return result, assigned

        return call

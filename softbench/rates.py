"""The learning rate of a row optimizer: a number, a schedule, or that of the model's optimizer."""

import numbers
from typing import Any

import keras
import numpy as np
from keras import ops
from keras.optimizers.schedules import LearningRateSchedule

from softbench.common import Tensor, check_number
from softbench.ops import read
from softbench.state import add_state

Rate = float | str | dict | LearningRateSchedule  # what `learning_rate` may be


class LearningRate:
    """What a row optimizer's `learning_rate` was given as, and what it is now.

    Args:
        given: a positive number, which a variable of the table holds, so that a compiled step sees
            when it is set; a schedule; "model" or {"model": multiple} for the rate of the model's
            optimizer, which `follow` puts into the variable.
    """

    def __init__(self, given: Rate) -> None:
        self.schedule: LearningRateSchedule | None = None
        self.multiple: float | None = None
        self.variable: keras.Variable | None = None
        self.number = 0.0
        if isinstance(given, str) and given == "model":
            given = {"model": 1.0}
        if isinstance(given, dict) and set(given) == {"model"}:
            check_number(0, exclusive=True, learning_rate=given["model"])
            self.multiple = given["model"]
        elif isinstance(given, LearningRateSchedule | dict):
            is_config = isinstance(given, dict)
            self.schedule = keras.optimizers.schedules.deserialize(given) if is_config else given
        else:
            check_number(0, exclusive=True, learning_rate=given)
            self.number = given
        self.known = self.multiple is None  # whether a step can use it

    def attach(self, layer: keras.layers.Layer) -> keras.Variable | None:
        """The variable, made as a weight of the first layer that asks; None of a schedule."""
        if self.variable is None and self.schedule is None:
            start = keras.initializers.Constant(self.number)
            self.variable = add_state(layer, "learning_rate", initializer=start)
        return self.variable

    def now(self) -> Any:
        """The variable or the schedule; before there is a variable, what it is given as."""
        return self.config() if self.variable is None else self.variable

    def at(self, iterations: keras.Variable) -> Tensor:
        """The rate (), float32, of the step after `iterations`."""
        if self.schedule is not None:
            return ops.cast(self.schedule(iterations), "float32")
        return ops.cast(self.number if self.variable is None else read(self.variable), "float32")

    def check(self) -> None:
        """Raise a ValueError before a training step that has no rate."""
        if not self.known:
            raise ValueError(
                "`learning_rate` 'model' of a row optimizer needs the rate of the model's "
                "optimizer: train with `softbench.Classifier`, fit with the callback "
                "`softbench.callbacks.FollowLearningRate()`, or call "
                "`row_optimizer.follow(optimizer)` before each step of your own. "
                f"Received: learning_rate={self.config()!r} and no rate"
            )

    def set(self, value: Any) -> None:
        """Take another number from the next step on."""
        if self.schedule is not None or isinstance(value, LearningRateSchedule):
            raise ValueError(
                "`learning_rate` can be set to a number, where it was not given as a schedule; "
                "give a schedule when the row optimizer is made. "
                f"Received: learning_rate={value!r} after {self.now()!r}"
            )
        if isinstance(value, numbers.Real) or not hasattr(value, "dtype"):
            check_number(0, learning_rate=value)
        if self.variable is None:
            self.number = float(value)
        else:
            self.variable.assign(ops.cast(value, "float32"))
            self.number = value if isinstance(value, numbers.Real) else self.number
        self.known = True

    def follow(self, optimizer: keras.optimizers.Optimizer) -> None:
        """Take the multiple of what a Keras optimizer's rate is now."""
        if self.multiple is None:
            raise ValueError(
                "`learning_rate` must be 'model' or {'model': multiple} to follow an optimizer. "
                f"Received: learning_rate={self.config()!r}"
            )
        rate = ops.convert_to_tensor(optimizer.learning_rate, dtype="float32")
        self.set(rate * self.multiple)

    def config(self) -> Any:
        """What `LearningRate` takes to be this one: a number is that of now."""
        if self.schedule is not None:
            return keras.saving.serialize_keras_object(self.schedule)
        if self.multiple is not None:
            return "model" if self.multiple == 1 else {"model": self.multiple}
        if self.variable is None:
            return self.number
        found = ops.convert_to_numpy(self.variable)
        return self.number if np.float32(self.number) == found else float(found)


def row_optimizers(model: keras.Model) -> list:
    """The distinct row optimizers of a model's tables."""
    found = (getattr(part, "row_optimizer", None) for part in model._flatten_layers())
    return list({id(own): own for own in found if own is not None}.values())


def check_optimizer(model: keras.Model) -> None:
    """Raise a ValueError if a model's optimizer is told what row optimizers do not do."""
    if not row_optimizers(model):
        return
    scaled = isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    if scaled and any(hasattr(part, "row_gradient") for part in model._flatten_layers()):
        raise ValueError(
            "`optimizer` must not be a LossScaleOptimizer beside a `RowEmbedding` or a "
            "`TiedEmbedding`: the scale would stay in the gradient of its rows. Use "
            f"'mixed_bfloat16'. Received: optimizer={model.optimizer.name}"
        )
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    for name in ("gradient_accumulation_steps", "use_ema"):
        value = getattr(optimizer, name, None)
        if value:
            raise ValueError(
                f"`{name}` of the model's optimizer does not reach the rows that a "
                "`row_optimizer` updates: they move at every batch, and are not averaged. Use "
                f"`row_optimizer=None`, or leave `{name}` out. Received: {name}={value}"
            )


def follow(model: keras.Model, state: tuple) -> tuple:
    """Give the rows of a model that follow its optimizer the rate of the step that begins.

    Args:
        model: of `Classifier`'s kind.
        state: () where variables hold the state; else one tuple of arrays: those of the trainable
            variables, of the others, of the optimizer's, and of the metrics'.

    Returns:
        The state, with these rates in it.
    """
    followers = [own for own in row_optimizers(model) if own.rate.multiple is not None]
    if not followers:
        return state
    if not state:
        for own in followers:
            own.follow(model.optimizer)
        return state
    trainable, others, slots, metrics = state[0]
    variables = model.non_trainable_variables
    pairs = [*zip(variables, others, strict=True)]
    pairs += zip(model.optimizer.variables, slots, strict=True)
    with keras.StatelessScope(pairs) as scope:
        for own in followers:
            own.follow(model.optimizer)
        others = [scope.get_current_value(v) for v in variables]
    return ((trainable, others, slots, metrics),)

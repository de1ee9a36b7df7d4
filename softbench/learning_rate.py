"""The learning rate of a row optimizer, and what the model's optimizer may not be told."""

import numbers
from typing import Any

import keras
import numpy as np
from keras import ops
from keras.optimizers.schedules import LearningRateSchedule

from softbench.common import Tensor, check_number
from softbench.ops import read
from softbench.state import add_state

Rate = float | dict | LearningRateSchedule  # what `learning_rate` may be


class LearningRate:
    """What a row optimizer's `learning_rate` was given as, and what it is now.

    Args:
        given: a positive number, which a variable of the table holds, so that a compiled step sees
            when it is set; or a schedule, also in its serialised form.
    """

    def __init__(self, given: Rate) -> None:
        self.schedule: LearningRateSchedule | None = None
        self.variable: keras.Variable | None = None
        self.number = 0.0
        if isinstance(given, dict):
            given = keras.optimizers.schedules.deserialize(given)
        if isinstance(given, LearningRateSchedule):
            self.schedule = given
        else:
            check_number(0, exclusive=True, learning_rate=given)
            self.number = given

    def attach(self, layer: keras.layers.Layer) -> keras.Variable | None:
        """The variable, made by the first layer that asks; None of a schedule."""
        if self.variable is None and self.schedule is None:
            start = keras.initializers.Constant(self.number)
            self.variable = add_state(layer, "learning_rate", initializer=start)
        return self.variable

    def now(self) -> Any:
        """The schedule, or the variable; the number before there is a variable."""
        if self.schedule is not None:
            return self.schedule
        return self.number if self.variable is None else self.variable

    def at(self, iterations: keras.Variable) -> Tensor:
        """The rate (), float32, of the step after `iterations`."""
        if self.schedule is not None:
            return ops.cast(self.schedule(iterations), "float32")
        return ops.cast(self.number if self.variable is None else read(self.variable), "float32")

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

    def config(self) -> Any:
        """What `LearningRate` takes to be this one: a number is that of now."""
        if self.schedule is not None:
            return keras.saving.serialize_keras_object(self.schedule)
        if self.variable is None:
            return self.number
        found = ops.convert_to_numpy(self.variable)
        return self.number if np.float32(self.number) == found else float(found)


def check_optimizer(model: keras.Model) -> None:
    """Raise a ValueError if a model's optimizer is told what row optimizers do not do."""
    layers = list(model._flatten_layers())
    if all(getattr(layer, "row_optimizer", None) is None for layer in layers):
        return
    scaled = isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    if scaled and any(hasattr(layer, "row_gradient") for layer in layers):
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

"""Row-wise optimizers: they update the rows of a table that a batch touched, and only those.

A dense optimizer passes over all n*d entries at every step. These cost O(U d) for U touched rows.
Under a `tf.distribute` strategy of several replicas a training step raises an error: each replica
would update a copy of the table by its own part of the batch.
Shape letters: n rows, d columns, U distinct row ids.
"""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from softbench.common import PACKAGE, Tensor, check_number
from softbench.learning_rate import LearningRate, Rate
from softbench.ops import apply_adagrad
from softbench.rounding import add_to_rows, is_rounded, read_rows, write_rows
from softbench.state import Arguments, saved_arguments


class RowOptimizer:
    """Base class. A subclass names its slots and says how a touched row moves.

    What the model's own optimizer is told does not reach these rows, which have moved before the
    gradient of the rest is known. Its `clipnorm`, `clipvalue` and `global_clipnorm` neither clip
    nor count their gradient. Its loss scale does not multiply their gradient, so a step that it
    skips because scaled gradients overflow is skipped here only if this gradient is not finite.
    `use_ema` and `gradient_accumulation_steps` do not reach them; `Classifier` raises an error.

    Args:
        learning_rate: a positive float, or a `keras.optimizers.schedules.LearningRateSchedule`
            that is called with the number of updates already made.
        clipnorm: None, or the most that the norm of the gradient of one variable may be, over all
            rows that the batch touched; a larger one is scaled down to it, as by Keras.
        clipvalue: None, or the most that an entry of the gradient may be in absolute value.
        global_clipnorm: as `clipnorm`, of one norm over kernel and bias together.

    Raises:
        ValueError: if `learning_rate` is none of these, if a limit is not positive, or if more
            than one is given.
    """

    arguments: Arguments = ("learning_rate", "clipnorm", "clipvalue", "global_clipnorm")
    per_row = False  # whether a slot has one number for each row

    def __init__(
        self,
        learning_rate: Rate,
        clipnorm: float | None = None,
        clipvalue: float | None = None,
        global_clipnorm: float | None = None,
    ) -> None:
        self.rate = LearningRate(learning_rate)
        limits = {
            "clipnorm": clipnorm,
            "clipvalue": clipvalue,
            "global_clipnorm": global_clipnorm,
        }
        given = {name: limit for name, limit in limits.items() if limit is not None}
        check_number(0, exclusive=True, **given)
        if len(given) > 1:
            raise ValueError(
                "Only one of `clipnorm`, `clipvalue` and `global_clipnorm` can be given. "
                f"Received: {', '.join(f'{name}={limit}' for name, limit in given.items())}"
            )
        self.clipnorm, self.clipvalue = clipnorm, clipvalue
        self.global_clipnorm = global_clipnorm
        self.slots: dict[str, float] = {}  # name -> initial value of every entry

    @property
    def learning_rate(self) -> Any:
        """A Keras variable once a table is built, to be set at any time; or the schedule."""
        return self.rate.now()

    @learning_rate.setter
    def learning_rate(self, value: Any) -> None:
        self.rate.set(value)

    def create_slots(
        self, add_weight: Callable, variable: keras.Variable, dtype: str = "float32"
    ) -> list[keras.Variable]:
        """One non-trainable variable of the shape of `variable`, or (n,), for each slot.

        `dtype` "bfloat16" is for matrices: slots of shape (n,) are float32.
        """
        shape = variable.shape[:1] if self.per_row else variable.shape
        return [
            add_weight(
                name=f"{variable.name}_{name}",
                shape=shape,
                dtype=dtype if len(shape) > 1 else "float32",
                initializer=keras.initializers.Constant(value),
                trainable=False,
                autocast=False,
            )
            for name, value in self.slots.items()
        ]

    def update(
        self,
        variable: keras.Variable,
        slots: list[keras.Variable],
        ids: Tensor,
        gradient: Tensor,
        learning_rate: Tensor,
        step: Tensor,
        **rounding: Any,
    ) -> None:
        """Move the distinct rows `ids` (U,) of a variable, and its slots, given gradient (U, ...).

        `step` counts the updates of the table, this one included, from 1. Where the variable or a
        slot is bfloat16, `seed=` is the generator that their rows are rounded with.
        """
        raise NotImplementedError

    def apply(
        self,
        variables: list[keras.Variable],
        slots: list[list[keras.Variable]],
        iterations: keras.Variable,
        ids: Tensor,
        gradients: list[Tensor],
        rate: Tensor | None = None,
        seed: keras.random.SeedGenerator | None = None,
    ) -> None:
        """Update the distinct rows `ids` (U,) of every variable from `gradients` (U, ...)."""
        rate = self.rate.at(iterations) if rate is None else rate
        step = ops.cast(iterations, "float32") + 1.0
        gradients = self._clipped(gradients)
        for variable, own_slots, gradient in zip(variables, slots, gradients, strict=True):
            rounding = {"seed": seed} if any(map(is_rounded, (variable, *own_slots))) else {}
            self.update(variable, own_slots, ids, gradient, rate, step, **rounding)
        iterations.assign_add(1)

    def _clipped(self, gradients: list[Tensor]) -> list[Tensor]:
        """The gradients (U, ...) of a table's variables, clipped as Keras clips them."""
        if self.clipvalue is not None:
            return [ops.clip(g, -self.clipvalue, self.clipvalue) for g in gradients]
        if self.clipnorm is not None:
            return [_of_norm([g], self.clipnorm)[0] for g in gradients]
        if self.global_clipnorm is not None:
            return _of_norm(gradients, self.global_clipnorm)
        return gradients

    def get_config(self) -> dict:
        return {**saved_arguments(self), "learning_rate": self.rate.config()}

    @classmethod
    def from_config(cls, config: dict) -> "RowOptimizer":
        return cls(**config)


def _of_norm(arrays: list[Tensor], most: float) -> list[Tensor]:
    """Arrays scaled down, if need be, to a norm of at most `most` over them all."""
    norm = ops.sqrt(sum(ops.sum(ops.square(x)) for x in arrays))
    return [x * (most / ops.maximum(norm, most)) for x in arrays]


@keras.saving.register_keras_serializable(PACKAGE)
class RowSGD(RowOptimizer):
    """Stochastic gradient descent on the touched rows: c -= learning_rate * g.

    Equal to `keras.optimizers.SGD` on the dense gradient, whose other rows are zero. See
    `RowOptimizer` for clipping, and for what a Keras optimizer does not cover.
    """

    def __init__(
        self,
        learning_rate: Rate = 0.01,
        clipnorm: float | None = None,
        clipvalue: float | None = None,
        global_clipnorm: float | None = None,
    ) -> None:
        super().__init__(learning_rate, clipnorm, clipvalue, global_clipnorm)

    def update(self, variable, slots, ids, gradient, learning_rate, step, seed=None):
        add_to_rows(variable, ids, -learning_rate * gradient, seed)


@keras.saving.register_keras_serializable(PACKAGE)
class RowAdagrad(RowOptimizer):
    """Adagrad on the touched rows: a += g^2; c -= learning_rate * g / (sqrt(a) + epsilon).

    Equal to `keras.optimizers.Adagrad` on the dense gradient, where a row with zero gradient keeps
    its accumulator and its value. (Keras has epsilon inside the root: with the default values the
    step differs by less than 1e-6 of itself.)

    With the mean of a loss over B examples, the squared gradients of a class that few examples
    touch are about 1 / B^2. While their sum is far below `initial_accumulator_value` (0.1, as in
    Keras and TensorFlow), a step is learning_rate * g / sqrt(0.1): plain gradient descent, often at
    a tiny rate. From 1e-8, the first step of every entry is about `learning_rate`. See
    `RowOptimizer` for clipping, and for what a Keras optimizer does not cover.

    With `per_row`, row i of a matrix (n, d) has one number: a_i += sum_j g_ij^2 / d;
    c_ij -= learning_rate * g_ij / (sqrt(a_i) + epsilon). This is the row-wise Adagrad of FBGEMM and
    TorchRec, with the mean of the squares as there. (n,) slots instead of (n, d); biases as before.

    Args:
        initial_accumulator_value: of every a.
        epsilon: as in the formula.
        per_row: whether a matrix has one accumulator for each row.
        others: as in `RowOptimizer`.

    Example:
        >>> optimizer = softbench.RowAdagrad(0.1)
        >>> head = softbench.SampledSoftmax(10, "uniform", 5, row_optimizer=optimizer)
        >>> head.build((None, 4))
        >>> head.trainable_weights  # the head updates the touched rows of its table by itself
        []
    """

    arguments = ("initial_accumulator_value", "epsilon", "per_row")

    def __init__(
        self,
        learning_rate: Rate = 0.001,
        initial_accumulator_value: float = 0.1,
        epsilon: float = 1e-7,
        clipnorm: float | None = None,
        clipvalue: float | None = None,
        global_clipnorm: float | None = None,
        per_row: bool = False,
    ) -> None:
        super().__init__(learning_rate, clipnorm, clipvalue, global_clipnorm)
        self.per_row = bool(per_row)
        self.initial_accumulator_value = initial_accumulator_value
        self.epsilon = epsilon
        self.slots = {"accumulator": initial_accumulator_value}

    def update(self, variable, slots, ids, gradient, learning_rate, step, seed=None):
        by_row = self.per_row and len(variable.shape) > 1
        if seed is None and not by_row:
            apply_adagrad(variable, slots[0], ids, gradient, learning_rate, self.epsilon)
            return
        square = ops.square(gradient)
        sums = read_rows(slots[0], ids) + (ops.mean(square, axis=-1) if by_row else square)
        root = ops.expand_dims(ops.sqrt(sums), -1) if by_row else ops.sqrt(sums)
        write_rows(slots[0], ids, sums, seed)
        add_to_rows(variable, ids, -learning_rate * gradient / (root + self.epsilon), seed)


@keras.saving.register_keras_serializable(PACKAGE)
class RowAdam(RowOptimizer):
    """Lazy Adam: moments of a row move only at the steps that touch it.

    At step t, for the touched rows alone: m = beta_1 m + (1 - beta_1) g,
    v = beta_2 v + (1 - beta_2) g^2, and
    c -= learning_rate * sqrt(1 - beta_2^t) / (1 - beta_1^t) * m / (sqrt(v) + epsilon),
    where t counts all steps of the table. Equal to `keras.optimizers.Adam` as long as every row is
    touched at every step; a dense Adam also decays and applies the moments of untouched rows, which
    costs O(n d). This is the rule of TensorFlow Addons' LazyAdam. See `RowOptimizer` for
    clipping, and for what a Keras optimizer does not cover.

    Args:
        beta_1, beta_2: of the moments.
        epsilon: as in the formula.
        others: as in `RowOptimizer`.
    """

    arguments = ("beta_1", "beta_2", "epsilon")

    def __init__(
        self,
        learning_rate: Rate = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        clipnorm: float | None = None,
        clipvalue: float | None = None,
        global_clipnorm: float | None = None,
    ) -> None:
        super().__init__(learning_rate, clipnorm, clipvalue, global_clipnorm)
        self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon
        self.slots = {"momentum": 0.0, "velocity": 0.0}

    def update(self, variable, slots, ids, gradient, learning_rate, step, seed=None):
        momentum, velocity = (read_rows(slot, ids) for slot in slots)
        momentum = self.beta_1 * momentum + (1.0 - self.beta_1) * gradient
        velocity = self.beta_2 * velocity + (1.0 - self.beta_2) * ops.square(gradient)
        rate = learning_rate * ops.sqrt(1.0 - ops.power(self.beta_2, step))
        rate = rate / (1.0 - ops.power(self.beta_1, step))
        change = -rate * momentum / (ops.sqrt(velocity) + self.epsilon)
        add_to_rows(variable, ids, change, seed)
        write_rows(slots[0], ids, momentum, seed)
        write_rows(slots[1], ids, velocity, seed)


def get_row_optimizer(identifier: Any) -> RowOptimizer | None:
    """A row optimizer, itself or from its serialised form; None stays None.

    Raises:
        ValueError: for anything else.
    """
    if isinstance(identifier, dict):
        identifier = keras.saving.deserialize_keras_object(identifier)
    if identifier is not None and not isinstance(identifier, RowOptimizer):
        raise ValueError(
            "`row_optimizer` must be None or one of RowSGD, RowAdagrad, RowAdam. "
            f"Received: row_optimizer={identifier!r}"
        )
    return identifier

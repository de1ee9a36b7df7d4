"""Rows of a class table that an input layer reads too: one update from the gradients of both.

The head knows its gradient in the forward pass, the input layer's comes with the backward pass. So
both wait in variables, and the first call of the next step makes the update of their sum.
"""

import math
from typing import Any

import keras
from keras import ops

from softbench.common import Tensor
from softbench.ops import read, rows_when, write_mark
from softbench.state import add_state
from softbench.targets import Targets


class InputSide(keras.layers.Layer):
    """The ids that the input layer read last, and what flowed back to their rows.

    `row_gradient` is added to these rows less itself, so that its gradient is theirs, and Keras
    overwrites it with that.
    """

    def build(self, ids_shape: tuple, width: int) -> None:
        self.row_gradient = self.add_weight(
            name="row_gradient",
            shape=(*ids_shape, width),
            initializer="zeros",
            autocast=False,
            overwrite_with_gradient=True,
        )
        self.ids = add_state(self, "ids", tuple(ids_shape), dtype="int32")
        self.pending = add_state(self, "pending", dtype="int32")

    def gradient(self) -> list[Tensor]:
        """Ids (T,), and the gradient (T, d) of their rows."""
        gradient = ops.stop_gradient(read(self.row_gradient))
        return [ops.reshape(read(self.ids), (-1,)), ops.reshape(gradient, (-1, gradient.shape[-1]))]


class Tie(keras.layers.Layer):
    """What a table holds back of a head until the gradient of its `TiedEmbedding` has come.

    `held` is 1 from the head's training call to the update, or 2 if no example counted. A step in
    progress is known by `write_mark`: what has marked `held` in the same trace.

    Shape letters: N row ids of the head in a step, T of the input layer, d columns.
    """

    def __init__(self, dtype: Any) -> None:
        super().__init__(dtype=dtype, name="tie")
        self.input_side = InputSide(dtype=dtype, name="input_side")
        self.claimed = False  # by a `TiedEmbedding`
        self._mark: Any = None
        self._marked_by = ""

    @property
    def joins(self) -> bool:
        """Whether a head and an input layer use the rows, so that updates are of both."""
        return self.built and self.input_side.built

    def build_for(self, head: Any, hidden_shape: tuple) -> None:
        """Create the variables for a head that is called with hidden vectors of this shape."""
        if self.built:
            raise ValueError(
                "`table` must be of one head where it has a `row_optimizer` and a `TiedEmbedding`; "
                "with `row_optimizer=None` more heads can share it. "
                f"Received: {head.name}, the second head"
            )
        if None in hidden_shape:
            raise ValueError(
                "`hidden` must have a fixed shape, the batch included "
                "(`keras.Input(batch_shape=...)`), where a `TiedEmbedding` reads a table with a "
                "`row_optimizer`; or call `head.build((batch, ..., d))` first. "
                f"Received shape: {tuple(hidden_shape)}"
            )
        width = head.sampler.input_width or hidden_shape[-1]
        batch = math.prod(hidden_shape[:-1])
        features = keras.KerasTensor((batch, width), "float32")
        labels = keras.KerasTensor((batch,), "int32")
        (size,) = _Touched(head).compute_output_spec(features, labels).shape
        self.units = head.units
        self.build((size,), (size, hidden_shape[-1]), head.table.use_bias)

    def build(self, ids_shape: tuple, kernel_shape: tuple, use_bias: bool) -> None:
        self.ids = add_state(self, "ids", ids_shape, dtype="int32")
        self.gradients = [add_state(self, "kernel_gradient", kernel_shape)]
        if use_bias:
            self.gradients.append(add_state(self, "bias_gradient", ids_shape))
        self.held = add_state(self, "held", dtype="int32")
        self.rate = add_state(self, "rate")  # of the step whose update waits

    def _is_here(self) -> bool:
        """Whether the step in progress has come past here."""
        return self._mark is not None and self._mark is write_mark(self.held)

    def _set_mark(self, by: str) -> None:
        self._mark, self._marked_by = write_mark(self.held), by

    def enter(self, table: Any, training: bool) -> None:
        """At a call of the head: make what update is due."""
        here = self._is_here()
        if here and training and self._marked_by == "head":
            raise ValueError(
                "A head with a `TiedEmbedding` and a `row_optimizer` can be called with labels "
                "once in a training step: join the `labels`. Received: a second call"
            )
        if not here:
            self.update(table)
        if training:
            self.keep_rate(table)

    def keep_rate(self, table: Any) -> None:
        """Keep the learning rate of this step, which may be another one by the next."""
        self.rate.assign(table.row_optimizer.rate.at(table.iterations))

    def hold(self, ids: Tensor, gradients: list[Tensor], when: Any = None) -> None:
        """Keep the head's ids (N,) and the gradients of their rows; as `Table.train_rows`."""
        if ids.shape[0] not in (None, self.ids.shape[0]):
            raise ValueError(
                "`hidden` must have the shape that the head was built with, where a "
                "`TiedEmbedding` reads a table with a `row_optimizer`. "
                f"Received: {ids.shape[0]} rows instead of {self.ids.shape[0]}"
            )
        self.ids.assign(ids)
        for variable, gradient in zip(self.gradients, gradients, strict=True):
            variable.assign(ops.cast(gradient, "float32"))
        self.held.assign(1 if when is None else ops.where(when, 1, 2))
        self._set_mark("head")

    def read(self, table: Any, ids: Tensor, training: bool) -> Tensor:
        """Rows (..., d) of ids (...), of the fixed shape if in training, after what update is due.

        In training their gradient will be there when the next step begins.
        """
        side, here = self.input_side, self._is_here()
        if here and training and self._marked_by == "input":
            raise ValueError(
                "A `TiedEmbedding` of a table with a `row_optimizer` can be called once in a "
                "training step, which calls its head too: join the `ids`. Received: a second call"
            )
        if not here or (training and self._marked_by == "head"):
            self.update(table, between_steps=True)
            self._set_mark("update")
        rows = ops.stop_gradient(table.rows(ids))
        if training:
            gradient = read(side.row_gradient)
            rows = rows + ops.cast(gradient - ops.stop_gradient(gradient), rows.dtype)
            side.ids.assign(ids)
            side.pending.assign(1)
            self.keep_rate(table)
            self._set_mark("input")
        return rows

    def update(self, table: Any, between_steps: bool = False) -> None:
        """Make the update of the last step, if the head held it back.

        `between_steps` says that no step is in progress, so that what the input layer alone has
        left is complete too.
        """
        held, pending = read(self.held), read(self.input_side.pending) > 0
        done = ops.logical_or(held > 0, between_steps)
        ids, *gradients = self._kept(held == 1, read(self.ids), *(read(v) for v in self.gradients))
        ids_in, to_rows = self._kept(pending, *self.input_side.gradient())
        sides = [[ops.cast(to_rows, "float32")], [ops.zeros_like(ids_in, dtype="float32")]]
        joined = [ops.concatenate([g, *own]) for g, own in zip(gradients, sides, strict=False)]
        counts = ops.logical_or(held == 1, ops.logical_and(held == 0, pending))
        table.apply_row_gradients(
            ops.concatenate([ids, ids_in]),
            joined,
            when=ops.logical_and(done, counts),
            rate=read(self.rate),
        )
        self.held.assign(0)
        kept = ops.logical_and(pending, ops.logical_not(done))
        self.input_side.pending.assign(ops.cast(kept, "int32"))

    def _kept(self, condition: Tensor, ids: Tensor, *gradients: Tensor) -> list[Tensor]:
        """Ids and gradients if `condition`, else none, and nothing of what they hold."""
        gradients = tuple(ops.where(condition, g, 0.0) for g in gradients)
        ids, found = rows_when(condition, ids, gradients, self.units)
        return [ids, *found]


class _Touched(keras.Operation):
    """The ids (N,) of the rows that a training step touches: traced for their number."""

    def __init__(self, head: Any) -> None:
        super().__init__()
        self.head = head

    def call(self, features: Tensor, labels: Tensor) -> Tensor:
        drawn = self.head.draw(features, Targets(labels))
        ids = [ops.reshape(part.ids, (-1,)) for parts in drawn for part in parts]
        return ops.concatenate([labels, *ids])

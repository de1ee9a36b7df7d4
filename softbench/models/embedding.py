"""Embeddings whose rows alone are updated: at v = 1.6M a dense optimizer costs O(v d) a step.

Shape letters: B batch, d units, v rows; ids have the shape (B, ...).
"""

from typing import Any

import keras
from keras import layers, ops

from softbench.class_table import ClassTable
from softbench.common import PACKAGE, Tensor, check_positive
from softbench.ops import read
from softbench.rows import RowOptimizer
from softbench.state import add_state


@keras.saving.register_keras_serializable(PACKAGE)
class RowEmbedding(layers.Layer):
    """Embedding `(v, d)` that a row optimizer owns; it works under plain `fit` with any loss.

    The table is not in `trainable_weights`. Instead there is a variable of the shape of the
    output, which is added to the output less itself, so that its gradient is that of the gathered
    rows; Keras' optimizers overwrite it with that gradient (`overwrite_with_gradient`, made for
    float8 training). The next call, whether it trains, evaluates or predicts, first updates the
    rows of the last training batch from it, duplicated ids added up: no call sees a stale row,
    and a saved model continues where it stopped. Clipping of the model's optimizer does not see
    this gradient; loss scaling and gradient accumulation are not supported. Call it once in a
    training step: its gradient is that of one call. With `trainable=False` nothing moves, once the
    update of the last batch is made.

    Args:
        num_rows: v.
        dim: d.
        row_optimizer: `RowSGD`, `RowAdagrad` or `RowAdam`.
        embeddings_initializer: of the table.
        **kwargs: of `keras.layers.Layer`.

    Call: ids `(B, ...)` of one fixed shape in training -> `(B, ..., d)`.

    Raises:
        ValueError: if the shape of the ids is not fully static when the layer is built, or if it is
            trained under mixed_float16, whose loss scale Keras leaves in such a gradient.
    """

    def __init__(
        self,
        num_rows: int,
        dim: int,
        row_optimizer: RowOptimizer | dict,
        embeddings_initializer: Any = "uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_positive(num_rows=num_rows, dim=dim)
        if not isinstance(row_optimizer, (RowOptimizer, dict)):
            raise ValueError(
                "`row_optimizer` must be one of RowSGD, RowAdagrad, RowAdam. "
                f"Received: row_optimizer={row_optimizer!r}"
            )
        self.num_rows, self.dim = num_rows, dim
        self.table = ClassTable(
            num_rows,
            use_bias=False,
            row_optimizer=row_optimizer,
            kernel_initializer=embeddings_initializer,
            dtype=self.dtype_policy,
            name="table",
        )
        self.supports_jit = self.table.supports_jit

    def build(self, ids_shape: tuple) -> None:
        if None in ids_shape:
            raise ValueError(
                "`ids` must have a fixed shape, the batch included (`keras.Input(batch_shape=...)`"
                f"), for the rows to be updated. Received shape: {tuple(ids_shape)}"
            )
        self.table.build((None, self.dim))
        self.row_gradient = self.add_weight(
            name="row_gradient",
            shape=(*ids_shape, self.dim),
            initializer="zeros",
            autocast=False,
            overwrite_with_gradient=True,
        )
        integers = {"initializer": "zeros", "dtype": "int32", "trainable": False}
        self.last_ids = self.add_weight(name="last_ids", shape=tuple(ids_shape), **integers)
        self.pending = self.add_weight(name="pending", shape=(), **integers)
        self.rate = add_state(self, "rate")  # of the step whose update is pending

    def call(self, ids: Tensor, training: bool | None = None) -> Tensor:
        ids = ops.cast(ids, "int32")
        training = training and self.trainable and self.table.trainable
        if training:
            self.table.check_replicas()
            self._check_loss_scale()
        self.update_rows()
        rows = ops.stop_gradient(self.table.rows(ids))
        if training:
            gradient = read(self.row_gradient)
            rows = rows + (gradient - ops.stop_gradient(gradient))
            self.last_ids.assign(ids)
            self.pending.assign(1)
            self.rate.assign(self.table.row_optimizer.rate.at(self.table.iterations))
        return ops.cast(rows, self.compute_dtype)

    def _check_loss_scale(self) -> None:
        if self.dtype_policy.name == "mixed_float16":
            raise ValueError(
                "`dtype` must not be mixed_float16 in training: the loss scale would stay in the "
                "gradient of the rows. Use 'mixed_bfloat16'. Received: dtype='mixed_float16'"
            )

    def update_rows(self) -> None:
        """Makes the update of the last training batch, unless it has been made."""
        ids = ops.reshape(read(self.last_ids), (-1,))
        gradient = ops.reshape(ops.stop_gradient(read(self.row_gradient)), (-1, self.dim))
        pending = read(self.pending) > 0
        self.table.apply_row_gradients(ids, [gradient], when=pending, rate=read(self.rate))
        self.pending.assign(0)

    @property
    def trainable(self) -> bool:
        """Whether training moves the rows; to freeze them makes the last batch's update first."""
        return self._trainable

    @trainable.setter
    def trainable(self, value: bool) -> None:
        if self.built and not value:
            self.update_rows()
        layers.Layer.trainable.fset(self, value)

    def compute_output_shape(self, ids_shape: tuple) -> tuple:
        return (*ids_shape, self.dim)

    def get_config(self) -> dict:
        return {
            **super().get_config(),
            "num_rows": self.num_rows,
            "dim": self.dim,
            "row_optimizer": keras.saving.serialize_keras_object(self.table.row_optimizer),
            "embeddings_initializer": keras.initializers.serialize(self.table.kernel_initializer),
        }


def embedding(
    num_rows: int,
    dim: int,
    row_optimizer: RowOptimizer | None = None,
    embeddings_initializer: Any = "uniform",
) -> layers.Layer:
    """`keras.layers.Embedding`, or a `RowEmbedding` with a row optimizer."""
    if row_optimizer is None:
        return layers.Embedding(num_rows, dim, embeddings_initializer=embeddings_initializer)
    return RowEmbedding(num_rows, dim, row_optimizer, embeddings_initializer)

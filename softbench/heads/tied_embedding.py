"""An input layer on a head's class table."""

from typing import Any

import keras
from keras import layers, ops

from softbench.common import PACKAGE, Tensor, check_positive
from softbench.labels import check_integers
from softbench.table import Table, deserialized, l2_normalize, serialized


@keras.saving.register_keras_serializable(PACKAGE)
class TiedEmbedding(layers.Layer):
    """Rows of a class table as input vectors: ids (...) -> (..., d).

    The table is one weight, saved once, and trained by the sum over both sides: an id's row gets
    the gradient of its use as an input plus that of its use as a class, in one update.

    With a `row_optimizer` the gradient of the input side comes after the head's call. So both wait,
    and the next call of this layer or of the head, whether it trains, evaluates or predicts, makes
    the update of their sum first; `table.update_rows()` makes it for code that reads
    `table.kernel`. `RowSGD` and `RowAdagrad` equal the dense optimizers of Keras; for
    `RowAdam` a row is touched by either side, with its bias. This needs fixed shapes, the batch
    included; one such layer and one head on the table, each called once in a training step; and
    room for a step's gradients of rows. A loss scale is not supported.

    `trainable=False`, here or on the head, freezes the table for both, once the update of the last
    batch is made.

    Args:
        table: a `ClassTable`; or a head that has one, `FullSoftmax` or a sampled one. With a
            `row_optimizer`, no head on it may be built yet.
        dim: d. None: that of the table, which is then built.
        normalize: return rows of l2 norm 1 instead of the rows as they are stored.
        mask_zero: id 0 is padding; as in `keras.layers.Embedding`. Class 0 has a row all the same.
        **kwargs: of `keras.layers.Layer`.

    Call: integers (...) in [0, n) -> (..., d), in the compute dtype.

    Raises:
        ValueError: if there is no class table, `dim` is not given or not that of the table,
            or what a `row_optimizer` needs is not so; if the layer is copied without the model,
            as by `keras.models.clone_model`, which would give it a separate table.

    Example:
        >>> head = softbench.SampledSoftmax(9, "uniform", 4)
        >>> items, target = keras.Input((5,), dtype="int32"), keras.Input((), dtype="int32")
        >>> rows = softbench.TiedEmbedding(head, dim=3)(items)
        >>> hidden = keras.layers.GlobalAveragePooling1D()(rows)
        >>> model = keras.Model([items, target], head(hidden, target))
        >>> [tuple(weight.shape) for weight in model.weights]  # kernel and bias
        [(9, 3), (9,)]
    """

    def __init__(
        self,
        table: Any,
        dim: int | None = None,
        normalize: bool = False,
        mask_zero: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        received, table = table, getattr(table, "table", table)
        if not isinstance(table, Table):
            raise ValueError(
                "`table` must be a ClassTable, or a head that has one: FullSoftmax, or a head with "
                f"a sampler. Received: {type(received).__name__}"
            )
        if dim is not None:
            check_positive(dim=dim)
        self.dim, self.normalize, self.mask_zero = dim, normalize, mask_zero
        self.by_rows = table.row_optimizer is not None
        if self.by_rows:
            if table.tie is None:
                table.tie_rows()
            if table.tie.claimed:
                raise ValueError(
                    "`table` must have one `TiedEmbedding` where it has a `row_optimizer`: join "
                    f"the ids. Received: {received.name}, which has one"
                )
            table.tie.claimed = True
        self.table = table
        table.users.embeddings.add(self)
        self.supports_jit = table.supports_jit
        if not self.trainable:
            table.trainable = False

    @property
    def trainable(self) -> bool:
        """Whether training moves the shared table."""
        return self._trainable

    @trainable.setter
    def trainable(self, value: bool) -> None:
        self._trainable = bool(value)
        if not value:
            self.table.update_rows()
        self.table.trainable = bool(value)

    def build(self, ids_shape: tuple) -> None:
        table = self.table
        if not table.built:
            if self.dim is None:
                raise ValueError(
                    "`dim` must be given, the width d of the hidden vectors, for a table that is "
                    "not built. Received: dim=None"
                )
            table.build((None, self.dim))
        if self.dim not in (None, table.width):
            raise ValueError(
                f"`dim` must be the width of the table, {table.width}. Received: dim={self.dim}"
            )
        if not self.by_rows:
            return
        if None in ids_shape:
            raise ValueError(
                "`ids` must have a fixed shape, the batch included (`keras.Input(batch_shape=...)`"
                "), where the table has a `row_optimizer`. "
                f"Received shape: {tuple(ids_shape)}"
            )
        table.tie.input_side.build(tuple(ids_shape), table.width)

    def call(self, ids: Tensor, training: bool | None = None) -> Tensor:
        check_integers("ids", ids)
        ids, table = ops.cast(ids, "int32"), self.table
        if not self.by_rows:
            rows = table.training_rows([ids])[0][0] if training else table.rows(ids)
        elif table.tie.built:
            training = bool(training) and self.trainable and table.trainable
            if training:
                self._check_training()
            rows = table.tie.read(table, ids, training)
        else:
            rows = ops.stop_gradient(table.rows(ids))
        rows = l2_normalize(rows) if self.normalize else rows
        return ops.cast(rows, self.compute_dtype)

    def _check_training(self) -> None:
        self.table.check_replicas()
        if self.dtype_policy.name == "mixed_float16":
            raise ValueError(
                "`dtype` must not be mixed_float16 in training where the table has a "
                "`row_optimizer`: the loss scale would stay in the gradient of the rows. Use "
                "'mixed_bfloat16'. Received: dtype='mixed_float16'"
            )

    def compute_mask(self, ids: Tensor, mask: Any = None) -> Any:
        return ops.not_equal(ids, 0) if self.mask_zero else None

    def compute_output_shape(self, ids_shape: tuple) -> tuple:
        return (*ids_shape, self.table.width if self.table.built else self.dim)

    def get_config(self) -> dict:
        own = {"dim": self.dim, "normalize": self.normalize, "mask_zero": self.mask_zero}
        return {**super().get_config(), "table": serialized(self.table), **own}

    @classmethod
    def from_config(cls, config: dict) -> "TiedEmbedding":
        return cls(**{**config, "table": deserialized(config["table"], cls.__name__)})

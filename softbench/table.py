"""The class table: one row and one bias per class, and the scores made from them."""

from collections.abc import Callable
from functools import partial
from typing import Any

import keras
from keras import ops

from softbench import partition, rounding
from softbench.common import PACKAGE, Tensor, check_number, check_positive
from softbench.ops import (
    SCATTER_UNDER_JIT,
    by_shards,
    gather_rows,
    matmul_transposed,
    read,
    read_first,
    rows_when,
    sum_duplicates,
)
from softbench.rows import RowOptimizer, get_row_optimizer
from softbench.state import add_state, check_one_replica, class_shards, saved_arguments

DENSE_CLASSES = 65_536  # above so many, passes over all classes go by chunks of this size
SCORE_OPTIONS = ("use_bias", "normalize", "temperature", "absolute")
INITIALIZERS = ("kernel_initializer", "bias_initializer")


@keras.saving.register_keras_serializable(PACKAGE)
class ClassTable(keras.layers.Layer):
    """`kernel` (n, d) and `bias` (n,), row-major on classes, and their scores.

    score(h, i) = <h, c_i> / temperature + b_i, with |<h, c_i>| if `absolute`, and with h and c_i
    divided by their l2 norms if `normalize`. Scores are float32 whatever the compute dtype.

    Shape letters: B batch, d features, n classes, m samples, N row ids.

    Args:
        units: n, the number of classes.
        use_bias, normalize, temperature, absolute: as in the formula.
        row_optimizer: a `RowOptimizer`, or its serialised form, that owns the table's updates; the
            table is then not in `trainable_weights`. None leaves it to the model's optimizer.
        kernel_initializer, bias_initializer: Keras initializers.
        table_dtype: "bfloat16" stores the kernel, and what the row optimizer keeps for each of its
            entries, in half the memory. A touched row is updated in float32 and rounded at random,
            up or down: right on average. Biases, and slots of one number a row, stay float32.
            Scores, and what samplers keep, are of the stored rows. It needs a `row_optimizer`: an
            ordinary one would lose changes below 1/512 of an entry. None: the layer's `dtype`.
        seed: of that rounding; a head with a `seed` passes its own on.

    Raises:
        ValueError: if an argument is not as said.

    Example:
        >>> table = softbench.ClassTable(3, kernel_initializer="ones")
        >>> table.build((None, 2))
        >>> [float(score) for score in table.scores(np.array([[1.0, 2.0]], "float32"))[0]]
        [3.0, 3.0, 3.0]
    """

    arguments = ("units", *SCORE_OPTIONS, "row_optimizer", *INITIALIZERS, "table_dtype")
    per_class = True  # a row for each class, which a layout map divides over devices

    def __init__(
        self,
        units: int,
        use_bias: bool = True,
        normalize: bool = False,
        temperature: float = 1.0,
        absolute: bool = False,
        row_optimizer: RowOptimizer | dict | None = None,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        table_dtype: str | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_positive(units=units)
        check_number(0, exclusive=True, temperature=temperature)
        row_optimizer = get_row_optimizer(row_optimizer)
        self.units = int(units)
        self.use_bias = use_bias
        self.normalize = normalize
        self.temperature = temperature
        self.absolute = absolute
        self.row_optimizer: Any = row_optimizer
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        rounding.check(table_dtype, row_optimizer)
        self.table_dtype, self.seed = table_dtype, seed
        self.rounding: Any = None
        self.bias = self.rate = None
        self.supports_jit = row_optimizer is None or SCATTER_UNDER_JIT

    def build(self, hidden_shape: tuple) -> None:
        options = {"trainable": self.row_optimizer is None, "autocast": False}
        self.kernel = self._add_rows(
            name="kernel",
            shape=(self.units, hidden_shape[-1]),
            initializer=self.kernel_initializer,
            dtype=self.table_dtype,
            **options,
        )
        if self.use_bias:
            self.bias = self._add_rows(
                name="bias", shape=(self.units,), initializer=self.bias_initializer, **options
            )
        if self.row_optimizer is not None:
            make, dtype = self.row_optimizer.create_slots, self.table_dtype or "float32"
            self.row_slots = [make(self._add_rows, v, dtype) for v in self.class_variables]
            if rounding.is_rounded(self.kernel):
                self.rounding = rounding.generator(self.seed)
                rounding.warn_of_copies(self.kernel)
            self.iterations = add_state(self, "iterations", dtype="int32")
            self.rate = self.row_optimizer.rate.attach(self)  # the last: older files end before it

    def _add_rows(self, name: str, shape: tuple, **options: Any) -> keras.Variable:
        """`add_weight` of what has a row for each class."""
        shards = class_shards(f"{self.path}/{name}", shape) if self.per_class else 1
        if self.units % shards:
            raise ValueError(
                f"`units` must be a multiple of {shards}, the devices that the layout map divides "
                f"it over. Use units={-(-self.units // shards) * shards}, the last classes "
                f"nobody's label, or another mesh. Received: units={self.units}"
            )
        return self.add_weight(name=name, shape=shape, **options)

    @property
    def class_variables(self) -> list[keras.Variable]:
        """The kernel, and the bias where there is one."""
        return [self.kernel] if self.bias is None else [self.kernel, self.bias]

    def gather(self, ids: Tensor) -> list[Tensor]:
        """Kernel rows (N, d), and biases (N,) where the table has them, as they are stored."""
        return [gather_rows(v, ids) for v in self.class_variables]

    def rows(self, ids: Tensor) -> Tensor:
        """Kernel rows of `ids`, of shape ids.shape + (d,), as they are stored.

        With a `row_optimizer` no gradient gets from them to the table: see `TiedEmbedding`.
        """
        return gather_rows(self.kernel, ids)

    def logits(self, hidden: Tensor, rows: Tensor, bias: Tensor | None = None) -> Tensor:
        """Scores of gathered rows.

        Args:
            hidden: (B, d).
            rows: (m, d), scored by every example; (B, m, d); or (G, m, d), where those of a group
                are scored by its examples [g k, (g + 1) k), k = ceil(B / G).
            bias: (m,), (B, m) or (G, m), or None.

        Returns:
            float32 (B, m).
        """
        hidden, rows = ops.cast(hidden, self.compute_dtype), ops.cast(rows, self.compute_dtype)
        hidden = l2_normalize(hidden) if self.normalize else hidden
        if len(rows.shape) == 3:
            groups = rows.shape[0]
            if groups is not None and groups != hidden.shape[0]:
                return self._group_logits(hidden, rows, bias)
            rows = l2_normalize(rows) if self.normalize else rows
            inner = ops.squeeze(ops.matmul(rows, ops.expand_dims(hidden, -1)), -1)
        else:
            inner = matmul_transposed(hidden, rows)
            if self.normalize:  # of the products: a normalised table would be a copy of it
                inner = ops.cast(inner, "float32") * _inverse_norm(rows)[:, 0]
        return self._finish(inner, bias)

    def _group_logits(self, hidden: Tensor, rows: Tensor, bias: Tensor | None) -> Tensor:
        """Scores (B, m) by hidden (B, d) of the rows (G, m, d) of each one's group."""
        groups, batch = rows.shape[0], ops.shape(hidden)[0]
        size = (batch + groups - 1) // groups
        rest = ops.zeros((groups * size - batch, hidden.shape[-1]), hidden.dtype)
        blocks = ops.reshape(
            ops.concatenate([hidden, rest], axis=0), (groups, size, hidden.shape[-1])
        )
        inner = ops.matmul(blocks, ops.transpose(rows, (0, 2, 1)))
        if self.normalize:
            inverse = ops.transpose(_inverse_norm(rows), (0, 2, 1))
            inner = ops.cast(inner, "float32") * inverse
        scores = self._finish(inner, None if bias is None else ops.expand_dims(bias, 1))
        return ops.reshape(scores, (groups * size, -1))[:batch]

    def paired_logits(self, hidden: Tensor, rows: Tensor, bias: Tensor | None = None) -> Tensor:
        """Score (B,) of row b by example b: hidden (B, d), rows (B, d), bias (B,)."""
        hidden, rows = self._prepare(hidden, rows)
        return self._finish(ops.sum(ops.cast(hidden * rows, "float32"), axis=-1), bias)

    def normalized(self, x: Tensor) -> Tensor:
        """Hidden vectors or rows as the scores compare them: float32, of norm 1 if `normalize`."""
        x = ops.cast(x, "float32")
        return l2_normalize(x) if self.normalize else x

    def _prepare(self, hidden: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        hidden, rows = ops.cast(hidden, self.compute_dtype), ops.cast(rows, self.compute_dtype)
        return (l2_normalize(hidden), l2_normalize(rows)) if self.normalize else (hidden, rows)

    def _finish(self, inner: Tensor, bias: Tensor | None) -> Tensor:
        scores = ops.cast(inner, "float32")
        if self.absolute:
            scores = ops.abs(scores)
        if self.temperature != 1.0:
            scores = scores / self.temperature
        return scores if bias is None else scores + ops.cast(bias, "float32")

    def scores(self, hidden: Tensor, ids: Tensor | None = None) -> Tensor:
        """Scores of all classes (B, n), of shared ids (m,) as (B, m), or of ids (B, m)."""
        if ids is None:
            return self.logits(hidden, *(read(v) for v in self.class_variables))
        return self.logits(hidden, *self.gather(ids))

    def log_partition(self, hidden: Tensor, chunk: int | None = None) -> Tensor:
        """log sum_i exp(score_i) (B,), differentiable; streamed when `chunk` is given."""
        if chunk is None:
            return ops.logsumexp(self.scores(hidden), axis=-1)

        def part(first: Tensor, count: int, hidden: Tensor) -> Tensor:
            hidden, kernel = self._prepare(hidden, read(self.kernel))
            bias = None if self.bias is None else ops.cast(read(self.bias), "float32")
            scaled = hidden / self.temperature
            return partition.bilinear_log_partition(scaled, kernel, bias, self.absolute, chunk)

        return by_shards(part, partial(ops.logsumexp, axis=0), self.class_variables, [], hidden)

    def check_replicas(self) -> None:
        """Raise a ValueError before a training step whose row updates replicas would not share.

        Or which has no learning rate for them.
        """
        if self.row_optimizer is not None:
            remedy = "Use `row_optimizer=None` and an ordinary Keras optimizer, or the JAX backend."
            check_one_replica("row_optimizer", remedy)
            if self.trainable:
                self.row_optimizer.rate.check()

    def apply_row_gradients(
        self,
        ids: Tensor,
        gradients: list[Tensor],
        on_change: Callable | None = None,
        when: Tensor | None = None,
        followed: Callable | None = None,
        rate: Tensor | None = None,
    ) -> None:
        """Let the row optimizer update the rows `ids` (N,) from their gradients (N, ...).

        Gradients of equal ids are added up first, as a dense optimizer would see them.
        `on_change(table, ids, old_rows, new_rows)` is then called with the distinct ids (U,)
        (on JAX padded with n to min(N, n)) and their kernel rows (U, d), or with those of
        `followed(ids) -> ids, further arguments`, which is called before the update. It needs no
        gradient, so that it is at work beside their sums.

        A gradient that is not finite, as after an overflow in float16, updates nothing: no row, no
        slot, nothing that `on_change` keeps, and the step is not counted. `when`, a bool (), if
        False has the same effect. `rate`, float32 (), replaces the learning rate of now.
        """
        gradients = [ops.cast(g, "float32") for g in gradients]  # half precision would not add up
        ids, gradients = sum_duplicates(ids, gradients, self.units)
        touched = ids
        changed, further = (ids, {}) if followed is None else followed(ids)
        moves = ops.all(ops.stack([ops.all(ops.isfinite(g)) for g in gradients]))
        moves = moves if when is None else ops.logical_and(moves, when)
        ids, gradients = rows_when(moves, ids, gradients, self.units)
        if on_change is not None:
            changed = ids if changed is touched else changed
            old_rows = self.rows(changed)
            ids = read_first(old_rows, ids)
        state = self.class_variables, self.row_slots, self.iterations
        self.row_optimizer.apply(*state, ids, gradients, rate, self.rounding)
        self.iterations.assign_sub(ops.cast(ops.logical_not(moves), "int32"))
        if on_change is not None:
            on_change(self, changed, old_rows, self.rows(changed), **further)

    def save_own_variables(self, store: dict) -> None:
        super().save_own_variables(store)
        if self.rounding is not None:  # which Keras leaves out
            store["seed_generator"] = ops.convert_to_numpy(self.rounding.state)

    def load_own_variables(self, store: dict) -> None:
        arrays = {key: store[key] for key in list(store.keys())}
        if (state := arrays.pop("seed_generator", None)) is not None:
            self.rounding.state.assign(state)
        if self.rate is not None:
            own = len(self._trainable_variables) + len(self._non_trainable_variables)
            if len(arrays) == own - 1:  # of a version without the variable: the configured rate
                arrays[str(own - 1)] = ops.convert_to_numpy(self.rate)
        super().load_own_variables(arrays)

    def compute_output_shape(self, hidden_shape: tuple) -> tuple:
        return (*hidden_shape[:-1], self.units)

    def get_config(self) -> dict:
        return {**super().get_config(), **saved_arguments(self), "seed": self.seed}


def l2_normalize(x: Tensor) -> Tensor:
    """x / |x| along the last axis; a zero row stays zero."""
    return ops.cast(ops.cast(x, "float32") * _inverse_norm(x), x.dtype)


def _inverse_norm(x: Tensor) -> Tensor:
    """1 / |x| along the last axis (..., 1), float32; 1 for a zero row."""
    square = ops.sum(ops.square(ops.cast(x, "float32")), axis=-1, keepdims=True)
    return ops.rsqrt(ops.where(square > 0, square, 1.0))

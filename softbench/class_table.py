"""The class table: one row and one bias per class."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from softbench import rounding
from softbench.common import PACKAGE, Tensor, check_positive
from softbench.ops import (
    SCATTER_UNDER_JIT,
    gather_rows,
    read,
    read_first,
    rows_when,
    sum_duplicates,
)
from softbench.rows import RowOptimizer, get_row_optimizer
from softbench.state import (
    SavedGenerators,
    add_state,
    check_one_replica,
    class_shards,
    saved_arguments,
)
from softbench.table import Table
from softbench.tie import Tie


@keras.saving.register_keras_serializable(PACKAGE)
class ClassTable(SavedGenerators, Table):
    """`kernel` (n, d) and `bias` (n,), row-major on classes; see `Table` for their scores.

    Every head makes one, or takes one as `table=`; heads that take the same one share its rows.

    Args:
        units: n, the number of classes.
        dim: d, which builds the table at once. None: a head does so, with the width of its input.
        use_bias: whether scores have a bias for each class.
        normalize: whether vectors and rows are divided by their l2 norms.
        temperature: what inner products are divided by, above 0.
        absolute: whether scores are of their absolute values.
        logit_soft_cap: None, or what bounds scores: L tanh(score / L), as in Gemma. Exact wherever
            scores are; samplers that follow the table draw by scores without it, and say the log
            of the counts of what they draw.
        row_optimizer: a `RowOptimizer`, or its serialised form, that owns the table's updates; the
            table is then not in `trainable_weights`. None leaves it to the model's optimizer.
        kernel_initializer, bias_initializer: Keras initializers.
        table_dtype: "bfloat16" stores the kernel, and what the row optimizer keeps for each of its
            entries, in half the memory. A touched row is updated in float32 and rounded at random,
            up or down: right on average. Biases, and slots of one number a row, stay float32.
            Scores, and what samplers keep, are of the stored rows. It needs a `row_optimizer`: an
            ordinary one would lose changes below 1/512 of an entry. None: the layer's `dtype`.
        seed: of that rounding.
        **kwargs: of `keras.layers.Layer`.

    With a `row_optimizer` each training call of a head makes an update: a step of two heads makes
    two, the second from the rows that the first has moved. The samplers of both are told of both;
    on JAX, in models that have both heads.

    Raises:
        ValueError: if an argument is not as said.

    Example:
        >>> table = softbench.ClassTable(3, 2, kernel_initializer="ones")
        >>> [float(score) for score in table.scores(np.array([[1.0, 2.0]], "float32"))[0]]
        [3.0, 3.0, 3.0]
        >>> head = softbench.SampledSoftmax(table=table, sampler="uniform", num_sampled=2)
        >>> head.units
        3
    """

    arguments = (
        "units",
        "dim",
        "use_bias",
        "normalize",
        "temperature",
        "absolute",
        "logit_soft_cap",
        "row_optimizer",
        "kernel_initializer",
        "bias_initializer",
        "table_dtype",
        "seed",
    )

    per_class = True  # a row for each class, which a layout map divides over devices

    def __init__(
        self,
        units: int,
        dim: int | None = None,
        *,
        use_bias: bool = True,
        normalize: bool = False,
        temperature: float = 1.0,
        absolute: bool = False,
        logit_soft_cap: float | None = None,
        row_optimizer: RowOptimizer | dict | None = None,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        table_dtype: str | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            units,
            use_bias=use_bias,
            normalize=normalize,
            temperature=temperature,
            absolute=absolute,
            logit_soft_cap=logit_soft_cap,
            **kwargs,
        )
        self.dim = dim
        self.row_optimizer = get_row_optimizer(row_optimizer)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        rounding.check(table_dtype, self.row_optimizer)
        self.table_dtype, self.seed = table_dtype, seed
        self.rounding: Any = None
        self.bias = None
        self.tie: Tie | None = None
        self.supports_jit = self.row_optimizer is None or SCATTER_UNDER_JIT
        if dim is not None:
            check_positive(dim=dim)
            self.build((None, dim))

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
            # of several tables if they share their row optimizer: a weight of each
            self.learning_rate = self.row_optimizer.rate.attach(self)

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
    def width(self) -> int:
        return self.kernel.shape[-1]

    @property
    def class_variables(self) -> list[keras.Variable]:
        """The kernel, and the bias where there is one."""
        return [self.kernel] if self.bias is None else [self.kernel, self.bias]

    def gather(self, ids: Tensor) -> list[Tensor]:
        return [gather_rows(v, ids) for v in self.class_variables]

    def rows(self, ids: Tensor) -> Tensor:
        return gather_rows(self.kernel, ids)

    def biases(self, ids: Tensor) -> Tensor:
        return gather_rows(self.bias, ids)

    def all_rows(self, training: bool = False) -> list[Tensor]:
        return [read(v) for v in self.class_variables]

    def check_replicas(self) -> None:
        """Raise a ValueError before a training step whose row updates replicas would not share."""
        if self.row_optimizer is not None:
            remedy = "Use `row_optimizer=None` and an ordinary Keras optimizer, or the JAX backend."
            check_one_replica("row_optimizer", remedy)

    def begin(self, training: bool) -> None:
        if self.tie is not None and self.tie.joins:
            self.tie.enter(self, training)

    def train_rows(self, ids: Tensor, gradients: list[Tensor], when: Tensor | None = None) -> None:
        """As `Table.train_rows`: at once, or with the gradient of a `TiedEmbedding`."""
        if self.tie is not None and self.tie.joins:
            self.tie.hold(ids, gradients, when)
        else:
            self.apply_row_gradients(ids, gradients, when)

    def apply_row_gradients(
        self,
        ids: Tensor,
        gradients: list[Tensor],
        when: Tensor | None = None,
        rate: Tensor | None = None,
        trackers: Sequence[Any] | None = None,
    ) -> None:
        """Let the row optimizer update the rows `ids` (N,) from their gradients (N, ...).

        Gradients of equal ids are added up first, as a dense optimizer would see them. Each of the
        `trackers` (None: all that `add_tracker` was called with) is then told by
        `rows_changed(table, ids, old_rows, new_rows)` of the distinct ids (U,) (on JAX padded with
        n to min(N, n)) and their kernel rows (U, d), or of those of
        `tracked_ids(ids) -> ids, further arguments`, which is called before the update. It needs
        no gradient, so that it is computed next to their sums. A frozen tracker is not told.

        A gradient that is not finite, as after an overflow in float16, updates nothing: no row, no
        slot, nothing that a tracker keeps, and the step is not counted. `when`, a bool (), if
        False has the same effect. `rate`, float32 (), replaces the present learning rate.
        """
        trackers = self.trackers if trackers is None else trackers
        trackers = [tracker for tracker in trackers if tracker.trainable]
        gradients = [ops.cast(g, "float32") for g in gradients]  # half precision would not add up
        ids, gradients = sum_duplicates(ids, gradients, self.units)
        touched, chosen = ids, [tracker.tracked_ids(ids) for tracker in trackers]
        moves = ops.all(ops.stack([ops.all(ops.isfinite(g)) for g in gradients]))
        moves = moves if when is None else ops.logical_and(moves, when)
        ids, gradients = rows_when(moves, ids, gradients, self.units)
        told = []
        for tracker, (changed, further) in zip(trackers, chosen, strict=True):
            changed = ids if changed is touched else changed
            told.append((tracker, changed, self.rows(changed), further))
        for _, _, old_rows, _ in told:
            ids = read_first(old_rows, ids)
        state = self.class_variables, self.row_slots, self.iterations
        self.row_optimizer.apply(*state, ids, gradients, rate, self.rounding)
        self.iterations.assign_sub(ops.cast(ops.logical_not(moves), "int32"))
        for tracker, changed, old_rows, further in told:
            tracker.rows_changed(self, changed, old_rows, self.rows(changed), **further)

    def tie_rows(self) -> None:
        """Let an input layer train the rows too: `TiedEmbedding` calls it before a head is built.

        Updates by the `row_optimizer` then wait for the gradients of that layer, see `Tie`.
        """
        for head in self.users.heads:
            if head.built:
                raise ValueError(
                    "`head` must not be built before the `TiedEmbedding` of a table with a "
                    f"`row_optimizer` is made. Received: {head.name}, built"
                )
            head.check_tied()
        self._tracker.unlock()  # a table with `dim` is built already
        self.tie = Tie(self.dtype_policy)
        if self.built:
            self._lock_state()

    def update_rows(self) -> None:
        """With a `TiedEmbedding` and a `row_optimizer`: make the update of the last training step.

        Every call of a head or of the embedding makes it first; only code that reads `kernel`
        itself needs to call this.
        """
        if self.tie is not None and self.tie.joins:
            self.tie.update(self, between_steps=True)

    def compute_output_shape(self, hidden_shape: tuple) -> tuple:
        return (*hidden_shape[:-1], self.units)

    def get_build_config(self) -> None:
        """None: `dim` builds it, or a head or a `TiedEmbedding` that uses it."""

    def get_config(self) -> dict:
        config = {**super().get_config(), **saved_arguments(self)}
        return config if self.tie is None else {**config, "tied": True}

    @classmethod
    def from_config(cls, config: dict) -> "ClassTable":
        config = dict(config)
        tied = config.pop("tied", False)
        table = super().from_config(config)
        if tied:
            table.tie_rows()
        return table

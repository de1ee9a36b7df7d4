"""What heads and samplers need of the classes: rows, biases, and the scores made from them."""

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import keras
from keras import ops

from softbench import streaming
from softbench.common import Tensor, check_number, check_positive
from softbench.groups import group_size, has_row_each
from softbench.ops import by_shards, matmul_transposed, shards


class Table(keras.layers.Layer):
    """Base class of the tables: the protocol between the classes' rows and who uses them.

    A subclass writes `width`, `gather`, `all_rows`, `class_variables` and, where training steps
    update rows by themselves, `train_rows`; all else is here. This is what heads and samplers use:

    | of a table | what it is |
    |---|---|
    | `units`, `width` | n and d |
    | `use_bias`, `normalize`, `temperature`, `absolute`, `logit_soft_cap` | how scores are made |
    | `gather(ids)`, `rows(ids)`, `biases(ids)` | rows of ids, and their biases |
    | `training_rows(id_sets)` | the same, of all ids of a training step |
    | `all_rows()`, `class_variables` | for a pass over all classes |
    | `scores`, `logits`, `paired_logits`, `normalized` | scores |
    | `class_losses`, `log_partition` | losses over all classes, streamed |
    | `row_optimizer`, `trainable`, `check_replicas`, `begin`, `train_rows` | its updates |
    | `add_tracker` | for a sampler that keeps something of the rows |

    score(h, i) = <h, c_i> / temperature + b_i, with |<h, c_i>| if `absolute`, and with h and c_i
    divided by their l2 norms if `normalize`. With a `logit_soft_cap` L the score is
    L tanh(score / L). Scores are float32 whatever the compute dtype.

    Shape letters: B batch, d features, n classes, m samples, N row ids.

    Args:
        units: n, the number of classes.
        use_bias, normalize, temperature, absolute, logit_soft_cap: as in the formula.
        **kwargs: of `keras.layers.Layer`.

    Attributes:
        row_optimizer: what updates the rows that a step has touched; None: the model's optimizer.
        tie: where updates wait for the gradient of a `TiedEmbedding`; None: they do not wait.
        users: who uses the table.
    """

    row_optimizer: Any = None
    tie: Any = None

    def __init__(
        self,
        units: int,
        *,
        use_bias: bool = True,
        normalize: bool = False,
        temperature: float = 1.0,
        absolute: bool = False,
        logit_soft_cap: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_positive(units=units)
        check_number(0, exclusive=True, temperature=temperature)
        if logit_soft_cap is not None:
            check_number(0, exclusive=True, logit_soft_cap=logit_soft_cap)
        self.units = int(units)
        self.use_bias = use_bias
        self.normalize = normalize
        self.temperature = temperature
        self.absolute = absolute
        self.logit_soft_cap = logit_soft_cap
        self.users = Users()
        self.supports_jit = True

    @property
    def width(self) -> int:
        """d, once the table is built."""
        raise NotImplementedError

    @property
    def class_variables(self) -> list[keras.Variable]:
        """The variables (n, ...) that scores are made from; devices may divide them."""
        return []

    def gather(self, ids: Tensor) -> list[Tensor]:
        """Rows (N, d), and biases (N,) where the table has them, as they are stored."""
        raise NotImplementedError

    def all_rows(self, training: bool = False) -> list[Tensor]:
        """As `gather`, of all classes; within `by_shards` of those of one device.

        `training` says that they are for the loss of a training step.
        """
        raise NotImplementedError

    def training_rows(self, id_sets: list[Tensor]) -> list[list[Tensor]]:
        """`gather` of each set of the ids that the loss of a training step compares."""
        return [self.gather(ids) for ids in id_sets]

    def rows(self, ids: Tensor) -> Tensor:
        """Rows of `ids`, of shape ids.shape + (d,), as they are stored.

        With a `row_optimizer` no gradient gets from them to the table: see `TiedEmbedding`.
        """
        return self.gather(ids)[0]

    def biases(self, ids: Tensor) -> Tensor:
        """Biases of `ids`, of their shape, where the table has them."""
        return self.gather(ids)[1]

    def check_replicas(self) -> None:
        """Raise a ValueError before a training step whose updates replicas would not share."""

    def begin(self, training: bool) -> None:
        """Called by a head before it computes anything: what update is due is made first."""

    def train_rows(self, ids: Tensor, gradients: list[Tensor], when: Tensor | None = None) -> None:
        """Let the `row_optimizer` have the gradients (N, ...) of the rows `ids` (N,).

        Gradients of equal ids add up. `when`, a bool (), if False leaves all as it is.
        """
        raise NotImplementedError

    def update_rows(self) -> None:
        """Make what update waits for the gradient of a `TiedEmbedding`."""

    def option_hint(self, name: str) -> str:
        """Why a head on the table does not take this option of a table."""
        return f"which has it: `table=softbench.ClassTable(..., {name}=...)`"

    def add_tracker(self, sampler: Any) -> None:
        """Let a sampler be told of each update of rows, by its `rows_changed`."""
        if not any(sampler is tracker for tracker in self.trackers):
            self.users.trackers.append(weakref.ref(sampler))

    @property
    def is_shared(self) -> bool:
        """Whether more than one head or `TiedEmbedding` uses the table."""
        return len(self.users.heads) + len(self.users.embeddings) > 1

    @property
    def trackers(self) -> list[Any]:
        """The samplers that are told of updates: those of all heads on the table."""
        alive = (reference() for reference in self.users.trackers)
        return [sampler for sampler in alive if sampler is not None]

    def logits(self, hidden: Tensor, rows: Tensor, bias: Tensor | None = None) -> Tensor:
        """Scores of gathered rows.

        Args:
            hidden: (B, d).
            rows: (R, m, d); row r is scored by the examples [r k, (r + 1) k), k = ceil(B / R):
                R = 1 by all, R = B each by its own example.
            bias: (R, m), or None.

        Returns:
            float32 (B, m).
        """
        hidden, rows = ops.cast(hidden, self.compute_dtype), ops.cast(rows, self.compute_dtype)
        hidden = l2_normalize(hidden) if self.normalize else hidden
        shared = rows.shape[0] == 1  # None in a graph that is built before the batch is known
        if not (shared or has_row_each(rows, hidden)):
            return self._group_logits(hidden, rows, bias)
        rows = l2_normalize(rows) if self.normalize else rows
        if shared:
            return self.value(matmul_transposed(hidden, rows[0]), bias)
        # (1, d) x (d, m): on TensorFlow a quarter quicker than (m, d) x (d, 1).
        inner = ops.squeeze(matmul_transposed(ops.expand_dims(hidden, 1), rows), 1)
        return self.value(inner, bias)

    def _group_logits(self, hidden: Tensor, rows: Tensor, bias: Tensor | None) -> Tensor:
        """Scores (B, m) by hidden (B, d) of the rows (G, m, d) of each one's group."""
        groups, batch = rows.shape[0], ops.shape(hidden)[0]
        size = group_size(batch, groups)
        rest = ops.zeros((groups * size - batch, hidden.shape[-1]), hidden.dtype)
        blocks = ops.reshape(
            ops.concatenate([hidden, rest], axis=0), (groups, size, hidden.shape[-1])
        )
        inner = ops.matmul(blocks, ops.transpose(rows, (0, 2, 1)))
        if self.normalize:
            inverse = ops.transpose(_inverse_norm(rows), (0, 2, 1))
            inner = ops.cast(inner, "float32") * inverse
        scores = self.value(inner, None if bias is None else ops.expand_dims(bias, 1))
        return ops.reshape(scores, (groups * size, -1))[:batch]

    def paired_logits(self, hidden: Tensor, rows: Tensor, bias: Tensor | None = None) -> Tensor:
        """Score (...) of each row by its vector: hidden and rows (..., d), bias (...).

        Added up in float32, which holds the products of half precision without rounding.
        """
        hidden, rows = (ops.cast(x, "float32") for x in self._prepare(hidden, rows))
        return self.value(ops.sum(hidden * rows, axis=-1), bias)

    def normalized(self, x: Tensor) -> Tensor:
        """Hidden vectors or rows as the scores compare them: float32, of norm 1 if `normalize`."""
        x = ops.cast(x, "float32")
        return l2_normalize(x) if self.normalize else x

    def _prepare(self, hidden: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        hidden, rows = ops.cast(hidden, self.compute_dtype), ops.cast(rows, self.compute_dtype)
        return (l2_normalize(hidden), l2_normalize(rows)) if self.normalize else (hidden, rows)

    def scores(self, hidden: Tensor, ids: Tensor | None = None) -> Tensor:
        """Scores of all classes (B, n), or (B, m) of ids (R, m), see `logits`."""
        if ids is not None:
            return self.logits(hidden, *self.gather(ids))
        hidden = ops.cast(hidden, self.compute_dtype)
        hidden = l2_normalize(hidden) if self.normalize else hidden
        kernel, *bias = self.all_rows()
        kernel = ops.cast(kernel, self.compute_dtype)
        inner = matmul_transposed(hidden, kernel)
        if self.normalize:  # of the products: a normalised table would be a copy of it
            inner = ops.cast(inner, "float32") * _inverse_norm(kernel)[:, 0]
        return self.value(inner, *bias)

    def value(self, inner: Tensor, bias: Tensor | None = None) -> Tensor:
        """Scores, float32, of inner products and biases that broadcast."""
        scores = ops.cast(inner, "float32")
        if self.absolute:
            scores = ops.abs(scores)
        if self.temperature != 1.0:
            scores = scores / self.temperature
        if bias is not None:
            scores = scores + ops.cast(bias, "float32")
        cap = self.logit_soft_cap
        return scores if cap is None else cap * ops.tanh(scores / cap)

    def slopes(self, inner: Tensor, scores: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """The derivatives of `value` by bias and by inner product; None where they are 1."""
        to_bias: Any = None
        if self.logit_soft_cap is not None:
            # Scores beyond the cap are of classes that are left out.
            share = ops.clip(scores / self.logit_soft_cap, -1.0, 1.0)
            to_bias = 1.0 - ops.square(share)
        to_inner, slope = to_bias, 1.0 / self.temperature
        if self.absolute:
            slope = ops.sign(inner) * slope
        if self.absolute or slope != 1.0:
            to_inner = slope if to_bias is None else to_bias * slope
        return to_bias, to_inner

    def class_losses(
        self,
        outer: Callable,
        hidden: Tensor,
        labels: Tensor,
        extra: tuple = (),
        weight: Tensor | None = None,
        class_chunk: int | None = None,
        with_sum: bool = False,
        expected: bool = True,
    ) -> Tensor:
        """`outer(log_rest, true, *extra)`, a loss (B,) over all classes, differentiable.

        It and its gradient hold some of the scores (B, n) at a time: see `softbench.streaming`.

        Args:
            outer: log of the sum of exp(score) over the classes that are none of an example's
                labels (B,), the scores (B, P) of these, with `with_sum` the sum (B,) of the scores
                of the other classes, and `extra` -> (B,). Of arrays it uses these alone, which may
                be of some of the examples.
            hidden: (B, d).
            labels: int32 (B, P), distinct or not, P may be 0.
            extra: arrays (B, ...) that are not differentiated.
            weight: (B,), what the losses will be multiplied by; those of weight 0 are 0. None: all
                count.
            class_chunk: as in `FullSoftmax`.
            with_sum: see `outer`.
            expected: whether the losses will be multiplied by `weight` and one factor. Anything
                else is right too, and takes longer.
        """
        hidden = l2_normalize(hidden) if self.normalize else hidden

        def losses(outer: Callable, labels: Tensor, weight: Any, known: bool, *inputs: Any) -> Any:
            hidden, *extra = inputs
            rows, *biases = self.all_rows(training=True)
            rows = l2_normalize(rows) if self.normalize else rows
            bias = biases[0] if biases else None
            sizes = hidden.shape[0], rows.shape[0]
            tile = streaming.tile(*sizes, class_chunk, known, self.absolute)
            arrays = hidden, rows, bias, labels, tuple(extra), weight
            options = (tile, self.compute_dtype, with_sum)
            return streaming.class_losses(outer, self, *arrays, *options)

        if self.num_shards == 1:
            return losses(outer, labels, weight, expected, hidden, *extra)

        def over_shards(outer: Callable, join: Callable) -> Tensor:
            def part(first: Tensor, count: int, hidden: Tensor, labels: Tensor) -> Tensor:
                return losses(outer, labels - first, None, False, hidden)

            variables = self.class_variables
            return by_shards(part, join, self.units, variables, [], hidden, labels)

        inputs = [
            over_shards(lambda log_rest, *_: log_rest, partial(ops.logsumexp, axis=0)),
            self.paired_logits(hidden[:, None], *self.gather(labels)),
        ]
        if with_sum:
            inputs.append(over_shards(lambda *inputs: inputs[2], partial(ops.sum, axis=0)))
        return outer(*inputs, *extra)

    @property
    def num_shards(self) -> int:
        """Into how many shards devices have divided the rows."""
        return max((shards(variable) for variable in self.class_variables), default=1)

    def log_partition(self, hidden: Tensor) -> Tensor:
        """log sum_i exp(score_i) (B,) of hidden (B, d), differentiable and streamed."""
        none = ops.zeros((ops.shape(hidden)[0], 0), "int32")
        return self.class_losses(lambda log_rest, _: log_rest, hidden, none, expected=False)


class Users:
    """Who uses a table: a plain object, so that Keras neither tracks nor saves what it names."""

    def __init__(self) -> None:
        self.heads: Any = weakref.WeakSet()
        self.embeddings: Any = weakref.WeakSet()
        self.trackers: list[weakref.ref] = []


def serialized(table: Table) -> dict:
    """A table for the config of a layer that uses it."""
    # Twice: from the second time on Keras says which object it is, where a model is being saved,
    # and gives the layers of a loaded model one table again by that.
    keras.saving.serialize_keras_object(table)
    return {**keras.saving.serialize_keras_object(table), "shared": table.is_shared}


def deserialized(config: Any, owner: str) -> Table:
    """The table of a config that `serialized` made.

    Raises:
        ValueError: if others use the table too, and nothing says which table that is.
    """
    if not isinstance(config, dict):
        return config
    if config.get("shared") and "shared_object_id" not in config:
        raise ValueError(
            f"`{owner}` can be copied only with all that share its `table`, by saving and loading "
            "the model (`model.save`, `keras.models.load_model`): a copy by `get_config` or "
            "`keras.models.clone_model` would have a table of its own. "
            f"Received: table={config['class_name']}"
        )
    return keras.saving.deserialize_keras_object(config)


def l2_normalize(x: Tensor) -> Tensor:
    """x / |x| along the last axis; a zero row stays zero."""
    return ops.cast(ops.cast(x, "float32") * _inverse_norm(x), x.dtype)


def _inverse_norm(x: Tensor) -> Tensor:
    """1 / |x| along the last axis (..., 1), float32; 1 for a zero row."""
    square = ops.sum(ops.square(ops.cast(x, "float32")), axis=-1, keepdims=True)
    return ops.rsqrt(ops.where(square > 0, square, 1.0))

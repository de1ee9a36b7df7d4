"""Losses over all classes on TensorFlow that hold few of the scores (B, n).

`streaming_jax.py` describes what they are. Here the gradient is formed where it is asked for. If a
tile holds the whole batch its scores are kept until then, else they are computed a second time.

Shape letters: B batch, d features, n classes, P labels of an example, C classes of a block.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from softbench.common import Tensor

EXCLUDED = -3e38  # score of a class that is in no sum; unlike -inf it makes no NaN


class _Problem(NamedTuple):
    """What does not change within a pass; arrays as in `class_losses`.

    `dtype` is what is multiplied. It is bfloat16 under XLA alone, which has such products with
    float32 sums; a graph would round the sums.
    """

    dtype: tf.DType
    form: Any
    hidden: Tensor
    kernel: Tensor
    bias: Tensor | None
    labels: Tensor
    classes: int
    scores: Tensor | None = None  # of all classes (B, n), where they are kept

    def ids(self, first: Tensor | int, size: int) -> Tensor:
        return first + tf.range(size)

    def product(self, a: Tensor, b: Tensor, **transposes: bool) -> Tensor:
        """a b in float32, of which `transpose_a` or `transpose_b` may be transposed first."""
        a, b = tf.cast(a, self.dtype), tf.cast(b, self.dtype)
        return tf.matmul(a, b, output_type=tf.float32, **transposes)

    def block(self, first: Tensor | int, size: int) -> tuple[Tensor, Tensor, Tensor]:
        """Of the classes [first, first + C): rows (C, d), inner products (B, C) and scores.

        Scores of an example's labels are EXCLUDED.
        """
        ids, shape = self.ids(first, size), (size, self.kernel.shape[1])
        rows = tf.cast(tf.slice(self.kernel, (first, 0), shape), self.dtype)
        if self.scores is not None:  # of which the form's slopes are functions
            scores = tf.slice(self.scores, (0, first), (-1, size))
            return rows, scores, scores
        inner = self.product(self.hidden, rows, transpose_b=True)
        bias = None if self.bias is None else tf.slice(self.bias, (first,), (size,))
        scores = self.form.value(inner, bias)
        if self.labels.shape[1] == 1:
            return rows, inner, tf.where(ids == self.labels, EXCLUDED, scores)
        is_here = (self.labels >= first) & (self.labels < first + size)
        # A scatter: to compare all with all would take P times the memory.
        example = tf.broadcast_to(tf.range(tf.shape(self.labels)[0])[:, None], tf.shape(is_here))
        column = tf.where(is_here, self.labels - first, 0)
        at = tf.reshape(tf.stack([example, column], axis=-1), (-1, 2))
        number = tf.scatter_nd(at, tf.reshape(tf.cast(is_here, tf.int32), (-1,)), tf.shape(scores))
        return rows, inner, tf.where(number > 0, EXCLUDED, scores)

    def label_rows(self) -> Tensor:
        """Rows (B, P, d) of the labels."""
        rows = tf.gather(self.kernel, self.clipped())
        return tf.cast(tf.cast(rows, self.dtype), tf.float32)

    def clipped(self) -> Tensor:
        return tf.clip_by_value(self.labels, 0, self.kernel.shape[0] - 1)

    def label_scores(self) -> tuple[Tensor, Tensor]:
        """Inner products and scores (B, P) of the labels."""
        inner = tf.einsum("bpd,bd->bp", self.label_rows(), self.hidden)
        bias = None if self.bias is None else tf.gather(self.bias, self.clipped())
        return inner, self.form.value(inner, bias)


def class_losses(
    outer: Callable,
    form: Any,
    hidden: Tensor,
    kernel: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    extra: tuple,
    weight: Tensor | None,
    rows: int,
    classes: int,
    dtype: str,
) -> Tensor:
    """`outer(log_rest, true, *extra)` (B,), as in `streaming_jax.py`.

    Of `dtype` are the hidden vectors that are multiplied. `rows` counts only if it is B.

    Examples of weight 0 are left out, but under XLA, where shapes are fixed.
    """
    keep = rows > 0 and rows == hidden.shape[0]
    arguments = (outer, form, kernel, bias, min(classes, kernel.shape[0]), keep, dtype)
    if weight is None or is_under_xla():
        return _losses(*arguments, hidden, labels, extra)
    present = tf.where(tf.not_equal(weight, 0))[:, 0]
    chosen = tf.nest.map_structure(lambda x: tf.gather(x, present), (hidden, labels, extra))
    losses = _losses(*arguments, *chosen)
    return tf.scatter_nd(present[:, None], losses, tf.shape(weight, out_type=tf.int64))


def _losses(
    outer: Callable,
    form: Any,
    kernel: Tensor,
    bias: Tensor | None,
    classes: int,
    keep: bool,
    dtype: str,
    hidden: Tensor,
    labels: Tensor,
    extra: tuple,
) -> Tensor:
    @tf.custom_gradient
    def losses(hidden: Tensor, kernel: Tensor, *biases: Tensor) -> tuple[Tensor, Callable]:
        bias = tf.cast(biases[0], tf.float32) if biases else None
        rounded = tf.cast(tf.cast(hidden, dtype), tf.float32)
        is_half = dtype == "bfloat16" and is_under_xla()
        multiplied = tf.bfloat16 if is_half else tf.float32
        problem = _Problem(multiplied, form, rounded, kernel, bias, labels, classes)
        if keep:
            scores = problem.block(0, kernel.shape[0])[2]
            problem = problem._replace(scores=scores, classes=kernel.shape[0])
            log_rest = tf.reduce_logsumexp(scores, axis=1)
        else:
            log_rest = _log_rest(problem)
        true = problem.label_scores()[1]

        def gradient(upstream: Tensor) -> tuple:
            with tf.GradientTape() as tape:
                tape.watch((log_rest, true))
                result = outer(log_rest, true, *extra)
            by_rest, by_true = tape.gradient(
                result, (log_rest, true), upstream, unconnected_gradients="zero"
            )
            gradients = _gradients(problem, log_rest, by_rest, by_true)
            arrays = hidden, kernel, *biases
            return tuple(tf.cast(g, x.dtype) for g, x in zip(gradients, arrays, strict=True))

        return outer(log_rest, true, *extra), gradient

    return losses(hidden, tf.convert_to_tensor(kernel), *([] if bias is None else [bias]))


def _over_blocks(problem: _Problem, step: Callable, state: tuple) -> tuple:
    """`state = step(first, size, *state)` for each block; the last may be smaller."""
    size, units = problem.classes, problem.kernel.shape[0]
    if size == units:
        return step(0, size, *state)
    count = units // size

    def body(index: Tensor, *state: Tensor) -> tuple:
        return index + 1, *step(index * size, size, *state)

    arguments = (lambda index, *_: index < count, body, (0, *state))
    state = tf.while_loop(*arguments, parallel_iterations=1)[1:]
    return step(count * size, units % size, *state) if units % size else state


def _log_rest(problem: _Problem) -> Tensor:
    """log of the sum (B,) over the classes that are no label."""

    def step(first: Tensor, size: int, peak: Tensor, total: Tensor) -> tuple:
        scores = problem.block(first, size)[2]
        higher = tf.maximum(peak, tf.reduce_max(scores, axis=1))
        scores = tf.exp(scores - higher[:, None])
        return higher, total * tf.exp(peak - higher) + tf.reduce_sum(scores, axis=1)

    zero = tf.zeros_like(problem.hidden[:, 0])
    peak, total = _over_blocks(problem, step, (zero + EXCLUDED, zero))
    return peak + tf.math.log(total)


def _gradients(
    problem: _Problem, log_rest: Tensor, by_rest: Tensor, by_true: Tensor
) -> list[Tensor]:
    """Gradients of hidden, kernel and, if there is one, bias."""
    in_place = not is_under_xla()

    def empty(like: Tensor) -> Tensor:
        if in_place:  # not zeros, which may be one constant of all steps
            return tf.raw_ops.Empty(shape=tf.shape(like), dtype=tf.float32)
        return tf.zeros(tf.shape(like), tf.float32)

    def write(target: Tensor, ids: Tensor, rows: Tensor) -> Tensor:
        if in_place:  # an update of a tensor copies all of it, even in a loop
            return tf.raw_ops.InplaceUpdate(x=target, i=ids, v=rows)
        return tf.tensor_scatter_nd_update(target, ids[:, None], rows)

    def add(target: Tensor, ids: Tensor, rows: Tensor) -> Tensor:
        is_class = (ids >= 0) & (ids < problem.kernel.shape[0])
        shape = (-1,) + (1,) * (len(rows.shape) - 1)
        rows = tf.where(tf.reshape(is_class, shape), rows, 0.0)
        ids = tf.where(is_class, ids, 0)
        if in_place:
            return tf.raw_ops.InplaceAdd(x=target, i=ids, v=rows)
        return tf.tensor_scatter_nd_add(target, ids[:, None], rows)

    def step(first: Tensor, size: int, to_hidden: Tensor, *tables: Tensor) -> tuple:
        rows, inner, scores = problem.block(first, size)
        part = tf.exp(scores - log_rest[:, None])
        slope, inner_slope = problem.form.slopes(inner, scores)
        by_inner = part if inner_slope is None else part * inner_slope
        to_hidden = to_hidden + problem.product(by_inner, rows)
        ids = problem.ids(first, size)
        blocks = [problem.product(by_inner, weighted, transpose_a=True)]
        if problem.bias is not None:
            part = part if slope is None else part * slope
            blocks.append(tf.linalg.matvec(part, by_rest, transpose_a=True))
        if size == problem.kernel.shape[0]:
            return to_hidden, *blocks
        updated = (write(x, ids, block) for x, block in zip(tables, blocks, strict=True))
        return to_hidden, *updated

    weighted = problem.hidden * by_rest[:, None]
    tables = [empty(problem.kernel), *([] if problem.bias is None else [empty(problem.bias)])]
    state = (tf.zeros_like(problem.hidden), *tables)
    to_hidden, *tables = _over_blocks(problem, step, state)
    slope, inner_slope = problem.form.slopes(*problem.label_scores())
    by_inner = by_true if inner_slope is None else by_true * inner_slope
    to_labels = tf.einsum("bp,bpd->bd", by_inner, problem.label_rows())
    to_hidden = to_hidden * by_rest[:, None] + to_labels
    ids = tf.reshape(problem.labels, (-1,))
    by_row = by_inner[:, :, None] * problem.hidden[:, None]
    blocks = [tf.reshape(by_row, (-1, problem.kernel.shape[1]))]
    if problem.bias is not None:
        blocks.append(tf.reshape(by_true if slope is None else by_true * slope, (-1,)))
    return [to_hidden, *(add(x, ids, block) for x, block in zip(tables, blocks, strict=True))]


def is_under_xla() -> bool:
    """Whether what is traced now will be compiled by XLA, which has no updates in place."""
    graph = tf.compat.v1.get_default_graph()
    while graph is not None:
        context = graph._get_control_flow_context()
        while context is not None:
            if context.IsXLAContext():
                return True
            context = context.outer_context
        graph = getattr(graph, "outer_graph", None)
    return False

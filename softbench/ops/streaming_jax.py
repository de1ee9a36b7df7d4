"""Losses over all classes on JAX that hold few of the scores (B, n); see `softbench.streaming`.

Shape letters: B batch, d features, n classes, P labels of an example, R rows of a tile, C classes
of a block, S blocks.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from softbench.common import Tensor

EXCLUDED = -3e38  # score of a class that is in no sum; unlike -inf it makes no NaN
_SAME = 1e-6  # relative difference up to which two upstream gradients are one
_FLOAT32 = jnp.float32


class _Problem(NamedTuple):
    """What does not change within a pass; arrays as in `class_losses`."""

    form: Any
    kernel: Tensor
    bias: Tensor | None
    classes: int
    dtype: Any

    @property
    def count(self) -> int:
        """S."""
        return -(-self.kernel.shape[0] // self.classes)

    def start(self, index: Tensor) -> Tensor:
        """The first class of a block; the last block is moved back to end at n."""
        return jnp.minimum(index * self.classes, self.kernel.shape[0] - self.classes)

    def rows(self, index: Tensor) -> tuple[Tensor, Tensor | None, Tensor]:
        """Rows (C, d) and biases (C,) of a block, and which of them no block before has had."""
        start = self.start(index)
        rows = jax.lax.dynamic_slice_in_dim(self.kernel, start, self.classes).astype(self.dtype)
        bias = self.bias
        if bias is not None:
            bias = jax.lax.dynamic_slice_in_dim(bias, start, self.classes).astype(_FLOAT32)
        fresh = start + jnp.arange(self.classes) >= index * self.classes
        return rows, bias, fresh

    def label_rows(self, labels: Tensor) -> Tensor:
        """Rows (..., d) of labels, as the products see them, in float32."""
        rows = jnp.take(self.kernel, labels, axis=0, mode="clip")
        return rows.astype(self.dtype).astype(_FLOAT32)


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
    """`outer(log_rest, true, *extra)` (B,), differentiable in hidden, kernel and bias.

    With `rows` a tile of so many examples keeps its scores of all classes, and the gradient is
    formed right after the loss: three products instead of four. What comes from above is then not
    known yet, so the tables' gradients are formed for `weight`; another one (found when it is
    there) has them computed anew.

    Args:
        outer: the logarithm of the sum over the classes that are no label (R,), the labels' scores
            (R, P), and rows of `extra` -> losses (R,).
        form: the table: of it `value(inner, bias)`, float32 scores of inner products, and
            `slopes(inner, score)`, their derivatives by bias and by inner product, None for 1.
        hidden: (B, d).
        kernel, bias: (n, d), and (n,) or None.
        labels: int32 (B, P); what is not in [0, n) is no class.
        extra: arrays (B, ...), not differentiated.
        weight: (B,), what the losses are expected to be multiplied by, up to one factor; an example
            of weight 0 is left out where there are tiles. None: all 1.
        rows: R, or 0 to compute the scores twice instead of keeping any.
        classes: C.
        dtype: of what is multiplied if it is "bfloat16", whose products have float32 sums; else
            that is float32: float16 would not hold small probabilities.
    """
    dtype = jnp.bfloat16 if dtype == "bfloat16" else _FLOAT32
    classes = min(classes, kernel.shape[0])
    weight = jnp.ones(hidden.shape[0], _FLOAT32) if weight is None else weight.astype(_FLOAT32)

    @jax.custom_vjp
    def losses(hidden: Tensor, kernel: Tensor, bias: Tensor | None, fixed: tuple) -> Tensor:
        labels, extra, _ = fixed
        problem = _Problem(form, kernel, bias, classes, dtype)
        return outer(*_forward(problem, hidden, labels), *extra)

    def forward(hidden: Tensor, kernel: Tensor, bias: Tensor | None, fixed: tuple) -> tuple:
        labels, extra, weight = fixed
        problem = _Problem(form, kernel, bias, classes, dtype)
        if not rows:
            log_rest, true = _forward(problem, hidden, labels)
            result = outer(log_rest, true, *extra)
            return result, (hidden, kernel, bias, fixed, (log_rest, true))
        result, *kept = _in_tiles(problem, outer, hidden, labels, extra, weight, rows)
        return result, (hidden, kernel, bias, fixed, kept)

    def backward(residuals: tuple, upstream: Tensor) -> tuple:
        hidden, kernel, bias, fixed, kept = residuals
        problem = _Problem(form, kernel, bias, classes, dtype)
        if rows:
            gradients = _scaled(problem, outer, hidden, fixed, kept, upstream)
        else:
            zeros = jnp.zeros(kernel.shape, _FLOAT32), _zeros_like(bias)
            arguments = (problem, outer, hidden, fixed, kept, upstream)
            gradients = _backward(*arguments, zeros, problem.count)
        arrays = hidden, kernel, bias
        pairs = zip(gradients, arrays, strict=True)
        return *(g if x is None else g.astype(x.dtype) for g, x in pairs), None

    losses.defvjp(forward, backward)
    return losses(hidden, kernel, bias, (labels, extra, weight))


def _product(a: Tensor, b: Tensor) -> Tensor:
    """a b in float32."""
    return jnp.matmul(a, b, preferred_element_type=_FLOAT32)


def _zeros_like(x: Tensor | None) -> Tensor | None:
    return None if x is None else jnp.zeros(x.shape, _FLOAT32)


def _block_scores(
    problem: _Problem, hidden: Tensor, labels: Tensor, index: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Of a block: its rows (C, d), inner products (B, C), and scores with EXCLUDED ones."""
    rows, bias, fresh = problem.rows(index)
    inner = _product(hidden.astype(problem.dtype), rows.T)
    scores = jnp.where(fresh, problem.form.value(inner, bias), EXCLUDED)
    column = labels - problem.start(index)
    if labels.shape[1] == 1:  # no scatter, which would be a pass of its own
        return rows, inner, jnp.where(column == jnp.arange(problem.classes), EXCLUDED, scores)
    column = jnp.where(column < 0, problem.classes, column)  # past the end, which is dropped
    example = jnp.arange(hidden.shape[0])[:, None]
    return rows, inner, scores.at[example, column].set(EXCLUDED, mode="drop")


def _forward(problem: _Problem, hidden: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """log of the sum over the other classes (B,), and the labels' scores (B, P)."""

    def step(index: Tensor, state: tuple) -> tuple:
        peak, total = state
        scores = _block_scores(problem, hidden, labels, index)[2]
        higher = jnp.maximum(peak, jnp.max(scores, axis=1))
        scores = jnp.exp(scores - higher[:, None])
        return higher, total * jnp.exp(peak - higher) + jnp.sum(scores, axis=1)

    size = hidden.shape[0]
    state = jnp.full(size, EXCLUDED, _FLOAT32), jnp.zeros(size, _FLOAT32)
    peak, total = jax.lax.fori_loop(0, problem.count, step, state)
    return peak + jnp.log(total), _label_scores(problem, hidden, labels)[1]


def _label_scores(problem: _Problem, hidden: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Inner products and scores (B, P) of the labels."""
    hidden = hidden.astype(problem.dtype).astype(_FLOAT32)
    inner = jnp.einsum("bpd,bd->bp", problem.label_rows(labels), hidden)
    bias = problem.bias
    if bias is not None:
        bias = jnp.take(bias, labels, axis=0, mode="clip").astype(_FLOAT32)
    return inner, problem.form.value(inner, bias)


def _slopes(problem: _Problem, inner: Tensor, scores: Tensor) -> tuple:
    """The form's derivatives by bias and inner product, 1.0 where there is none."""
    return tuple(1.0 if s is None else s for s in problem.form.slopes(inner, scores))


def _backward(
    problem: _Problem,
    outer: Callable,
    hidden: Tensor,
    fixed: tuple,
    kept: tuple,
    upstream: Tensor,
    tables: tuple,
    count: Tensor | int,
) -> tuple:
    """Gradients of hidden, kernel and bias; the scores are computed a second time.

    Args:
        tables: what the gradients of kernel and bias are written into.
        count: S, or 0 to leave all as it is.
    """
    labels, extra, _ = fixed
    log_rest, true = kept
    _, pull = jax.vjp(lambda z, t: outer(z, t, *extra), log_rest, true)
    by_rest, by_true = pull(upstream)
    # Examples that do not count have no sum where tiles have left them out: e^score / 1 times 0
    # would be NaN.
    log_rest = jnp.where(by_rest == 0, -EXCLUDED, log_rest)
    hidden32 = hidden.astype(problem.dtype).astype(_FLOAT32)

    def step(index: Tensor, state: tuple) -> tuple:
        to_hidden, to_kernel, to_bias = state
        rows, inner, scores = _block_scores(problem, hidden, labels, index)
        part = jnp.exp(scores - log_rest[:, None]) * by_rest[:, None]
        slope, inner_slope = _slopes(problem, inner, scores)
        start, fresh = problem.start(index), problem.rows(index)[2]
        by_inner = (part * inner_slope).astype(problem.dtype)
        to_rows = _product(by_inner.T, hidden.astype(problem.dtype))
        # Of classes that a block before has had the scores are EXCLUDED: what that wrote stays.
        to_hidden = to_hidden + _product(by_inner, rows)
        to_kernel = _write(to_kernel, to_rows, start, fresh)
        if to_bias is not None:
            to_bias = _write(to_bias, jnp.sum(part * slope, axis=0), start, fresh)
        return to_hidden, to_kernel, to_bias

    state = jnp.zeros(hidden.shape, _FLOAT32), *tables
    to_hidden, to_kernel, to_bias = jax.lax.fori_loop(0, count, step, state)
    by_true = jnp.where(count > 0, by_true, 0.0)
    inner = _label_scores(problem, hidden, labels)
    slope, inner_slope = _slopes(problem, *inner)
    by_inner = by_true * inner_slope
    to_hidden = to_hidden + jnp.einsum("bp,bpd->bd", by_inner, problem.label_rows(labels))
    ids = jnp.where(labels < 0, problem.kernel.shape[0], labels)
    by_row = by_inner[:, :, None] * hidden32[:, None]
    to_kernel = to_kernel.at[ids].add(by_row, mode="drop")
    if to_bias is not None:
        to_bias = to_bias.at[ids].add(by_true * slope, mode="drop")
    return to_hidden, to_kernel, to_bias


def _write(target: Tensor, block: Tensor, start: Tensor, fresh: Tensor) -> Tensor:
    """`target` with the fresh rows of a block at `start`."""
    old = jax.lax.dynamic_slice_in_dim(target, start, block.shape[0])
    fresh = fresh.reshape(-1, *[1] * (block.ndim - 1))
    return jax.lax.dynamic_update_slice_in_dim(target, jnp.where(fresh, block, old), start, 0)


def _in_tiles(
    problem: _Problem,
    outer: Callable,
    hidden: Tensor,
    labels: Tensor,
    extra: tuple,
    weight: Tensor,
    rows: int,
) -> tuple:
    """Losses (B,), and what `_scaled` needs: gradients for the upstream `weight`.

    Examples of weight 0 go to the end, and tiles of these alone are not computed.
    """
    size = hidden.shape[0]
    tiles = -(-size // rows)
    order = jnp.argsort(weight == 0, stable=True)
    order = jnp.pad(order, (0, tiles * rows - size), constant_values=size)
    take = partial(jnp.take, indices=order, axis=0, mode="fill", fill_value=0)
    arrays = jax.tree.map(
        lambda x: take(x).reshape(tiles, rows, *x.shape[1:]), (hidden, labels, extra, weight)
    )

    def step(index: Tensor, state: tuple) -> tuple:
        outputs, tables = state
        hidden, labels, extra, weight = jax.tree.map(lambda x: x[index], arrays)
        arguments = (problem, outer, hidden, labels, extra, weight)
        outputs_of_tile, tables = _tile(*arguments, tables)
        pairs = zip(outputs, outputs_of_tile, strict=True)
        return tuple(x.at[index].set(y) for x, y in pairs), tables

    p = labels.shape[1]
    shapes = [(), (hidden.shape[1],), (), (p,)]
    outputs = tuple(jnp.zeros((tiles, rows, *shape), _FLOAT32) for shape in shapes)
    tables = jnp.zeros(problem.kernel.shape, _FLOAT32), _zeros_like(problem.bias)
    used = -(-jnp.sum(weight != 0) // rows)
    outputs, tables = jax.lax.fori_loop(0, used, step, (outputs, tables))

    def back(x: Tensor) -> Tensor:
        flat = x.reshape(tiles * rows, *x.shape[2:])
        return jnp.zeros((size, *x.shape[2:]), x.dtype).at[order].set(flat, mode="drop")

    result, to_hidden, log_rest, true = map(back, outputs)
    return result, (log_rest, true), to_hidden, tables


def _tile(
    problem: _Problem,
    outer: Callable,
    hidden: Tensor,
    labels: Tensor,
    extra: tuple,
    weight: Tensor,
    tables: tuple,
) -> tuple:
    """Of R examples: (losses, gradient of hidden for upstream 1, log_rest, true), tables."""
    hidden = hidden.astype(problem.dtype)

    def block(index: Tensor) -> Tensor:
        return _block_scores(problem, hidden, labels, index)[2]

    scores = jax.lax.map(block, jnp.arange(problem.count))  # (S, R, C)
    inner, true = _label_scores(problem, hidden, labels)
    peak = jnp.max(scores, axis=(0, 2))
    total = jnp.sum(jnp.exp(scores - peak[:, None]), axis=(0, 2))
    log_rest = peak + jnp.log(total)
    losses, pull = jax.vjp(lambda z, t: outer(z, t, *extra), log_rest, true)
    by_rest, by_true = pull(jnp.ones_like(losses))
    by_rest = by_rest / total
    hidden32 = hidden.astype(_FLOAT32)
    weighted = (hidden32 * (by_rest * weight)[:, None]).astype(problem.dtype)

    def step(index: Tensor, state: tuple) -> tuple:
        to_hidden, to_kernel, to_bias = state
        rows = problem.rows(index)[0]
        block = jax.lax.dynamic_index_in_dim(scores, index, keepdims=False)
        slope, inner_slope = _slopes(problem, block, block)
        part = jnp.exp(block - peak[:, None])
        by_inner = (part * inner_slope).astype(problem.dtype)
        start = problem.start(index)
        to_hidden = to_hidden + _product(by_inner, rows)
        to_kernel = _add(to_kernel, _product(by_inner.T, weighted), start)
        if to_bias is not None:
            part = part * slope * (by_rest * weight)[:, None]
            to_bias = _add(to_bias, jnp.sum(part, axis=0), start)
        return to_hidden, to_kernel, to_bias

    state = jnp.zeros(hidden.shape, _FLOAT32), *tables
    to_hidden, to_kernel, to_bias = jax.lax.fori_loop(0, problem.count, step, state)
    slope, inner_slope = _slopes(problem, inner, true)
    by_inner = by_true * inner_slope
    to_labels = jnp.einsum("bp,bpd->bd", by_inner, problem.label_rows(labels))
    to_hidden = to_hidden * by_rest[:, None] + to_labels
    ids = jnp.where(labels < 0, problem.kernel.shape[0], labels)
    by_row = (weight[:, None] * by_inner)[:, :, None] * hidden32[:, None]
    to_kernel = to_kernel.at[ids].add(by_row, mode="drop")
    if to_bias is not None:
        to_bias = to_bias.at[ids].add(weight[:, None] * by_true * slope, mode="drop")
    return (losses, to_hidden, log_rest, true), (to_kernel, to_bias)


def _add(target: Tensor, block: Tensor, start: Tensor) -> Tensor:
    old = jax.lax.dynamic_slice_in_dim(target, start, block.shape[0])
    return jax.lax.dynamic_update_slice_in_dim(target, old + block, start, 0)


def _scaled(
    problem: _Problem,
    outer: Callable,
    hidden: Tensor,
    fixed: tuple,
    kept: list,
    upstream: Tensor,
) -> tuple:
    """The gradients for `upstream`, from those for the weights that it was expected to be."""
    ends, to_hidden, (to_kernel, to_bias) = kept
    weight = fixed[2]
    largest = jnp.argmax(jnp.abs(weight))
    factor = upstream[largest] / jnp.where(weight[largest] == 0, 1.0, weight[largest])
    difference = jnp.max(jnp.abs(upstream - factor * weight))
    is_same = difference <= _SAME * jnp.max(jnp.abs(upstream))
    factor = jnp.where(is_same, factor, 1.0)
    # Not `cond`, which would copy the table's gradient: a loop of no steps leaves it where it is.
    count = jnp.where(is_same, 0, problem.count)
    start = to_kernel, to_bias
    again = _backward(problem, outer, hidden, fixed, ends, upstream, start, count)
    to_hidden = jnp.where(is_same, to_hidden * upstream[:, None], again[0])
    return to_hidden, *(g if g is None else g * factor for g in again[1:])

"""Losses over all classes that hold few of the scores (B, n), and their gradients.

`Table.class_losses` uses it. The examples come in tiles of R, the classes in blocks of C, so that
what is made of a block's scores (R, C) is made while they are in the caches. The first pass of a
tile over the blocks finds log of the sum of exp(score), the second the gradients, of

    hidden: sum over blocks of s rows,    rows: s^T hidden,    s: derivatives by inner products.

The second needs the scores again. If there is room the first keeps those of a tile, (R, n), and
three products are made, else they are computed twice, four products. Scores kept of a first of
several tiles have to be used before those of the second are computed: then both passes are made
when the loss is computed, for the gradient of the losses that is expected from above ("early").
A factor common to all examples is made good for afterwards; if the losses are differentiated in
another way the gradients are computed anew.

All sums are float32. Shape letters: B batch, d features, n classes, P labels of an example, R
examples of a tile, T tiles, C classes of a block, S blocks.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from keras import ops, tree

from softbench.common import Tensor
from softbench.ops import (
    add_rows,
    buffer,
    differentiable,
    exclude,
    loop,
    on_cpu,
    product,
    product_dtype,
    pulled,
    scaled,
    write,
)

EXCLUDED = -3e38  # score of a class that is in no sum; unlike -inf it makes no NaN
_SAME = 1e-6  # relative difference up to which two gradients from above are one


class Sizes(NamedTuple):
    """Sizes that suit a kind of device.

    Attributes:
        kept: scores (R, n) that may be kept, float32.
        rows: R of kept scores, at most. More rows pass over the table's gradient less often.
        fewest: R of kept scores, at least: below, passing over the table's gradient takes longer
            than a second computation of the scores.
        examples: R at most where the scores are computed twice.
        block: C at most.
        least: scores that are held whatever `class_chunk` says.
    """

    kept: int
    rows: int
    fewest: int
    examples: int
    block: int
    least: int


# Two cores, B = 512, n = 65,536, d = 512, float32, of the three products alone: 1.07 with R = 256,
# 1.22 with 128, 1.28 without tiles. Blocks of 1,024 classes stay in the caches: 1.11 to 1.14 where
# 4,096 take 1.23 (B = d = 256). With at least 2**21 scores (8 MiB) those of 96 examples and more
# are kept up to n = 21,000: at n = 16,384 a step on JAX takes 1.09 to 1.15 of plain Keras', and
# 1.24 where 2**18 scores make it compute them twice. TensorFlow gains 6 % in float32 and loses 12 %
# in bfloat16. An accelerator wants larger products; its sizes are not measured.
CPU = Sizes(2**25, 256, 96, 1024, 1024, 2**21)
ACCELERATOR = Sizes(2**28, 4096, 512, 8192, 16_384, 2**22)


class Tile(NamedTuple):
    """R, C, whether the first pass keeps its scores, and whether the gradient is formed early."""

    rows: int
    classes: int
    keep: bool
    early: bool


def tile(
    batch: int | None,
    units: int,
    class_chunk: int | None,
    expected: bool = True,
    absolute: bool = False,
) -> Tile:
    """How B examples, None if not known, and n classes are divided.

    Args:
        batch, units: B and n.
        class_chunk: as in `FullSoftmax`: at most B times as many scores are held, or `Sizes.least`.
        expected: whether the gradient from above is expected to be what the weights say.
        absolute: whether scores are absolute values, which do not tell the sign of what they are
            of, so that none are kept.
    """
    sizes = CPU if on_cpu() else ACCELERATOR
    examples = sizes.rows if batch is None else max(batch, 1)
    room = sizes.kept if class_chunk is None else max((batch or 0) * class_chunk, sizes.least)
    rows = min(room // units, sizes.rows, examples)
    if rows >= min(sizes.fewest, examples) and not absolute:
        early = batch is None or rows < batch
        if expected or not early:
            return Tile(rows, min(units, sizes.block), True, early)
    rows = min(examples, sizes.examples)
    least = max(class_chunk or units, sizes.least // rows)
    return Tile(rows, min(units, sizes.block, least), False, False)


class _Problem(NamedTuple):
    """What does not change within a step; `class_losses` and `Tile` have the rest.

    Attributes:
        dtype: of what is multiplied.
        tiles, rows: T and R, tensors where B is not known; tiles of equal size.
    """

    outer: Callable
    form: Any
    kernel: Tensor
    bias: Tensor | None
    dtype: str
    with_sum: bool
    tiles: Any
    rows: Any
    classes: int
    keep: bool
    early: bool

    @property
    def units(self) -> int:
        """n."""
        return self.kernel.shape[0]

    @property
    def count(self) -> int:
        """S."""
        return -(-self.units // self.classes)

    def start(self, index: Tensor) -> Tensor:
        """The first class of a block; the last block is moved back to end at n."""
        return ops.minimum(index * self.classes, self.units - self.classes)

    def block_rows(self, index: Tensor) -> Tensor:
        """(C, d)."""
        return ops.cast(_part(self.kernel, self.start(index), self.classes), self.dtype)

    def block(self, hidden: Tensor, labels: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        """Inner products and scores (R, C) of a block.

        Those of labels, and of classes that the block before has, are EXCLUDED.
        """
        start = self.start(index)
        inner = product(hidden, self.block_rows(index), transpose_b=True)
        bias = self.bias
        bias = None if bias is None else _part(bias, start, self.classes)
        scores = self.form.value(inner, bias)
        classes = ops.arange(self.classes)
        if self.units % self.classes:
            scores = ops.where(start + classes >= index * self.classes, scores, EXCLUDED)
        column = labels - start
        if labels.shape[1] == 1:  # no scatter, which would be a pass of its own
            return inner, ops.where(column == classes, EXCLUDED, scores)
        return inner, exclude(scores, column, EXCLUDED)

    def labels(self, examples: "_Examples") -> tuple[Tensor, Tensor, Tensor]:
        """Rows (R, P, d) of the labels, as the products see them, inner products and scores."""
        ids = ops.clip(examples.labels, 0, self.units - 1)
        rows = ops.cast(ops.cast(ops.take(self.kernel, ids, axis=0), self.dtype), "float32")
        inner = ops.einsum("rpd,rd->rp", rows, ops.cast(examples.hidden, "float32"))
        bias = None if self.bias is None else ops.take(self.bias, ids, axis=0)
        return rows, inner, self.form.value(inner, bias)

    def chained(self, inner: Tensor, scores: Tensor, by_scores: Tensor) -> tuple[Tensor, Tensor]:
        """The derivatives by inner products and by biases, of those by scores."""
        to_bias, to_inner = self.form.slopes(inner, scores)
        by_inner = by_scores if to_inner is None else by_scores * to_inner
        return by_inner, by_scores if to_bias is None else by_scores * to_bias

    def add(self, table: Tensor, block: Tensor, start: Tensor) -> Tensor:
        """`table` with a block of a gradient added, which is written where there is one tile."""
        if not (isinstance(self.tiles, int) and self.tiles == 1):
            block = block + _part(table, start, self.classes)
        return write(table, block, start)


class _Examples(NamedTuple):
    """Examples (R, ...) of a tile, or (T, R, ...) of all; `upstream` is the gradient from above."""

    hidden: Tensor
    labels: Tensor
    extra: tuple
    upstream: Tensor


class _Sums(NamedTuple):
    """Of the scores of the classes that are no label, for each example; and the labels' (R, P).

    Attributes:
        peak: the largest.
        total: sum of exp(score - peak).
        plain: (sum of the scores,), or () where no one wants it.
        true: the labels' scores.
    """

    peak: Tensor
    total: Tensor
    plain: tuple
    true: Tensor

    def inputs(self) -> tuple:
        """What the losses are functions of."""
        return self.peak + ops.log(self.total), self.true, *self.plain


def class_losses(
    outer: Callable,
    form: Any,
    hidden: Tensor,
    kernel: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    extra: tuple,
    weight: Tensor | None,
    tile: Tile,
    dtype: str,
    with_sum: bool = False,
) -> Tensor:
    """`outer(log_rest, true, *extra)` (B,), differentiable in hidden, kernel and bias.

    Args:
        outer: the logarithm of the sum of exp(score) over the classes that are no label (R,), the
            labels' scores (R, P), with `with_sum` the sum (R,) of the scores of the classes that
            are no label, and rows of `extra` -> losses (R,).
        form: the table: of it `value(inner, bias)`, float32 scores of inner products, and
            `slopes(inner, score)`, their derivatives by bias and by inner product, None for 1.
        hidden: (B, d).
        kernel, bias: (n, d), and (n,) or None.
        labels: int32 (B, P); what is not in [0, n) is no class.
        extra: arrays (B, ...), not differentiated.
        weight: (B,), what the losses are expected to be multiplied by, up to one factor; the loss
            of an example of weight 0 is 0. None: all 1.
        tile: how it is computed.
        dtype: the table's compute dtype, see `product_dtype`.
        with_sum: see `outer`.
    """
    size = ops.shape(hidden)[0]
    tiles = _at_least_one(-(-size // tile.rows))
    rows = _at_least_one(-(-size // tiles))
    weight = ops.ones((size,), "float32") if weight is None else ops.cast(weight, "float32")
    options = (product_dtype(dtype), with_sum, tiles, rows, *tile[1:])

    def problem(kernel: Tensor, *biases: Tensor) -> _Problem:
        bias = ops.cast(biases[0], "float32") if biases else None
        return _Problem(outer, form, kernel, bias, *options)

    def value(arrays: tuple, fixed: tuple) -> Tensor:
        hidden, *tables = arrays
        plain = problem(*tables)._replace(keep=False, early=False)
        return _forward(plain, hidden, *fixed)[0]

    def forward(arrays: tuple, fixed: tuple) -> tuple[Tensor, Any]:
        hidden, *tables = arrays
        return _forward(problem(*tables), hidden, *fixed)

    def backward(arrays: tuple, fixed: tuple, kept: Any, upstream: Tensor) -> tuple:
        hidden, *tables = arrays
        gradients = _backward(problem(*tables), hidden, *fixed, kept, upstream)
        return tuple(ops.cast(g, x.dtype) for g, x in zip(gradients, arrays, strict=True))

    arrays = (hidden, kernel) if bias is None else (hidden, kernel, bias)
    return differentiable(value, forward, backward, arrays, (labels, extra, weight))


def _at_least_one(x: Any) -> Any:
    return max(x, 1) if isinstance(x, int) else ops.maximum(x, 1)


def _part(x: Tensor, start: Tensor, size: int) -> Tensor:
    """`x[start : start + size]`."""
    rest = ops.shape(x)[1:]
    return ops.slice(x, (start, *[0] * len(rest)), (size, *rest))


def _at(arrays: Any, index: Tensor) -> Any:
    """Of a tree of arrays the entries `index`."""
    return tree.map_structure(lambda x: _part(x, index, 1)[0], arrays)


def _put(arrays: Any, entries: Any, index: Tensor) -> Any:
    """A tree of arrays with other entries `index`."""
    return tree.map_structure(lambda x, y: write(x, y[None], index), arrays, entries)


class _Order(NamedTuple):
    """Examples in tiles, those of weight 0 last.

    Attributes:
        problem: says T and R.
        order: (T R,), the examples in that order; from B on are those that fill the tiles.
        weight: (T R,), in that order.
        size: B.
        used: how many tiles have examples of another weight.
    """

    problem: _Problem
    order: Tensor
    weight: Tensor
    size: Any
    used: Tensor

    @classmethod
    def of(cls, problem: _Problem, weight: Tensor) -> "_Order":
        size = ops.shape(weight)[0]
        weight = _padded(weight, problem.tiles * problem.rows - size)
        order = ops.argsort(ops.cast(weight == 0, "int32"))
        count = ops.sum(ops.cast(weight != 0, "int32"))
        return cls(problem, order, ops.take(weight, order), size, -(-count // problem.rows))

    def tiled(self, x: Tensor) -> Tensor:
        """(B, ...) as (T, R, ...)."""
        problem = self.problem
        x = ops.take(_padded(x, problem.tiles * problem.rows - self.size), self.order, axis=0)
        return ops.reshape(x, (problem.tiles, problem.rows, *x.shape[1:]))

    def examples(self, hidden: Tensor, labels: Tensor, extra: tuple, upstream: Tensor) -> _Examples:
        examples = tree.map_structure(self.tiled, (hidden, labels, extra, upstream))
        # Of weight 0 they may be anything, and 0 times infinity is none.
        present = ops.reshape(self.weight != 0, (self.problem.tiles, self.problem.rows, 1))
        hidden = ops.where(present, ops.cast(examples[0], self.problem.dtype), 0)
        return _Examples(hidden, *examples[1:])

    def back(self, x: Tensor) -> Tensor:
        """(T, R, ...) as (B, ...)."""
        x = ops.reshape(x, (-1, *x.shape[2:]))
        return ops.take(x, ops.argsort(self.order)[: self.size], axis=0)


def _padded(x: Tensor, count: Any) -> Tensor:
    """With as many zeros at the end."""
    return ops.concatenate([x, ops.zeros((count, *x.shape[1:]), x.dtype)], axis=0)


def _forward(
    problem: _Problem, hidden: Tensor, labels: Tensor, extra: tuple, weight: Tensor
) -> tuple[Tensor, tuple]:
    """Losses (B,), and what `_backward` needs: sums, kept scores, early gradients."""
    order = _Order.of(problem, weight)
    examples = order.examples(hidden, labels, extra, weight)

    def step(index: Tensor, state: tuple) -> tuple:
        losses, sums, scores, to_hidden, tables = state
        tile = _at(examples, index)
        tile_sums, scores = _first_pass(problem, tile, scores)
        tile_losses = problem.outer(*tile_sums.inputs(), *tile.extra)
        if problem.early:
            gradient, tables = _second_pass(problem, tile, tile_sums, scores, tables)
            to_hidden = _put(to_hidden, (gradient,), index)
        losses, sums = _put(losses, tile_losses, index), _put(sums, tile_sums, index)
        return losses, sums, scores, to_hidden, tables

    shape = (problem.tiles, problem.rows)
    sums = _Sums(
        buffer(shape),
        buffer(shape),
        (buffer(shape),) if problem.with_sum else (),
        buffer((*shape, labels.shape[1])),
    )
    scores = (buffer((problem.count, problem.rows, problem.classes)),) if problem.keep else ()
    to_hidden = (buffer((*shape, hidden.shape[1])),) if problem.early else ()
    tables = _empty_tables(problem) if problem.early else ()
    state = (buffer(shape), sums, scores, to_hidden, tables)
    losses, sums, scores, to_hidden, tables = loop(order.used, step, state)
    losses = ops.where(weight == 0, 0.0, order.back(losses))
    return losses, (sums, to_hidden, tables) if problem.early else (sums, scores)


def _empty_tables(problem: _Problem) -> tuple:
    arrays = (problem.kernel,) if problem.bias is None else (problem.kernel, problem.bias)
    return tuple(buffer(x.shape) for x in arrays)


def _backward(
    problem: _Problem,
    hidden: Tensor,
    labels: Tensor,
    extra: tuple,
    weight: Tensor,
    kept: tuple,
    upstream: Tensor,
) -> tuple:
    """Gradients of hidden, kernel and, if there is one, bias."""
    order = _Order.of(problem, weight)
    examples = order.examples(hidden, labels, extra, upstream)
    if problem.early:
        sums, (early_to_hidden,), tables = kept
        expected, given = order.weight, ops.reshape(examples.upstream, (-1,))
        is_same, factor = _same_up_to_a_factor(expected, given)
        used, scores = ops.where(is_same, 0, order.used), ()
        tables = tuple(scaled(x, factor) for x in tables)  # 0 where they are computed anew
        to_hidden = scaled(early_to_hidden, factor)
    else:
        sums, scores = kept
        used, tables = order.used, _empty_tables(problem)
        to_hidden = buffer((problem.tiles, problem.rows, hidden.shape[1]))

    def step(index: Tensor, state: tuple) -> tuple:
        to_hidden, tables = state
        arguments = (_at(examples, index), _at(sums, index), scores, tables)
        gradient, tables = _second_pass(problem, *arguments)
        return _put(to_hidden, gradient, index), tables

    # Not a condition, which may copy the tables: a loop of no steps leaves them where they are.
    to_hidden, tables = loop(used, step, (to_hidden, tables))
    return order.back(to_hidden), *tables


def _same_up_to_a_factor(weight: Tensor, upstream: Tensor) -> tuple[Tensor, Tensor]:
    """Whether upstream = factor weight, arrays of one dimension; and the factor, 0 if not."""
    largest = ops.argmax(ops.abs(weight))
    most = ops.take(weight, largest)
    factor = ops.take(upstream, largest) / ops.where(most == 0, 1.0, most)
    difference = ops.max(ops.abs(upstream - factor * weight))
    is_same = difference <= _SAME * ops.max(ops.abs(upstream))
    return is_same, ops.where(is_same, factor, 0.0)


def _first_pass(problem: _Problem, tile: _Examples, kept: tuple) -> tuple[_Sums, tuple]:
    """The sums of a tile, and its scores (S, R, C) if `kept` has an array for them."""

    def step(index: Tensor, state: tuple) -> tuple:
        peak, total, plain, kept = state
        scores = problem.block(tile.hidden, tile.labels, index)[1]
        kept = _put(kept, (scores,) if kept else (), index)
        if plain:
            plain = (plain[0] + ops.sum(ops.where(_is_in(scores), scores, 0.0), axis=1),)
        higher = ops.maximum(peak, ops.max(scores, axis=1))
        scores = ops.exp(scores - higher[:, None])
        total = total * ops.exp(peak - higher) + ops.sum(scores, axis=1)
        return higher, total, plain, kept

    zero = ops.zeros_like(tile.upstream)
    state = (zero + EXCLUDED, zero, (zero,) if problem.with_sum else (), kept)
    *sums, kept = loop(problem.count, step, state)
    return _Sums(*sums, problem.labels(tile)[2]), kept


def _is_in(scores: Tensor) -> Tensor:
    """Which scores are not EXCLUDED."""
    return scores > EXCLUDED / 2


def _second_pass(
    problem: _Problem, tile: _Examples, sums: _Sums, kept: tuple, tables: tuple
) -> tuple[Tensor, tuple]:
    """The gradient of a tile's hidden vectors (R, d), and the tables' with the tile's added.

    Args:
        kept: (scores (S, R, C),), or () to compute them again.
    """
    function = lambda *inputs: problem.outer(*inputs, *tile.extra)  # noqa: E731
    by_rest, by_true, *by_sum = pulled(function, sums.inputs(), tile.upstream)
    by_rest = by_rest / sums.total
    hidden = tile.hidden

    def step(index: Tensor, state: tuple) -> tuple:
        to_hidden, tables = state
        index = problem.count - 1 - index  # the last first: of what it has twice it writes 0
        rows, start = problem.block_rows(index), problem.start(index)
        if kept:  # of which the form's slopes are functions
            inner = scores = _at(kept, index)[0]
        else:
            inner, scores = problem.block(hidden, tile.labels, index)
        by_scores = ops.exp(scores - sums.peak[:, None]) * by_rest[:, None]
        if by_sum:
            by_scores = by_scores + ops.where(_is_in(scores), by_sum[0][:, None], 0.0)
        by_inner, by_bias = problem.chained(inner, scores, by_scores)
        by_inner = ops.cast(by_inner, problem.dtype)
        blocks = (product(by_inner, hidden, transpose_a=True), ops.sum(by_bias, axis=0))
        pairs = zip(tables, blocks, strict=False)  # without a bias there is one
        tables = tuple(problem.add(table, block, start) for table, block in pairs)
        return to_hidden + product(by_inner, rows), tables

    state = (ops.zeros_like(hidden, dtype="float32"), tables)
    to_hidden, tables = loop(problem.count, step, state)
    rows, *scores = problem.labels(tile)
    by_inner, by_bias = problem.chained(*scores, by_true)
    by_rows = by_inner[:, :, None] * ops.cast(hidden, "float32")[:, None]
    pairs = zip(tables, (by_rows, by_bias), strict=False)
    tables = tuple(add_rows(table, tile.labels, entries) for table, entries in pairs)
    return to_hidden + ops.einsum("rp,rpd->rd", by_inner, rows), tables

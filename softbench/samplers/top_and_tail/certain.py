"""Which classes are drawn for certain: those that would add most to the variance of the rest.

Shape letters: B batch, d features, n classes, R rows of draws for k examples each, K1 and K2
codewords, C cells, T certain classes, W candidates.
"""

from typing import Any, NamedTuple

from keras import ops

from softbench.common import Tensor
from softbench.groups import by_groups
from softbench.ops import assign_when, gather_rows, number_at_most, read
from softbench.samplers.base import Sampler
from softbench.state import add_state
from softbench.targets import Targets

LARGEST_LOG = 40.0  # of p over a class's share of the weights: its square is a float32
SMALLEST_COUNT = 1e-12


class _Estimates(NamedTuple):
    """What a codebook says of a batch whose R rows of draws are for k examples each.

    Attributes:
        squares: (R, K1, K2), the means over a row's examples of p^2 of a class of weight 1.
        hidden: (R, k, d), as the head got them.
    """

    squares: Tensor
    hidden: Tensor


class CertainClasses(Sampler):
    """The choice of the certain classes; `TopAndTail` has the arguments, the draws and the words.

    Attributes:
        top: the codebook that estimates p.
        tail: the sampler of all other classes.
        odds: float32 (C,), what a class of each cell adds to the variance, on average, for p = 1.
        steps: training steps so far.
    """

    top: Any
    tail: Sampler
    num_top: int
    num_candidates: int | None
    num_sampled: Any  # a number, once built

    def _add_odds(self, width: int) -> None:
        self.width = width
        size = self.top.cells.size
        self.odds = add_state(self, "odds", (size,), lambda shape, dtype=None: self._odds())
        self.steps = add_state(self, "steps", dtype="int32")

    def observe(self, table: Any, targets: Targets) -> None:
        """Let both samplers learn, and compute the odds anew every so many training steps."""
        for sampler in (self.top, self.tail):
            if sampler.trainable:
                sampler.observe(table, targets)
        step = read(self.steps)
        due = ops.equal(ops.mod(step, self.top.refresh_every), 0)
        assign_when(due, [self.odds], lambda: [self._odds()])
        self.steps.assign(step + 1)

    def remember(self, targets: Targets) -> None:
        if self.tail.trainable:
            self.tail.remember(targets)

    def _ratio(self, ids: Tensor) -> Tensor:
        """Var(count) / E[count]^2 of the tail for classes of any shape.

        1 for all of a tail that depends on the input.
        """
        if "input" in self.tail.depends_on:
            return ops.ones_like(ids, dtype="float32")
        proposal = self.tail.propose(None, ops.zeros((1, self.width)))
        flat = ops.reshape(ids, (1, -1))
        log_count = ops.reshape(proposal.log_count(flat, self.num_sampled), ops.shape(ids))
        inverse = 1.0 / ops.maximum(ops.exp(log_count), SMALLEST_COUNT)
        return ops.maximum(inverse - 1.0, 0.0) if proposal.without_replacement else inverse

    def _odds(self) -> Tensor:
        """The mean over the classes of every cell (C,) of weight^2 times `_ratio`."""
        cells = self.top.cells
        ids = ops.arange(self.units, dtype="int32")
        gain = ops.square(self._weight(ids)) * self._ratio(ids)
        total = ops.segment_sum(gain, read(cells.cell), cells.size)
        return total / ops.cast(ops.maximum(_sizes(cells), 1), "float32")

    def _weight(self, ids: Tensor) -> Tensor:
        """The share of a class of any shape in all weights, times n: 1 where all are equal."""
        cells = self.top.cells
        if not cells.weighted:
            return ops.ones_like(ids, dtype="float32")
        width = ops.cast(cells.width(gather_rows(cells.place, ids)), "float32")
        return width * (self.units / self._total_weight())

    def _total_weight(self) -> Tensor:
        """The sum of the integer weights of all cells."""
        bounds = read(self.top.cells.bounds)
        return ops.cast(bounds[-1], "float32")

    def _estimates(self, table: Any, hidden: Tensor) -> _Estimates:
        """What the codebook says of hidden (B, d)."""
        q = self.top.distribution(table)
        integer = q.cell_masses()
        log_first, log_second = q.log_weights(hidden, integer)
        share = ops.cast(integer, "float32") / self._total_weight()
        log_z = ops.log(q.total(log_first, log_second, share))
        log_p = ops.minimum(log_first - log_z, LARGEST_LOG)
        squares = ops.exp(2.0 * log_p), ops.exp(2.0 * log_second)
        if self.rows is None:
            squares = ops.expand_dims(squares[0], -1) * ops.expand_dims(squares[1], 1)
            return _Estimates(squares, ops.expand_dims(hidden, 1))
        return _Estimates(q.mean_product(*squares, self.rows), by_groups(hidden, self.rows))

    def _top(self, table: Any, hidden: Tensor) -> Tensor:
        """The certain classes (R, T) for hidden (B, d)."""
        hidden = ops.stop_gradient(hidden)
        size = min(self.num_top, self.units)
        if size == self.units:
            rows = ops.shape(hidden)[0] if self.rows is None else self.rows
            return ops.broadcast_to(ops.arange(size, dtype="int32"), (rows, size))
        estimates = self._estimates(table, hidden)
        wanted = min(self.num_candidates or 2 * size, self.units)
        ids, square, exists = self._candidates(estimates.squares, wanted)
        if self.num_candidates is None:
            gain = square * ops.square(self._weight(ids))
        else:
            gain = ops.stop_gradient(_exact_squares(table, estimates.hidden, ids))
        gain = ops.where(exists, gain * self._ratio(ids), -1.0)
        best = ops.top_k(gain, size, sorted=False)[1]
        return ops.take_along_axis(ids, ops.cast(best, "int32"), axis=-1)

    def _candidates(self, squares: Tensor, wanted: int) -> tuple[Tensor, Tensor, Tensor]:
        """The `wanted` classes (R, W) of the cells with the best `squares` (R, K1, K2).

        Returns:
            Ids, the cells' squares, and whether there were so many classes.
        """
        cells, second = self.top.cells, self.top.codewords.second.shape[0]
        squares = ops.reshape(squares[:, :, :second], (-1, cells.size))
        sizes = _sizes(cells)
        gain = ops.where(sizes > 0, squares * read(self.odds), -1.0)
        best = ops.cast(ops.top_k(gain, min(wanted, cells.size))[1], "int32")
        ends = ops.cumsum(ops.take(sizes, best), axis=-1)  # (R, cells)
        order = ops.arange(wanted, dtype="int32")
        number = number_at_most(ends, ops.broadcast_to(order, (ops.shape(ends)[0], wanted)))
        exists = number < best.shape[1]
        number = ops.minimum(number, best.shape[1] - 1)
        cell = ops.take_along_axis(best, number, axis=-1)
        begin = ops.take_along_axis(ends, number, axis=-1) - ops.take(sizes, cell)
        position = gather_rows(cells.edges, cell) + order - begin
        ids = gather_rows(cells.order, ops.minimum(position, self.units - 1))
        return ids, ops.take_along_axis(squares, cell, axis=-1), exists


def _exact_squares(table: Any, hidden: Tensor, ids: Tensor) -> Tensor:
    """The means (R, W) over hidden (R, k, d) of p^2 among the candidates (R, W)."""
    rows, size = ops.shape(hidden)[0], ops.shape(hidden)[1]
    scores = table.scores(ops.reshape(hidden, (-1, hidden.shape[-1])), ids)
    log_p = ops.log_softmax(ops.reshape(scores, (rows, size, ids.shape[1])), axis=-1)
    return ops.mean(ops.exp(2.0 * log_p), axis=1)


def _sizes(cells: Any) -> Tensor:
    """The number of classes of every cell, int32 (C,)."""
    edges = read(cells.edges)
    return edges[1:] - edges[:-1]

"""Which classes are drawn for certain: those that would add most to the variance of the rest.

Shape letters: B batch, d features, n classes, G groups of k examples, K1 and K2 codewords, C cells,
T certain classes, W candidates.
"""

import math
from typing import Any, NamedTuple

from keras import ops

from softbench.common import Tensor
from softbench.ops import assign_when, gather_rows, number_at_most, read
from softbench.samplers.base import Sampler
from softbench.samplers.codebook.sampler import Codebook
from softbench.samplers.composite import Composite
from softbench.samplers.groups import by_groups
from softbench.samplers.in_batch import InBatch
from softbench.samplers.static import StaticSampler
from softbench.samplers.training_step import is_counted
from softbench.state import add_state

LARGEST_LOG = 40.0  # of p over a class's share of the weights: its square is a float32
SMALLEST_COUNT = 1e-12


class _Estimates(NamedTuple):
    """What a codebook says of a batch in G groups of k examples.

    Attributes:
        squares: (G, K1, K2), the means over a group of p^2 of a class of weight 1.
        hidden: (G, k, d), as the head got them.
    """

    squares: Tensor
    hidden: Tensor


class CertainClasses(Composite):
    """The choice of the certain classes; `TopAndTail` has the arguments, the draws and the words.

    Attributes:
        top: the codebook that estimates p.
        tail: the sampler of all other classes.
        odds: float32 (C,), what a class of each cell adds to the variance, on average, for p = 1.
        steps: training steps so far.
    """

    top: Codebook
    tail: Sampler
    num_top: int
    num_candidates: int | None
    num_sampled: int

    @property
    def parts(self) -> tuple[Sampler, ...]:
        return self.top, self.tail

    def _add_odds(self) -> None:
        size = self.top.cells.size
        self.odds = add_state(self, "odds", (size,), lambda shape, dtype=None: self._odds())
        self.steps = add_state(self, "steps", dtype="int32")

    def _ratio(self, ids: Tensor) -> Tensor:
        """Var(count) / E[count]^2 of the tail for classes of any shape.

        1 for all of a tail that depends on the input.
        """
        if isinstance(self.tail, StaticSampler):
            log_count = self.tail._log_expected_count(ids, self.num_sampled)
        elif isinstance(self.tail, InBatch):
            log_count = self.tail._log_p(ids) + math.log(self.num_sampled)
        else:
            return ops.ones_like(ids, dtype="float32")
        inverse = 1.0 / ops.maximum(ops.exp(log_count), SMALLEST_COUNT)
        return ops.maximum(inverse - 1.0, 0.0) if self.tail.unique else inverse

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
        q, groups = self.top._distribution(table), self.groups or 1
        integer = q.cell_masses()
        log_first, log_second = q.log_weights(hidden, integer)
        share = ops.cast(integer, "float32") / self._total_weight()
        log_z = ops.log(q.total(log_first, log_second, share))
        log_p = ops.minimum(log_first - log_z, LARGEST_LOG)
        squares = ops.exp(2.0 * log_p), ops.exp(2.0 * log_second)
        if self.share_draws is False:
            found = ops.expand_dims(squares[0], -1) * ops.expand_dims(squares[1], 1)
            return _Estimates(found, ops.expand_dims(hidden, 1))
        return _Estimates(q.mean_product(*squares, groups), by_groups(hidden, groups))

    def _top(self, table: Any, hidden: Tensor) -> Tensor:
        """The certain classes (G, T) of groups of hidden (B, d)."""
        hidden = ops.stop_gradient(hidden)
        size = min(self.num_top, self.units)
        if size == self.units:
            rows = ops.shape(hidden)[0] if self.share_draws is False else (self.groups or 1)
            return ops.broadcast_to(ops.arange(size, dtype="int32"), (rows, size))
        found = self._estimates(table, hidden)
        wanted = min(self.num_candidates or 2 * size, self.units)
        ids, square, known = self._candidates(found.squares, wanted)
        if self.num_candidates is None:
            gain = square * ops.square(self._weight(ids))
        else:
            gain = ops.stop_gradient(self._exact_squares(table, found.hidden, ids))
        gain = ops.where(known, gain * self._ratio(ids), -1.0)
        best = ops.top_k(gain, size, sorted=False)[1]
        return ops.take_along_axis(ids, ops.cast(best, "int32"), axis=-1)

    def _candidates(self, squares: Tensor, wanted: int) -> tuple[Tensor, Tensor, Tensor]:
        """The `wanted` classes (G, W) of the cells with the best `squares` (G, K1, K2).

        Returns:
            Ids, the cells' squares, and whether there were so many classes.
        """
        cells, second = self.top.cells, self.top.codewords.second.shape[0]
        squares = ops.reshape(squares[:, :, :second], (-1, cells.size))
        sizes = _sizes(cells)
        gain = ops.where(sizes > 0, squares * read(self.odds), -1.0)
        best = ops.cast(ops.top_k(gain, min(wanted, cells.size))[1], "int32")
        ends = ops.cumsum(ops.take(sizes, best), axis=-1)  # (G, cells)
        places = ops.arange(wanted, dtype="int32")
        number = number_at_most(ends, ops.broadcast_to(places, (ops.shape(ends)[0], wanted)))
        known = number < best.shape[1]
        number = ops.minimum(number, best.shape[1] - 1)
        cell = ops.take_along_axis(best, number, axis=-1)
        begin = ops.take_along_axis(ends, number, axis=-1) - ops.take(sizes, cell)
        place = gather_rows(cells.edges, cell) + places - begin
        ids = gather_rows(cells.order, ops.minimum(place, self.units - 1))
        return ids, ops.take_along_axis(squares, cell, axis=-1), known

    def _exact_squares(self, table: Any, hidden: Tensor, ids: Tensor) -> Tensor:
        """The means (G, W) over hidden (G, k, d) of p^2 among the candidates (G, W)."""
        groups, size = ops.shape(hidden)[0], ops.shape(hidden)[1]
        flat = ops.reshape(hidden, (-1, hidden.shape[-1]))
        if self.share_draws is False:
            scores = table.scores(flat, ids)
        elif self.groups is None:
            scores = table.scores(flat, ids[0])
        else:
            scores = table.logits(flat, *table.gather(ids))
        log_p = ops.log_softmax(ops.reshape(scores, (groups, size, ids.shape[1])), axis=-1)
        return ops.mean(ops.exp(2.0 * log_p), axis=1)

    def _count_step(self) -> None:
        """Compute the odds of the cells anew every so many training steps."""
        if is_counted(self):
            return
        step = read(self.steps)
        due = ops.equal(ops.mod(step, self.top.refresh_every), 0)
        assign_when(due, [self.odds], lambda: [self._odds()])
        self.steps.assign(step + 1)


def _sizes(cells: Any) -> Tensor:
    """The number of classes of every cell, int32 (C,)."""
    edges = read(cells.edges)
    return edges[1:] - edges[:-1]

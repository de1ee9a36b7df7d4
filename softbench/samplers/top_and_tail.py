"""The classes that matter most for certain, and a sample of all the others."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
from keras import ops

from softbench.common import PACKAGE, Tensor, check_counts, check_length, check_positive
from softbench.ops import assign_when, gather_rows, read
from softbench.samplers.base import Sampler, Samples, all_ids, check_width
from softbench.samplers.codebook.sampler import Codebook
from softbench.samplers.groups import (
    by_groups,
    check_splits,
    contains,
    number_at_most,
    of_examples,
    similar,
)
from softbench.samplers.in_batch import InBatch
from softbench.samplers.registry import get, serialize
from softbench.samplers.static import StaticSampler
from softbench.samplers.training_step import is_counted
from softbench.state import Arguments, add_state

TAIL_POWER = 0.75
# Of the counts in the codebook's k-means. The frequent classes, which need no search, get fewer
# codewords than with power 1: what is looked for is the rest.
TOP_POWER = 0.25
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


@keras.saving.register_keras_serializable(PACKAGE)
class TopAndTail(Sampler):
    """T classes for certain, and m draws by the tail's distribution that stand for all others.

    Z_hat = sum over T of exp(o_i) + sum over the draws that are not in T of exp(o_j) / E[count_j]
    is an unbiased estimate of Z, to which only the others add variance: a certainty stratum, as
    survey sampling calls it. Certain classes have log E[count] = 0; a draw of one of them has
    -inf, it does not count; all other draws keep the log E[count] of the tail.

    T is chosen for each group of similar examples (halves of halves of the batch, at the medians of
    their main directions). The variance that a class adds to the estimates of a group is the mean
    of p_i^2, times Var(count_i) / E[count_i]^2 of the tail: (1 - pi_i) / pi_i without
    replacement. Its classes of the largest such gain are certain; a frequent class that the tail
    draws anyway is not. p is estimated by a codebook (see `Codebook`), for whole cells first: their
    means over a group are one (K1, k) x (k, K2) product. Which classes are certain moves the
    variance alone: the estimate is unbiased for any.

    Cost: O(B K (d + K)) for the codebook, O(G K^2) for the best cells, and products of
    (G, k, d) x (G, T + m, d), or (G, k, d) x (G, T, d) and (B, d) x (d, m) without `own_tails`.

    Args:
        num_top: T; with fewer classes, their number.
        num_candidates: None, or more than T: so many of the best classes by the codebook are scored
            exactly (a product without a gradient) before the best T of them are kept.
        groups: G, a power of two; 1: one set for the batch; None: a set for each example.
        top: "codebook" or the config of one; its `counts_power` is 0.25 unless it says otherwise.
        counts: of the classes (n,), for the codebook and for the default tail.
        tail: any sampler that shares its draws, by name, config or as a `Sampler`. None: the
            unigram of `counts` to the power 0.75, without replacement.
        own_tails: whether each group has `num_sampled` draws of the tail for itself, or the batch
            has one set. The tail must be able to share by groups. Without effect unless G > 1.
        seed: of the draws.

    Raises:
        ValueError: if an argument is not in its range, `counts` is missing where it is needed, the
            tail draws for each example, or the codebook has `within_cell="exact"`.

    Example:
        >>> config = {"num_top": 2, "groups": 1, "counts": [5, 3, 1, 1, 1, 1]}
        >>> head = softbench.SampledSoftmax(6, {"class_name": "top_and_tail", "config": config}, 3)
        >>> tuple(head(np.ones((4, 8), "float32"), np.arange(4), training=True).shape)
        (4,)
    """

    kind = "codebook"
    draws_for_certain = True
    arguments: Arguments = ("num_top", "num_candidates", "own_tails", "counts")

    def __init__(
        self,
        num_top: int = 256,
        num_candidates: int | None = None,
        groups: int | None = 16,
        top: str | dict | Sampler = "codebook",
        counts: Sequence[float] | None = None,
        tail: str | dict | Sampler | None = None,
        own_tails: bool = True,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        check_positive(num_top=num_top)
        if num_candidates is not None:
            check_positive(num_candidates=num_candidates)
            if num_candidates <= num_top:
                raise ValueError(
                    f"`num_candidates` must be more than num_top={num_top}, or None. "
                    f"Received: num_candidates={num_candidates}"
                )
        if groups is not None:
            check_positive(groups=groups)
            check_splits(int(groups))
        kwargs.pop("share_draws", None)
        super().__init__(share_draws=False, seed=seed, **kwargs)
        if groups is not None:
            self.share_draws = True if groups == 1 else int(groups)
        self.counts = None if counts is None else check_counts(counts)
        self.num_top, self.num_candidates = int(num_top), num_candidates
        self.own_tails = bool(own_tails)
        self.top = self._codebook(top)
        self.tail = self._tail(tail)

    def _codebook(self, top: str | dict | Sampler) -> Codebook:
        counts = {} if self.counts is None else {"counts": self.counts.tolist()}
        name = top.get("class_name") if isinstance(top, dict) else top
        found = top
        if isinstance(top, dict) or name == "codebook":
            found = get(top, seed=self.seed, counts_power=TOP_POWER, **counts)
        if not isinstance(found, Codebook) or found.within_cell != "weights":
            raise ValueError(
                "`top` must be 'codebook' or the config of one with within_cell='weights'. "
                f"Received: top={top!r}"
            )
        return found

    def _tail(self, tail: str | dict | Sampler | None) -> Sampler:
        if tail is None:
            if self.counts is None:
                raise ValueError(
                    "`counts` must be given, or a `tail`: by default it is the unigram of the "
                    "counts. Received: counts=None"
                )
            config = {"counts": self.counts.tolist(), "power": TAIL_POWER, "unique": True}
            tail = {"class_name": "unigram", "config": config}
        shared = self.groups if self.own_tails and self.groups is not None else True
        found = get(tail, seed=None if self.seed is None else self.seed + 1, share_draws=shared)
        if found.share_draws != shared or found.draws_for_certain:
            raise ValueError(
                f"`tail` must be a sampler with share_draws={shared}, because groups="
                f"{self.groups} and own_tails={self.own_tails}. Received: {type(found).__name__} "
                f"with share_draws={found.share_draws}"
            )
        return found

    @property
    def unique(self) -> bool:  # type: ignore[override]
        """Whether log q is the log inclusion probability: if the tail's is."""
        return self.tail.unique

    @property
    def one_random_set(self) -> bool:  # type: ignore[override]
        return self.tail.groups is None

    @property
    def uses_present(self) -> bool:  # type: ignore[override]
        return self.top.uses_present or self.tail.uses_present

    def build(self, table_shape: tuple, num_sampled: int | None = None, table: Any = None) -> None:
        super().build(table_shape, num_sampled, table)
        if self.counts is not None:
            check_length(self.counts, self.units)
        for part in (self.top, self.tail):
            if not part.built:
                part.build(table_shape, num_sampled, table)
        self.num_sampled = num_sampled or 1
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

    def _draw(self, table, hidden, num_sampled, excluded, labels, present=None):
        check_width(table, hidden)
        asked = labels if excluded is None else excluded
        self.top._count_labels(asked, present)
        self.top._refresh_when_due(table)
        self._count_step()
        extra = {"present": present} if present is not None and self.tail.uses_present else {}
        tail = self.tail.sample(table, hidden, num_sampled, asked, False, **extra)
        top = self._top(table, hidden)
        count, true = ops.zeros_like(top, dtype="float32"), None
        tail_ids = tail.ids if len(tail.ids.shape) == 2 else tail.ids[None]
        tail_ids = ops.broadcast_to(tail_ids, (ops.shape(top)[0], tail_ids.shape[1]))
        tail_count = ops.broadcast_to(tail.log_expected_count, ops.shape(tail_ids))
        tail_count = ops.where(contains(top, tail_ids), -float("inf"), tail_count)
        if excluded is not None:
            own = ops.expand_dims(excluded, -1)
            count, tail_count = _without(top, own, count), _without(tail_ids, own, tail_count)
        elif labels is not None:
            own = of_examples(top, ops.shape(labels)[0])
            certain = contains(own, ops.expand_dims(labels, -1))[:, 0]
            true = ops.where(certain, 0.0, tail.true_log_expected_count)
        if self.share_draws is True:
            ids = ops.concatenate([top[0], tail.ids], axis=-1)
            return Samples(ids, ops.concatenate([count[0], tail_count[0]], axis=-1), true)
        if len(tail.ids.shape) == 2:
            ids = ops.concatenate([top, tail.ids], axis=-1)
            return Samples(ids, ops.concatenate([count, tail_count], axis=-1), true)
        return Samples((top, tail.ids), (count, tail_count), true)

    def arrange(self, hidden: Tensor) -> Tensor | None:
        return None if self.groups is None else similar(hidden, self.groups)

    def log_expected_count(
        self,
        table: Any,
        hidden: Tensor,
        num_sampled: int,
        ids: Tensor | None = None,
        labels: Tensor | None = None,
        present: Tensor | None = None,
    ) -> Tensor:
        """log E[times drawn] of `ids` (m,) or (B, m), or of all classes: (B, m) or (B, n)."""
        self._check_built(table, num_sampled)
        batch = ops.shape(hidden)[0]
        if ids is None:
            ids = all_ids(self.units, hidden)
        ids = ops.broadcast_to(ids, (batch, ids.shape[-1]))
        extra = {"present": present} if present is not None and self.tail.uses_present else {}
        count = self.tail.log_expected_count(table, hidden, num_sampled, ids, None, **extra)
        top = of_examples(self._top(table, hidden), batch)
        count = ops.where(contains(top, ids), 0.0, count)
        if labels is None or self.share_draws:
            return count
        return _without(ids, ops.expand_dims(labels, -1), count)

    def _log_prob(self, table, hidden, ids, excluded):
        """log E[count], and without the tail's replacement less the log of all draws."""
        found = self.log_expected_count(table, hidden, self.num_sampled, ids, excluded)
        if self.unique:
            return found
        every = self.log_expected_count(table, hidden, self.num_sampled, None, excluded)
        return found - ops.logsumexp(every, axis=-1, keepdims=True)

    def shared_log_prob(self, table: Any, hidden: Tensor) -> Tensor:
        """log q (n,) of the batch, or (G, n) of its groups."""
        self._check_built(table)
        groups = self.groups or 1
        log_q = by_groups(self._log_prob(table, hidden, None, None), groups)[:, 0]
        return log_q[0] if self.groups is None else log_q

    def rows_changed(self, table: Any, ids: Tensor, old_rows: Tensor, new_rows: Tensor) -> None:
        for part in (self.top, self.tail):
            part.rows_changed(table, ids, old_rows, new_rows)

    def refresh(self, table: Any) -> None:
        self._check_built(table)
        for part in (self.top, self.tail):
            part.refresh(table)
        self.odds.assign(self._odds())

    def get_config(self) -> dict:
        config = super().get_config()
        share_draws = config.pop("share_draws")
        groups = {False: None, True: 1}.get(share_draws, share_draws)
        parts = {"top": serialize(self.top), "tail": serialize(self.tail)}
        return {**config, "groups": groups, **parts}


def _sizes(cells: Any) -> Tensor:
    """The number of classes of every cell, int32 (C,)."""
    edges = read(cells.edges)
    return edges[1:] - edges[:-1]


def _without(ids: Tensor, labels: Tensor, log_count: Tensor) -> Tensor:
    """The log counts of ids (B, m), -inf where they are the label (B, 1)."""
    return ops.where(ops.equal(ids, labels), -float("inf"), log_count)

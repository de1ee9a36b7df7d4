"""Sampling in proportion to a kernel, in O(D log n) a draw, from sums that follow the table."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from keras import ops

from softbench.common import (
    Tensor,
    check_counts,
    check_length,
    check_number,
    check_positive,
    count_weights,
)
from softbench.ops import assign_when, by_shards, gather_rows, read, scatter_update
from softbench.samplers.base import Sampler, check_width
from softbench.samplers.kernel.block_sums import BlockSums
from softbench.samplers.kernel.class_weights import ClassWeights
from softbench.samplers.kernel.distribution import KernelDistribution, Query
from softbench.samplers.kernel.features import FeatureMap
from softbench.samplers.kernel.shape import default_block_size, shape_of_levels
from softbench.samplers.proposal import Independent
from softbench.state import Arguments, add_state
from softbench.targets import Targets

SIGNED_FLOOR = 0.1
SMALLEST_TOTAL = 1e-3  # of an example's mass in the mixture, relative to the batch's mean


class KernelProposal(Independent):
    """Draws by a `KernelDistribution` of one query: of every example, or of the batch's mixture."""

    def __init__(self, sampler: Any, table: Any, hidden: Tensor, exclude: Tensor | None) -> None:
        super().__init__(sampler.units, sampler.rows, ops.shape(hidden)[0])
        self.distribution = sampler.distribution(table)
        self.query = sampler.query(table, hidden, exclude)

    def draw_with_log_q(self, num_sampled: int, seed: Any) -> tuple[Tensor, Tensor]:
        return self.distribution.draw(self.query, num_sampled, seed)

    def log_q(self, ids: Tensor) -> Tensor:
        return self.distribution.log_prob(self.query, ids)

    def log_q_all(self) -> Tensor:
        return self.distribution.log_prob_all(self.query)


class KernelSampler(Sampler):
    """q(i | h) proportional to w_i phi(h).phi(c_i), from sums of w phi over blocks of classes.

    w_i = counts_i^prior_power e^(b_i): the prior if there is one, and the table's bias. A subclass
    gives the feature map phi (`make_features`). Estimates that are negative or very small are
    raised to a floor, and `log_prob` is of the distribution that results: see
    `KernelDistribution`.

    Sums are kept for leaf blocks of b classes and, k to 1, for the levels above: k = 16, or 4 where
    D > 512. A draw takes one matrix product with the top level (shared by the m draws), then reads
    k sums a level, then compares the b classes of its block: O(D log n). With `share_draws` the
    batch shares m draws from its mixture q_bar(i) = 1/B sum_b q(i | h_b), which is linear in the
    features too: phi_bar = 1/B sum_b phi(h_b) / Z_b replaces phi(h), at the cost of one
    example. (With the floor, q_bar is the clamped distribution of phi_bar.)

    Of any q that a batch shares, the mean over b of KL(p_b || q) is I + KL(mean of p_b || q), with
    I the mutual information of example and class within the batch. Where a batch is so large (log B
    far above the I of the data) that its I is the data's, no shared q is much closer to the softmax
    than the class frequencies are: draws per example follow the input, shared ones are fast.

    Memory: the sums hold (n / b)(1 + 1/k + ...) D numbers; by default b is the least power of two
    for which n D / b is at most 4 n d or 2^27 (n d or 2^25 if phi is exact), and with
    `within_block="exact"` at least 32.

    Maintenance: with a `row_optimizer` the sums follow every step in O(touched rows * D). Otherwise
    they, and the weights, are computed afresh at every `refresh_every`-th training step; in between
    they are those of an older table, and `log_prob` is still exactly of what is drawn. After the
    table is assigned by hand, call `refresh(table)`.

    Args:
        prior: counts of the classes (n,), or None. A class with count 0 is never drawn. Meant for a
            table without bias: a bias that has learned the frequencies would count them twice.
        prior_power: of the counts.
        within_block: "features": the share of a class in its block is that of the map (as in the
            papers); "exact": it is the softmax of the scores, closer to the target. For a large n
            and many features that is cheaper; where n is so small that a block of the papers'
            distribution is one class, it is dearer.
        block_size: b, the classes in a leaf block; b >= n keeps no sums and compares all classes.
        floor: see `KernelDistribution`; None for 0.1 with maps that can be negative and else 0.
        refresh_every: training steps between refreshes under an ordinary optimizer, however many
            sets of draws a step takes. Rows of a small initial norm turn quickly when they are
            normalised, and a stale proposal is a poor one.
        share_draws, seed: as for every sampler; the seed is that of the feature map too.

    Raises:
        ValueError: if an argument is not in its range, or the counts do not fit the table.
    """

    arguments: Arguments = (
        "prior",
        "prior_power",
        "within_block",
        "block_size",
        "floor",
        "refresh_every",
    )

    def __init__(
        self,
        prior: Sequence[float] | None = None,
        prior_power: float = 1.0,
        within_block: str = "features",
        block_size: int | None = None,
        floor: float | None = None,
        refresh_every: int = 10,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        # The map follows from the seed, and a sampler that is loaded must have the same map.
        super().__init__(seed=random.randint(1, 10**9) if seed is None else seed, **kwargs)
        if within_block not in ("features", "exact"):
            raise ValueError(
                "`within_block` must be 'features' or 'exact'. "
                f"Received: within_block={within_block!r}"
            )
        check_positive(refresh_every=refresh_every)
        if block_size is not None:
            check_positive(block_size=block_size)
        if floor is not None:
            check_number(0, floor=floor)
        self.prior = None if prior is None else check_counts(prior, "prior")
        self.prior_power = prior_power
        self.within_block = within_block
        self.block_size = block_size
        self.floor = floor
        self.refresh_every = int(refresh_every)

    def make_features(self, temperature: float) -> FeatureMap:
        """The feature map for a table of this temperature, not built yet."""
        raise NotImplementedError

    def build(self, table_shape: tuple, num_sampled: int | None = None, table: Any = None) -> None:
        super().build(table_shape, num_sampled, table)
        if table is None:
            raise ValueError("`table` must be the ClassTable to draw from. Received: table=None")
        self.features = self.make_features(table.temperature)
        self.features.build((None, table_shape[-1]))
        prior = self._prior_weights()
        self.class_weights = ClassWeights(self.units, prior)
        live = lambda: self.class_weights.live(table)  # noqa: E731
        self.class_weights.build(live if table.use_bias else None)
        draws = self.rows == 1, num_sampled or 1
        size = self.block_size or default_block_size(
            self.units, table_shape[-1], self.features, *draws, self.within_block == "exact"
        )
        self.span = min(size, self.units)
        self.blocks = None
        if self.span < self.units:
            leaves = -(-self.units // self.span)
            top, branching = shape_of_levels(leaves, self.features.dim, *draws)
            self.blocks = BlockSums(self.units, self.span, top, prior, branching)
            features = lambda ids: self._weighted(table, ids)  # noqa: E731
            self.blocks.build(self.features.dim, features, self._split(table))
        if table.row_optimizer is None:
            self.steps = add_state(self, "steps", dtype="int32")

    def _split(self, table: Any) -> Callable | None:
        """As `BlockSums.build` takes it."""
        if self.units // table.num_shards % self.span:
            return None
        others = [*self.features.variables, *self.class_weights.variables]
        divided = self.units, table.class_variables, others
        return lambda function, join: by_shards(function, join, *divided)

    def _prior_weights(self) -> np.ndarray | None:
        """counts^power over its maximum, float64 (n,)."""
        if self.prior is None:
            return None
        check_length(self.prior, self.units, "prior")
        return count_weights(self.prior, self.prior_power)

    def _weighted(self, table: Any, ids: Tensor) -> Tensor:
        """w phi (N, D) of ids (N,) by the present table; zero for ids of n or more."""
        rows = table.rows(ops.minimum(ids, self.units - 1))
        return self._features_of(table, rows, self.class_weights.live(table, ids))

    def _features_of(self, table: Any, rows: Tensor, weight: Tensor) -> Tensor:
        """weight * phi (N, D) of rows (N, d) as they are stored; zero where weight (N,) is 0."""
        weight = ops.expand_dims(weight, -1)
        features = self.features.features(table.normalized(rows))
        return ops.where(weight > 0, features * weight, 0.0)

    def _sums_and_weights(self) -> list:
        """The variables that are computed from the table."""
        sums = [] if self.blocks is None else list(self.blocks.sums)
        applied = self.class_weights.applied
        return sums if applied is None else [*sums, applied]

    def _computed(self, table: Any) -> list[Tensor]:
        """The values of `_sums_and_weights` by the present table."""
        sums = [] if self.blocks is None else self.blocks.compute()
        weights = self.class_weights
        return sums if weights.applied is None else [*sums, weights.live(table)]

    def refresh(self, table: Any) -> None:
        self._check_built(table)
        for variable, value in zip(self._sums_and_weights(), self._computed(table), strict=True):
            variable.assign(value)

    def observe(self, table: Any, targets: Targets) -> None:
        """Under an ordinary optimizer, refresh at every `refresh_every`-th training step."""
        if table.row_optimizer is not None:
            return
        step = read(self.steps)
        due = ops.equal(ops.mod(step, self.refresh_every), 0)
        self._before_refresh(due)
        if self._sums_and_weights():
            assign_when(due, self._sums_and_weights(), lambda: self._computed(table))
        self.steps.assign(step + 1)

    def _before_refresh(self, due: Tensor) -> None:
        """What else happens if `due`, before the sums are computed."""

    def rows_changed(self, table: Any, ids: Tensor, old_rows: Tensor, new_rows: Tensor) -> None:
        weights = self.class_weights
        old_weight, new_weight = weights.stored(ids), weights.live(table, ids)
        if weights.applied is not None:
            scatter_update(weights.applied, ids, new_weight)
        if self.blocks is None:
            return
        new = self._features_of(table, new_rows, new_weight)
        if self.span == 1:
            stored = gather_rows(self.blocks.sums[0], ops.minimum(ids, self.units - 1))
            old = ops.where(ops.expand_dims(ids < self.units, -1), stored, 0.0)
        else:
            old = self._features_of(table, old_rows, old_weight)
        self.blocks.change(ids, new - old)

    def distribution(self, table: Any) -> KernelDistribution:
        """Shares of blocks and classes by the sums as they are."""
        floor = self.floor
        if floor is None:
            floor = SIGNED_FLOOR if self.features.signed else 0.0
        exact, weights = self.within_block == "exact", self.class_weights
        return KernelDistribution(
            table, self.features, weights, self.blocks, self.span, floor, exact
        )

    def query(self, table: Any, hidden: Tensor, labels: Tensor | None) -> Query:
        """The query of a batch (B, d), with labels (B,) to leave out or None."""
        check_width(table, hidden)
        hidden = ops.stop_gradient(hidden)
        vectors = table.normalized(hidden)
        features = self.features.queries(vectors)
        if self.rows == 1:
            total = ops.expand_dims(self._total_mass(table, features, vectors), -1)
            mean = ops.mean(ops.abs(total))
            total = ops.maximum(total, ops.where(mean > 0, SMALLEST_TOTAL * mean, 1.0))
            members = features / total
            return Query(ops.mean(members, axis=0, keepdims=True), None, hidden, members)
        if labels is None:
            return Query(features, vectors, hidden)
        labels, mass = labels[:, None], None
        if self.blocks is not None and self.span == 1:
            rows = gather_rows(self.blocks.sums[0], labels[:, 0])
            mass = ops.sum(features * rows, axis=-1, keepdims=True)
        elif self.blocks is not None:
            rows = table.normalized(table.rows(labels))
            mass = self.features.products(features, rows, vectors)
            mass = mass * self.class_weights.stored(labels)
        return Query(features, vectors, hidden, labels=labels, label_mass=mass)

    def _total_mass(self, table: Any, features: Tensor, vectors: Tensor) -> Tensor:
        """<phi(h_b), sum of w phi> (B,)."""
        if self.blocks is not None:
            root = ops.sum(read(self.blocks.sums[-1]), axis=0)
            return ops.squeeze(ops.matmul(features, ops.expand_dims(root, -1)), -1)
        ids = ops.arange(self.units, dtype="int32")
        mass = self.features.products(features, table.normalized(table.all_rows()[0]), vectors)
        return ops.sum(mass * self.class_weights.stored(ids), axis=-1)

    def propose(self, table, hidden, exclude=None, targets=None):
        return KernelProposal(self, table, hidden, exclude)

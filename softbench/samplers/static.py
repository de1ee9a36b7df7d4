"""Samplers whose proposals depend neither on the input nor on the class table.

A distribution over n classes is kept as integer weights w_i with sum W < 2^31 and their cumulative
sums, so drawing is a search among integers: no class has a width that rounds to zero, the table
ends exactly at W, and q_i = w_i / W is what is really drawn from. (A float32 cumulative sum over a
million classes has neither property.) Leaving a label out is exact: draw below W - w_y and step
over its interval.

The search is in groups of 16. Level 0 is the table of the cumulative sums, and each further level
holds the first entry of every group below, until one group is left. A search reads one group, one
cache line, at each level: log16(n) of them instead of log2(n) single entries, in a quarter of the
operations.
"""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from softbench.common import Tensor
from softbench.ops import LONGEST_LINE, gather_rows, number_at_most, random_integers, read
from softbench.samplers.base import Sampler
from softbench.samplers.proposal import Proposal
from softbench.state import Arguments, add_constant

LARGEST_TOTAL = 2**31 - 1
GROUP = 16


def integer_weights(weights: np.ndarray) -> np.ndarray:
    """Integers (n,) proportional to `weights` up to rounding, at least 1 where these are positive.

    Their sum is at most 2^31 - 1.
    """
    scaled = weights / weights.sum() * (LARGEST_TOTAL - len(weights))
    return np.where(weights > 0, np.maximum(np.rint(scaled), 1), 0).astype(np.int64)


def inclusion_probabilities(weights: np.ndarray, size: int) -> np.ndarray:
    """pi_i = min(1, c f_i) with sum `size` (n,): sampling without replacement from `weights`."""
    order = np.argsort(-weights, kind="stable")
    sorted_weights = weights[order].astype(np.float64)
    # With the k heaviest classes capped at 1, c = (size - k) / (sum of the others). The right k is
    # the first for which the next class stays at or below 1.
    tail = np.cumsum(sorted_weights[::-1])[::-1]
    capped = np.arange(min(size, len(weights)))
    fits = (size - capped) * sorted_weights[capped] <= tail[capped]
    k = int(capped[fits][0]) if fits.any() else size
    probabilities = np.ones(len(weights))
    if k < len(weights):
        probabilities[k:] = (size - k) * sorted_weights[k:] / max(tail[k], np.finfo(float).tiny)
    result = np.empty(len(weights))
    result[order] = np.minimum(probabilities, 1.0)
    return np.where(weights > 0, result, 0.0)


def integer_inclusion(probabilities: np.ndarray, size: int) -> tuple[np.ndarray, int]:
    """Integer widths (n,) in [0, S] of sum exactly `size` * S, nearest to S * pi, and S."""
    unit = LARGEST_TOTAL // size
    exact = probabilities * unit
    positive = probabilities > 0
    widths = np.where(positive, np.clip(np.floor(exact), 1, unit), 0).astype(np.int64)
    while missing := size * unit - int(widths.sum()):
        sign = 1 if missing > 0 else -1
        free = np.flatnonzero(positive & (widths < unit if sign > 0 else widths > 1))
        nearest = free[np.argsort(-sign * (exact - widths)[free], kind="stable")]
        widths[nearest[: abs(missing)]] += sign
    return widths, unit


class StaticProposal(Proposal):
    """Draws of classes by integer weights: q_i = w_i / W, without the label w_i / (W - w_y).

    Args:
        sampler: a built `StaticSampler`.
        rows, batch: of the draws.
        exclude: int32 (B, 1), or None.
    """

    def __init__(
        self, sampler: Any, rows: int | None, batch: int | Tensor, exclude: Tensor | None
    ) -> None:
        super().__init__(sampler.units, rows, batch)
        self.sampler, self.exclude = sampler, exclude
        self.without_replacement = sampler.unique

    def draw(self, num_sampled: int, seed: Any) -> tuple[Tensor, Tensor]:
        sampler, seed = self.sampler, seed.next()
        shape = (self.batch if self.rows is None else self.rows, num_sampled)
        if sampler.unique:
            self._check_number(num_sampled)
            points = random_integers((shape[0], 1), sampler.total, seed)
            points = points + sampler.total * ops.arange(num_sampled, dtype="int32")
            ids = sampler.locate(points)
        elif self.exclude is None:
            ids = sampler.locate(random_integers(shape, sampler.total, seed))
        else:
            ids = self._draw_others(shape, seed)
        return ids, self.log_count(ids, num_sampled)

    def _draw_others(self, shape: tuple, seed: Tensor) -> Tensor:
        """Draws (B, m) from the classes other than the label."""
        sampler, labels = self.sampler, self.exclude
        left_out = sampler.width(labels)
        points = random_integers(shape, sampler.total - left_out, seed)
        points = points + ops.where(points >= sampler.start(labels), left_out, 0)
        # Where nothing but the label can be drawn, it is: with log q = -inf, and masked as a hit.
        return ops.where(ops.equal(left_out, sampler.total), labels, sampler.locate(points))

    def log_count(self, ids: Tensor, num_sampled: int) -> Tensor:
        """Of unique draws `total` is the unit of pi, else W."""
        width, total = self.sampler.width(ids), float(self.sampler.total)
        if self.exclude is not None:
            rest = self.sampler.total - self.sampler.width(self.exclude)
            total = ops.cast(ops.maximum(rest, 1), "float32")
        # Of one quotient, because log(width) - log(total) loses digits.
        log_share = ops.log(ops.cast(width, "float32") / total)
        if self.exclude is not None:
            log_share = ops.where(ops.equal(ids, self.exclude), -float("inf"), log_share)
        return log_share + self.log_scale(num_sampled)

    def _check_number(self, num_sampled: int) -> None:
        if num_sampled != self.sampler.num_sampled:
            raise ValueError(
                f"`num_sampled` must be the {self.sampler.num_sampled} that this sampler was built "
                f"for when unique=True. Received: num_sampled={num_sampled}"
            )


class StaticSampler(Sampler):
    """Base class of the static samplers: a subclass gives `class_weights`.

    Draws are independent with replacement, one set for each example or, with `share_draws`, one for
    the batch or for each of its groups. With `unique=True` a set is of m distinct classes, drawn by
    systematic sampling: the classes laid end to end with lengths pi_i = min(1, c f_i), a ruler with
    unit spacing and a random start; class i is in the set with probability exactly pi_i, and the
    log expected count is log pi_i. Sums over the draws, weighted by 1 / pi, are unbiased; their
    variance is that of a stratified sample in the order of the ids, in which many pairs of classes
    (neighbours, for one) are never drawn together.

    Cost: O(m log n) for a draw; memory: about two int32 for each class.

    Args:
        share_draws: as for every sampler; None shares them where draws are `unique`.
        unique: draw without replacement. Implies `share_draws`.
    """

    shares_by_groups = True
    depends_on = frozenset()
    arguments: Arguments = ("unique",)

    def __init__(self, share_draws: bool | int | None = None, unique: bool = False, **kwargs: Any):
        if unique and share_draws is False:
            raise ValueError(
                "`unique=True` draws one set of ids for the whole batch and needs "
                "`share_draws=True`. Received: share_draws=False"
            )
        super().__init__(share_draws=unique if share_draws is None else share_draws, **kwargs)
        self.unique = unique

    def class_weights(self, units: int) -> np.ndarray:
        """Non-negative float64 (n,), not all zero; q is proportional to them."""
        raise NotImplementedError

    def build(self, table_shape: tuple, num_sampled: int | None = None, table: Any = None) -> None:
        super().build(table_shape, num_sampled, table)
        weights = np.asarray(self.class_weights(self.units), np.float64)
        if self.unique:
            available = int(np.count_nonzero(weights))
            if num_sampled is None or not 1 <= num_sampled <= available:
                raise ValueError(
                    "`num_sampled` must be at least 1 and at most the number of classes that can "
                    f"be drawn, {available}, when unique=True. Received: num_sampled={num_sampled}"
                )
            probabilities = inclusion_probabilities(weights, num_sampled)
            integers, self.total = integer_inclusion(probabilities, num_sampled)
        else:
            integers = integer_weights(weights)
            self.total = int(integers.sum())
        starts = np.concatenate([[0], np.cumsum(integers)]).astype(np.int32)
        self.starts = add_constant(self, "starts", starts)
        self.levels = search_levels(self, starts)

    def propose(self, table, hidden, exclude=None, targets=None):
        exclude = None if exclude is None else ops.expand_dims(exclude, -1)
        return StaticProposal(self, self.rows, ops.shape(hidden)[0], exclude)

    def start(self, ids: Tensor) -> Tensor:
        """Where the interval of each class begins."""
        return gather_rows(self.starts, ids)

    def width(self, ids: Tensor) -> Tensor:
        """The integer weight of each class."""
        return self.start(ids + 1) - self.start(ids)

    def locate(self, points: Tensor) -> Tensor:
        """The class whose interval holds each point."""
        return search(self.levels, points)


def search_levels(layer: keras.layers.Layer, table: np.ndarray) -> list[keras.Variable]:
    """Variables (groups, 16) of `layer` of a non-decreasing table, level 0 first.

    The last group of a level is filled up with what exceeds all that is searched.
    """
    levels: list[keras.Variable] = []
    while not levels or levels[-1].shape[0] > 1:
        groups = -(-len(table) // GROUP)
        padded = np.full(groups * GROUP, LARGEST_TOTAL, table.dtype)
        padded[: len(table)] = table
        levels.append(add_constant(layer, f"level_{len(levels)}", padded.reshape(groups, GROUP)))
        table = padded[::GROUP]
    return levels


def search(levels: list[keras.Variable], values: Tensor) -> Tensor:
    """The last position p with table[p] <= value, elementwise; table[0] must be <= every value."""
    shape = ops.shape(values)
    flat = ops.reshape(values, (-1, 1))
    # The lowest level that is short enough is one line, the same for all; the top one always is.
    line = next(k for k, level in enumerate(levels) if math.prod(level.shape) <= LONGEST_LINE)
    entries = ops.reshape(read(levels[line]), (1, -1))
    position = ops.reshape(number_at_most(entries, ops.transpose(flat)) - 1, (-1,))
    for level in reversed(levels[:line]):
        inside = number_at_most(gather_rows(level, position), flat)[:, 0] - 1
        position = position * GROUP + inside
    return ops.reshape(position, shape)

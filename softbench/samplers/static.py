"""Proposals that depend neither on the input nor on the class table.

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
from softbench.samplers.base import Sampler, Samples, all_ids
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


class StaticSampler(Sampler):
    """Base class of the static proposals: a subclass gives `class_weights`.

    Draws are independent with replacement, one set for each example or, with `share_draws`, one for
    the batch or for each of its groups. With `unique=True` a set is of m distinct classes, drawn by
    systematic sampling: the classes laid end to end with lengths pi_i = min(1, c f_i), a ruler with
    unit spacing and a random start; class i is in the set with probability exactly pi_i, and the
    log expected count is log pi_i. Sums over the draws, weighted by 1 / pi, are unbiased; their
    variance is that of a stratified sample in the order of the ids, in which many pairs of classes
    (neighbours, for one) are never drawn together.

    Cost: O(m log n) for a draw; memory: about two int32 for each class.

    Args:
        unique: draw without replacement. Implies `share_draws`.
    """

    kind = "static"
    shares_by_groups = True
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
            self.num_sampled = num_sampled
        else:
            integers = integer_weights(weights)
            self.total = int(integers.sum())
        starts = np.concatenate([[0], np.cumsum(integers)]).astype(np.int32)
        self.starts = add_constant(self, "starts", starts)
        self.levels = search_levels(self, starts)

    def start(self, ids: Tensor) -> Tensor:
        """Where the interval of each class begins."""
        return gather_rows(self.starts, ids)

    def width(self, ids: Tensor) -> Tensor:
        """The integer weight of each class."""
        return self.start(ids + 1) - self.start(ids)

    def locate(self, points: Tensor) -> Tensor:
        """The class whose interval holds each point."""
        return search(self.levels, points)

    def _log_share(self, ids: Tensor, total: Tensor | float) -> Tensor:
        """log(width / total); of one quotient, because log(width) - log(total) loses digits."""
        return ops.log(ops.cast(self.width(ids), "float32") / total)

    def _log_expected_count(self, ids: Tensor, num_sampled: int) -> Tensor:
        """log E[count] when no label is excluded; `total` is S for unique draws, else W."""
        log_size = 0.0 if self.unique else math.log(num_sampled)
        return self._log_share(ids, float(self.total)) + log_size

    def _draw(self, table, hidden, num_sampled, excluded, labels):
        if excluded is not None:
            return self._sample_others(hidden, num_sampled, excluded[:, None])
        seed = self.seed_generator.next()
        if self.unique:
            if num_sampled != self.num_sampled:
                raise ValueError(
                    f"`num_sampled` must be the {self.num_sampled} that this sampler was built "
                    f"for when unique=True. Received: num_sampled={num_sampled}"
                )
            shape = (1,) if self.groups is None else (self.groups, 1)
            points = random_integers(shape, self.total, seed)
            points = points + self.total * ops.arange(num_sampled, dtype="int32")
        else:
            sets = (ops.shape(hidden)[0],) if self.per_example else (self.groups,)
            shape = (num_sampled,) if sets == (None,) else (*sets, num_sampled)
            points = random_integers(shape, self.total, seed)
        ids = self.locate(points)
        true = None if labels is None else self._log_expected_count(labels, num_sampled)
        return Samples(ids, self._log_expected_count(ids, num_sampled), true)

    def _sample_others(self, hidden: Tensor, num_sampled: int, labels: Tensor) -> Samples:
        """Draws (B, m) from the classes other than the label (B, 1)."""
        left_out = self.width(labels)
        shape = (ops.shape(hidden)[0], num_sampled)
        points = random_integers(shape, self.total - left_out, self.seed_generator.next())
        points = points + ops.where(points >= self.start(labels), left_out, 0)
        # Where nothing but the label can be drawn, it is: with log q = -inf, and masked as a hit.
        ids = ops.where(ops.equal(left_out, self.total), labels, self.locate(points))
        log_q = self._log_prob_others(ids, labels)
        return Samples(ids, log_q + math.log(num_sampled), None)

    def _log_prob_others(self, ids: Tensor, labels: Tensor) -> Tensor:
        rest = ops.cast(self.total - self.width(labels), "float32")
        log_q = self._log_share(ids, ops.where(rest > 0, rest, 1.0))
        return ops.where(ops.equal(ids, labels), -float("inf"), log_q)

    def _log_prob(self, table, hidden, ids, excluded):
        ids = all_ids(self.units, hidden) if ids is None else ids
        if excluded is not None:
            return self._log_prob_others(ids, excluded[:, None])
        return self._log_share(ids, float(self.total))


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

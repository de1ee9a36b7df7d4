"""A mixture of two proposals, with the exact log q of the mixture."""

import math
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from softbench.common import PACKAGE, Tensor, check_number, check_positive
from softbench.samplers.base import Sampler, Samples, all_ids
from softbench.samplers.composite import Composite
from softbench.samplers.groups import of_examples
from softbench.samplers.registry import get, serialize


@keras.saving.register_keras_serializable(PACKAGE)
class Mixed(Composite):
    """m1 draws from `first` and m2 from `second`: m1 = round(weight m) of m, or given numbers.

    The draws are stratified: E[count_i] = m1 q1(i) + m2 q2(i) exactly, and every draw is corrected
    with it, whichever of the two it came from. So a class that either of them can draw often is
    never weighted up much: the defensive form of a sampler whose q has thin places. `log_prob` is
    log((m1 q1 + m2 q2) / m) for the m that the sampler was built for. Where `first` or `second`
    draws without replacement, its inclusion probability pi stands for m1 q1 or m2 q2; where an
    `in_batch` draws fewer than its share, m is the expected number of all draws.

    One of the two may share its draws while the other draws for each example: many shared draws,
    which cost little, and a few that follow the example. The label is then left out of both.

    Args:
        first, second: name, config dict, or `Sampler`.
        weight: the share of `first`, in (0, 1), unless `num_sampled` is given.
        num_sampled: (m1, m2), or None. The head's own `num_sampled` must be their sum.
        share_draws: for a `first` or `second` given by name or config.
        seed: of both, `second` with seed + 1.

    Raises:
        ValueError: if both share their draws, but not by the same groups; if one of them draws
            classes for certain; or, when built, if `num_sampled` draws leave none for one of them.
    """

    kind = "mixed"
    shares_by_groups = True  # if its parts do
    arguments = ("weight", "num_sampled")

    def __init__(
        self,
        first: str | dict | Sampler,
        second: str | dict | Sampler,
        weight: float = 0.5,
        num_sampled: Sequence[int] | None = None,
        share_draws: bool | int | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        check_number(0, exclusive=True, weight=weight)
        if weight >= 1:
            raise ValueError(f"`weight` must be below 1. Received: weight={weight}")
        shared = {} if share_draws is None else {"share_draws": share_draws}
        both = [
            get(part, seed=None if seed is None else seed + index, **shared)
            for index, part in enumerate((first, second))
        ]
        given = {part.share_draws for part in both} | set(shared.values())
        sharing = {part.share_draws for part in both if part.share_draws}
        if len(sharing) > 1 or (shared and len(given) > 1):
            raise ValueError(
                "`share_draws` must be the same for `first` and `second`, or False for one of "
                f"them. Received: share_draws={share_draws}, "
                f"first.share_draws={both[0].share_draws}, "
                f"second.share_draws={both[1].share_draws}"
            )
        for name, part in zip(("first", "second"), both, strict=True):
            if part.draws_for_certain:
                raise ValueError(
                    f"`{name}` must draw from a distribution; give what it is to be mixed with as "
                    f"the `tail` of {type(part).__name__}. Received: {name}={type(part).__name__}"
                )
        common = both[0].share_draws if len(given) == 1 else False
        super().__init__(share_draws=common, seed=seed, **kwargs)
        self.first, self.second = both
        self.weight = weight
        self.num_sampled = None if num_sampled is None else _checked_numbers(num_sampled)

    @property
    def parts(self) -> tuple[Sampler, ...]:
        return self.first, self.second

    @property
    def groups(self) -> int | None:
        return self.first.groups or self.second.groups

    @property
    def shares_in_part(self) -> bool:  # type: ignore[override]
        return bool(self.first.share_draws) != bool(self.second.share_draws)

    def arrange(self, hidden: Tensor) -> Tensor | None:
        orders = (part.arrange(hidden) for part in self.parts)
        return next((order for order in orders if order is not None), None)

    def sizes(self, num_sampled: int) -> tuple[int, int]:
        """m1 and m2."""
        if self.num_sampled is not None:
            total = sum(self.num_sampled)
            if total != num_sampled:
                raise ValueError(
                    f"`num_sampled` must be {total}, the sum of the mixture's {self.num_sampled}. "
                    f"Received: num_sampled={num_sampled}"
                )
            return self.num_sampled
        first = round(self.weight * num_sampled)
        if not 0 < first < num_sampled:
            raise ValueError(
                "`num_sampled` must leave a draw for each of `first` and `second`. Received: "
                f"num_sampled={num_sampled} with weight={self.weight}"
            )
        return first, num_sampled - first

    def build(self, table_shape: tuple, num_sampled: int | None = None, table: Any = None) -> None:
        super().build(table_shape, num_sampled, table)
        if num_sampled is None:
            raise ValueError("`num_sampled` must be given: it sets the weights. Received: None")
        self.drawn = num_sampled
        for part, size in self._parts(num_sampled):
            if not part.built:
                part.build(table_shape, size, table)

    def _parts(self, num_sampled: int) -> list[tuple[Sampler, int]]:
        return list(zip(self.parts, self.sizes(num_sampled), strict=True))

    @property
    def uses_present(self) -> bool:
        return self.first.uses_present or self.second.uses_present

    def _draw(self, table, hidden, num_sampled, excluded, labels, present=None):
        if self.shares_in_part:
            return self._draw_in_part(table, hidden, num_sampled, excluded, labels, present)
        (first, size1), (second, size2) = self._parts(num_sampled)
        asked = (labels, False) if excluded is None else (excluded, True)
        one = first.sample(table, hidden, size1, *asked, present)
        two = second.sample(table, hidden, size2, *asked, present)
        other1 = second.log_expected_count(table, hidden, size2, one.ids, excluded, present)
        other2 = first.log_expected_count(table, hidden, size1, two.ids, excluded, present)
        count1 = _added(one.log_expected_count, other1)
        count2 = _added(two.log_expected_count, other2)
        true = None
        if one.true_log_expected_count is not None:
            true = ops.logaddexp(one.true_log_expected_count, two.true_log_expected_count)
        ids = ops.concatenate([one.ids, two.ids], axis=-1)
        return Samples(ids, ops.concatenate([count1, count2], axis=-1), true)

    def _draw_in_part(self, table, hidden, num_sampled, excluded, labels, present):
        """Draws (m,) or (G, m) of the part that shares them, and (B, m) of the other."""
        parts = self._parts(num_sampled)
        (shared, size1), (single, size2) = parts if self.first.share_draws else parts[::-1]
        asked, batch = labels if excluded is None else excluded, ops.shape(hidden)[0]
        one = shared.sample(table, hidden, size1, asked, False, present)
        two = single.sample(table, hidden, size2, asked, excluded is not None, present)

        def own(x: Tensor) -> Tensor:
            if len(x.shape) == 1:
                return ops.broadcast_to(x, (batch, x.shape[0]))
            return of_examples(x, batch)

        ids1 = own(one.ids)
        other1 = single.log_expected_count(table, hidden, size2, ids1, excluded, present)
        other2 = shared.log_expected_count(table, hidden, size1, two.ids, None, present)
        count1 = _added(own(one.log_expected_count), other1)
        count2 = _added(two.log_expected_count, other2)
        if excluded is not None:
            count1 = ops.where(ops.equal(ids1, excluded[:, None]), -float("inf"), count1)
        true = None
        if two.true_log_expected_count is not None:
            true = ops.logaddexp(one.true_log_expected_count, two.true_log_expected_count)
        return Samples((one.ids, two.ids), (count1, count2), true)

    def log_expected_count(
        self,
        table: Any,
        hidden: Tensor,
        num_sampled: int,
        ids: Tensor | None = None,
        labels: Tensor | None = None,
        present: Tensor | None = None,
    ) -> Tensor:
        counts = [
            part.log_expected_count(table, hidden, size, ids, labels, present)
            for part, size in self._parts(num_sampled)
        ]
        found = ops.logaddexp(*counts)
        if labels is None or not self.shares_in_part:
            return found
        ids = all_ids(self.units, hidden) if ids is None else ids
        return ops.where(ops.equal(ids, labels[:, None]), -float("inf"), found)

    def _log_prob(self, table, hidden, ids, excluded):
        found = self.log_expected_count(table, hidden, self.drawn, ids, excluded)
        if excluded is None or not self.shares_in_part:
            return found - self.log_size(hidden, self.drawn)
        every = self.log_expected_count(table, hidden, self.drawn, None, excluded)
        return found - ops.logsumexp(every, axis=-1, keepdims=True)

    def log_size(self, hidden: Tensor, num_sampled: int) -> Tensor | float:
        """log of the expected number of draws: fewer than m where `in_batch` has a small batch."""
        sizes = [
            math.log(size) if part.unique else part.log_size(hidden, size)
            for part, size in self._parts(num_sampled)
        ]
        return ops.logaddexp(*sizes)

    def shared_log_prob(self, table: Any, hidden: Tensor) -> Tensor:
        self._check_built(table)
        parts = [
            part.shared_log_prob(table, hidden) + part.log_size(hidden, size)
            for part, size in self._parts(self.drawn)
        ]
        return ops.logaddexp(*parts) - self.log_size(hidden, self.drawn)

    def get_config(self) -> dict:
        parts = {"first": serialize(self.first), "second": serialize(self.second)}
        common = None if self.shares_in_part else self.share_draws
        return {**super().get_config(), "share_draws": common, **parts}


def _checked_numbers(num_sampled: Sequence[int]) -> tuple[int, int]:
    if not isinstance(num_sampled, Sequence) or len(num_sampled) != 2:
        raise ValueError(
            "`num_sampled` must be two numbers of draws, of `first` and of `second`, or None. "
            f"Received: num_sampled={num_sampled!r}"
        )
    for size in num_sampled:
        check_positive(num_sampled=size)
    return int(num_sampled[0]), int(num_sampled[1])


def _added(own: Tensor, other: Tensor) -> Tensor:
    """log(e^own + e^other) of draws; -inf stays: such a draw does not count."""
    return ops.where(ops.equal(own, -float("inf")), own, ops.logaddexp(own, other))

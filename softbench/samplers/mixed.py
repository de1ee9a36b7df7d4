"""A mixture of two proposals, with the exact log q of the mixture."""

import math
from typing import Any

import keras
from keras import ops

from softbench.common import PACKAGE, Tensor, check_number
from softbench.samplers.base import Sampler, Samples
from softbench.samplers.registry import get, serialize


@keras.saving.register_keras_serializable(PACKAGE)
class Mixed(Sampler):
    """m1 = round(weight m) draws from `first` and m2 = m - m1 from `second`.

    The draws are stratified: E[count_i] = m1 q1(i) + m2 q2(i) exactly, and every draw is corrected
    with it, whichever of the two it came from. So a class that either of them can draw often is
    never weighted up much: the defensive form of a sampler whose q has thin places. `log_prob` is
    log((m1 q1 + m2 q2) / m) for the m that the sampler was built for. Where `first` or `second`
    draws without replacement, its inclusion probability pi stands for m1 q1 or m2 q2; where an
    `in_batch` draws fewer than its share, m is the expected number of all draws.

    Args:
        first, second: name, config dict, or `Sampler`; both with draws per example or both with
            shared draws.
        weight: the share of `first`, in (0, 1).
        share_draws: for a `first` or `second` given by name or config.
        seed: of both, `second` with seed + 1.

    Raises:
        ValueError: if only one of the two shares its draws, or, when built, if `num_sampled` draws
            leave none for one of them.
    """

    kind = "mixed"
    shares_by_groups = True  # if its parts do
    arguments = ("weight",)

    def __init__(
        self,
        first: str | dict | Sampler,
        second: str | dict | Sampler,
        weight: float = 0.5,
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
        if len(given) > 1:
            raise ValueError(
                "`share_draws` must be the same for `first` and `second`. Received: "
                f"share_draws={share_draws}, first.share_draws={both[0].share_draws}, "
                f"second.share_draws={both[1].share_draws}"
            )
        super().__init__(share_draws=both[0].share_draws, seed=seed, **kwargs)
        self.first, self.second = both
        self.weight = weight

    def sizes(self, num_sampled: int) -> tuple[int, int]:
        """m1 and m2."""
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
        self.num_sampled = num_sampled
        for part, size in self._parts(num_sampled):
            if not part.built:
                part.build(table_shape, size, table)

    def _parts(self, num_sampled: int) -> list[tuple[Sampler, int]]:
        return list(zip((self.first, self.second), self.sizes(num_sampled), strict=True))

    @property
    def uses_present(self) -> bool:
        return self.first.uses_present or self.second.uses_present

    def _draw(self, table, hidden, num_sampled, excluded, labels, present=None):
        (first, size1), (second, size2) = self._parts(num_sampled)
        asked = (labels, False) if excluded is None else (excluded, True)
        extra1, extra2 = _extra(first, present), _extra(second, present)
        one = first.sample(table, hidden, size1, *asked, **extra1)
        two = second.sample(table, hidden, size2, *asked, **extra2)
        other1 = second.log_expected_count(table, hidden, size2, one.ids, excluded, **extra2)
        other2 = first.log_expected_count(table, hidden, size1, two.ids, excluded, **extra1)
        count1 = _added(one.log_expected_count, other1)
        count2 = _added(two.log_expected_count, other2)
        true = None
        if one.true_log_expected_count is not None:
            true = ops.logaddexp(one.true_log_expected_count, two.true_log_expected_count)
        ids = ops.concatenate([one.ids, two.ids], axis=-1)
        return Samples(ids, ops.concatenate([count1, count2], axis=-1), true)

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
            part.log_expected_count(table, hidden, size, ids, labels, **_extra(part, present))
            for part, size in self._parts(num_sampled)
        ]
        return ops.logaddexp(*counts)

    def _log_prob(self, table, hidden, ids, excluded):
        found = self.log_expected_count(table, hidden, self.num_sampled, ids, excluded)
        return found - self.log_size(hidden, self.num_sampled)

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
            for part, size in self._parts(self.num_sampled)
        ]
        return ops.logaddexp(*parts) - self.log_size(hidden, self.num_sampled)

    def rows_changed(self, table: Any, ids: Tensor, old_rows: Tensor, new_rows: Tensor) -> None:
        for part in (self.first, self.second):
            part.rows_changed(table, ids, old_rows, new_rows)

    def refresh(self, table: Any) -> None:
        for part in (self.first, self.second):
            part.refresh(table)

    def get_config(self) -> dict:
        parts = {"first": serialize(self.first), "second": serialize(self.second)}
        return {**super().get_config(), **parts}


def _extra(part: Sampler, present: Tensor | None) -> dict:
    """What a part is asked with besides the arguments that all samplers take."""
    return {"present": present} if present is not None and part.uses_present else {}


def _added(own: Tensor, other: Tensor) -> Tensor:
    """log(e^own + e^other) of draws; -inf stays: such a draw does not count."""
    return ops.where(ops.equal(own, -float("inf")), own, ops.logaddexp(own, other))

"""A mixture of two samplers, with the exact expected counts of the mixture."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from softbench.common import PACKAGE, Tensor, check_number, check_positive
from softbench.groups import of_every_example
from softbench.samplers.base import Sampler
from softbench.samplers.proposal import Component, Proposal, Samples
from softbench.samplers.registry import get, serialize
from softbench.targets import Targets


class MixtureProposal(Proposal):
    """m1 draws of one proposal and m2 of another: E[count_i] = E1[count_i] + E2[count_i].

    Args:
        first, second: the two proposals.
        sizes: m -> (m1, m2).
        hidden: (B, d).
        exclude: int32 (B,), the class that single examples leave out, or None.
    """

    def __init__(
        self, first: Proposal, second: Proposal, sizes: Any, hidden: Tensor, exclude: Tensor | None
    ) -> None:
        rows = first.rows if first.rows == second.rows else None
        super().__init__(first.units, rows, ops.shape(hidden)[0])
        self.pair, self.sizes, self.hidden = (first, second), sizes, hidden
        self.exclude = None if exclude is None else ops.expand_dims(exclude, -1)

    def _drawn(self, num_sampled: int, seed: Any) -> list[tuple[Tensor, Tensor]]:
        """Each component's ids (R', m'), and their log E[count] in all draws, (R', m') or (B, m').

        A draw that does not count for its own component (-inf) does not count at all.
        """
        drawn, sizes = [], self.sizes(num_sampled)
        pairs = zip(self.pair, self.pair[::-1], sizes, sizes[::-1], strict=True)
        for component, other, size, other_size in pairs:
            ids, count = component.draw(size, seed)
            if component.rows == other.rows:
                added = other.log_count(ids, other_size)
            else:
                each, count = (of_every_example(x, self.hidden) for x in (ids, count))
                added = other.log_count_for(each, other_size)
                if self.exclude is not None:
                    count = ops.where(ops.equal(each, self.exclude), -float("inf"), count)
            never = ops.equal(count, -float("inf"))
            drawn.append((ids, ops.where(never, count, ops.logaddexp(count, added))))
        return drawn

    def draw(self, num_sampled: int, seed: Any) -> tuple[Tensor, Tensor]:
        drawn = self._drawn(num_sampled, seed)
        if self.pair[0].rows != self.pair[1].rows:
            drawn = [tuple(of_every_example(x, self.hidden) for x in pair) for pair in drawn]
        ids, log_count = zip(*drawn, strict=True)
        return ops.concatenate(ids, axis=-1), ops.concatenate(log_count, axis=-1)

    def samples(self, num_sampled: int, seed: Any, labels: Tensor | None) -> list[Samples]:
        if self.pair[0].rows == self.pair[1].rows:
            return super().samples(num_sampled, seed, labels)
        true = self.true_log_count(labels, num_sampled)
        return [Samples(*pair, true) for pair in self._drawn(num_sampled, seed)]

    def log_count(self, ids: Tensor, num_sampled: int) -> Tensor:
        pairs = list(zip(self.pair, self.sizes(num_sampled), strict=True))
        if self.rows is None:
            log_count = ops.logaddexp(*(q.log_count_for(ids, size) for q, size in pairs))
        else:
            log_count = ops.logaddexp(*(q.log_count(ids, size) for q, size in pairs))
        return self._without_excluded(ids, log_count)

    def log_count_all(self, num_sampled: int) -> Tensor:
        counts = [
            q.log_count_all(size)
            for q, size in zip(self.pair, self.sizes(num_sampled), strict=True)
        ]
        if self.pair[0].rows != self.pair[1].rows:
            counts = [of_every_example(count, self.hidden) for count in counts]
        ids = ops.arange(self.units, dtype="int32")
        return self._without_excluded(ids, ops.logaddexp(*counts))

    def _without_excluded(self, ids: Tensor, log_count: Tensor) -> Tensor:
        """-inf at the excluded class, which a shared component has drawn from."""
        if self.exclude is None:
            return log_count
        return ops.where(ops.equal(ids, self.exclude), -float("inf"), log_count)

    def log_scale(self, num_sampled: int) -> Tensor | float:
        """log of the expected number of draws: fewer than m where `in_batch` has a small batch."""
        if self.exclude is not None and self.pair[0].rows != self.pair[1].rows:
            return ops.logsumexp(self.log_count_all(num_sampled), axis=-1, keepdims=True)
        pairs = zip(self.pair, self.sizes(num_sampled), strict=True)
        return ops.logaddexp(*(q.log_total(size) for q, size in pairs))

    def components(self, num_sampled: int) -> list[Component]:
        components = []
        for q, size in zip(self.pair, self.sizes(num_sampled), strict=True):
            for component in q.components(size):
                log_count = component.log_count
                if q.rows != self.rows:
                    log_count = of_every_example(log_count, self.hidden)
                components.append(component._replace(log_count=log_count))
        return components


@keras.saving.register_keras_serializable(PACKAGE)
class Mixed(Sampler):
    """m1 draws from `first` and m2 from `second`: m1 = round(weight m) of m, or both fixed.

    The draws are stratified: E[count_i] = m1 q1(i) + m2 q2(i) exactly, and every draw is corrected
    with it, whichever of the two it came from. So a class that either of them can draw often is
    never weighted up much: the defensive form of a sampler whose q has thin spots. `log_prob` is
    log((m1 q1 + m2 q2) / m) for the m that the sampler was built for. Where `first` or `second`
    draws without replacement, its inclusion probability pi takes the place of m1 q1 or m2 q2; where
    an `in_batch` draws fewer than its share, m is the expected number of all draws.

    One of the two may share its draws while the other draws for each example: many shared draws,
    which cost little, and a few that follow the example. The label is then left out of both.

    Args:
        first, second: name, config dict, or `Sampler`.
        weight: the share of `first`, in (0, 1), unless `num_sampled` is given.
        num_sampled: (m1, m2), or None. The head's `num_sampled` must be their sum.
        share_draws: of a `first` or `second` given by name or config.
        seed: of both, `second` with seed + 1.

    Raises:
        ValueError: if `share_draws` is given and not that of `first` and `second`; or, when built,
            if `num_sampled` draws leave none for one of them.
    """

    shares_by_groups = True  # if its components do
    arguments = ("weight",)

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
            get(component, seed=None if seed is None else seed + index, **shared)
            for index, component in enumerate((first, second))
        ]
        rows = [component.rows for component in both]
        if shared and any(component.share_draws != share_draws for component in both):
            raise ValueError(
                "`share_draws` must be left out where `first` or `second` says it. Received: "
                f"share_draws={share_draws}, first.share_draws={both[0].share_draws}, "
                f"second.share_draws={both[1].share_draws}"
            )
        common = both[0].share_draws if rows[0] == rows[1] else False
        super().__init__(share_draws=common, seed=seed, **kwargs)
        self.first, self.second = both
        self.weight = weight
        self.sizes_given = None if num_sampled is None else _checked_numbers(num_sampled)

    @property
    def components(self) -> tuple[Sampler, Sampler]:
        """`first` and `second`."""
        return self.first, self.second

    @property
    def depends_on(self) -> frozenset[str]:  # type: ignore[override]
        return self.first.depends_on | self.second.depends_on

    @property
    def per_example(self) -> bool:
        return all(component.per_example for component in self.components)

    @property
    def excludes_labels(self) -> bool:
        return any(component.excludes_labels for component in self.components)

    def index(self) -> Any:
        return self.first.index() or self.second.index()

    @property
    def input_width(self) -> int | None:
        return self.first.input_width or self.second.input_width

    def arrange(self, hidden: Tensor) -> Tensor | None:
        order = self.first.arrange(hidden)
        return self.second.arrange(hidden) if order is None else order

    def sizes(self, num_sampled: int) -> tuple[int, int]:
        """m1 and m2."""
        if self.sizes_given is not None:
            total = sum(self.sizes_given)
            if total != num_sampled:
                raise ValueError(
                    f"`num_sampled` must be {total}, the sum of the mixture's {self.sizes_given}. "
                    f"Received: num_sampled={num_sampled}"
                )
            return self.sizes_given
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
        for component, size in zip(self.components, self.sizes(num_sampled), strict=True):
            if not component.built:
                component.build(table_shape, size, table)

    def propose(self, table, hidden, exclude=None, targets=None):
        first, second = (
            component.propose(
                table, hidden, exclude if component.excludes_labels else None, targets
            )
            for component in self.components
        )
        return MixtureProposal(first, second, self.sizes, hidden, exclude)

    def observe(self, table: Any, targets: Targets) -> None:
        for component in self.components:
            if component.trainable:
                component.observe(table, targets)

    def remember(self, targets: Targets) -> None:
        for component in self.components:
            if component.trainable:
                component.remember(targets)

    @property
    def tracks_rows(self) -> bool:
        return any(component.tracks_rows for component in self.components)

    def tracked_ids(self, ids: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """As the only component that tracks rows wants it; all ids for two."""
        tracking = self._tracking()
        return tracking[0].tracked_ids(ids) if len(tracking) == 1 else (ids, {})

    def rows_changed(
        self, table: Any, ids: Tensor, old_rows: Tensor, new_rows: Tensor, **further: Any
    ) -> None:
        for component in self._tracking():
            component.rows_changed(table, ids, old_rows, new_rows, **further)

    def _tracking(self) -> list[Sampler]:
        return [component for component in self.components if component.tracks_rows]

    def refresh(self, table: Any) -> None:
        for component in self.components:
            component.refresh(table)

    def get_config(self) -> dict:
        components = {"first": serialize(self.first), "second": serialize(self.second)}
        config = {**super().get_config(), "num_sampled": self.sizes_given, **components}
        del config["share_draws"]  # the components' configs say it
        return config


def _checked_numbers(num_sampled: Sequence[int]) -> tuple[int, int]:
    if not isinstance(num_sampled, Sequence) or len(num_sampled) != 2:
        raise ValueError(
            "`num_sampled` must be two numbers of draws, of `first` and of `second`, or None. "
            f"Received: num_sampled={num_sampled!r}"
        )
    for size in num_sampled:
        check_positive(num_sampled=size)
    return int(num_sampled[0]), int(num_sampled[1])

"""The classes that matter most for certain, and a sample of all the others."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from softbench.common import PACKAGE, Tensor, check_counts, check_length, check_positive
from softbench.samplers.base import Sampler, Samples, all_ids, check_width
from softbench.samplers.codebook.sampler import Codebook
from softbench.samplers.groups import (
    by_groups,
    check_splits,
    contains,
    of_examples,
    similar,
)
from softbench.samplers.registry import get, serialize
from softbench.samplers.top_and_tail.certain import CertainClasses
from softbench.state import Arguments

TAIL_POWER = 0.75
# Of the counts in the codebook's k-means. The frequent classes, which need no search, get fewer
# codewords than with power 1: what is looked for is the rest.
TOP_POWER = 0.25


@keras.saving.register_keras_serializable(PACKAGE)
class TopAndTail(CertainClasses):
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
        if kwargs.pop("share_draws", None) is not None:
            raise ValueError(
                "`share_draws` is not an argument of top_and_tail: give `groups`, 1 for the whole "
                "batch and None for each example. Received: share_draws"
            )
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
        for part in self.parts:
            if not part.built:
                part.build(table_shape, num_sampled, table)
        self.num_sampled = num_sampled or 1
        self._add_odds()

    def _draw(self, table, hidden, num_sampled, excluded, labels, present=None):
        check_width(table, hidden)
        asked = labels if excluded is None else excluded
        if not self.is_frozen(table):
            self.top._count_labels(asked, present)
        self.top._refresh_when_due(table)
        if not self.is_frozen(table):
            self._count_step()
        tail = self.tail.sample(table, hidden, num_sampled, asked, False, present)
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

    def certain(self, table: Any, hidden: Tensor) -> Tensor:
        self._check_built(table)
        top = of_examples(self._top(table, hidden), ops.shape(hidden)[0])
        return contains(top, all_ids(self.units, hidden))

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
        count = self.tail.log_expected_count(table, hidden, num_sampled, ids, None, present)
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

    def refresh(self, table: Any) -> None:
        self._check_built(table)
        super().refresh(table)
        self.odds.assign(self._odds())

    def get_config(self) -> dict:
        config = super().get_config()
        share_draws = config.pop("share_draws")
        groups = {False: None, True: 1}.get(share_draws, share_draws)
        parts = {"top": serialize(self.top), "tail": serialize(self.tail)}
        return {**config, "groups": groups, **parts}


def _without(ids: Tensor, labels: Tensor, log_count: Tensor) -> Tensor:
    """The log counts of ids (B, m), -inf where they are the label (B, 1)."""
    return ops.where(ops.equal(ids, labels), -float("inf"), log_count)

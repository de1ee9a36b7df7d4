"""The classes that matter most for certain, and a sample of all the others."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from softbench.common import (
    PACKAGE,
    Tensor,
    check_counts,
    check_length,
    check_positive,
    count_weights,
)
from softbench.groups import check_splits, contains, of_every_example, similar
from softbench.samplers.base import Sampler, check_width
from softbench.samplers.proposal import Component, Proposal, Samples
from softbench.samplers.registry import get, serialize
from softbench.samplers.top_and_tail.certain import CertainClasses
from softbench.state import Arguments

TAIL_POWER = 0.75
# Of the counts in the codebook's k-means. The frequent classes, which need no search, get fewer
# codewords than with power 1: what is looked for is the rest.
TOP_POWER = 0.25


class TopAndTailProposal(Proposal):
    """Certain classes, counted once, and the tail's draws of all others.

    Args:
        top: int32 (R, T), the certain classes of rows that R = `top_rows` says.
        tail: the proposal of the others.
        hidden: (B, d).
        exclude: int32 (B,), the class that each example's draws leave out, or None.
    """

    def __init__(
        self,
        top: Tensor,
        top_rows: int | None,
        tail: Proposal,
        hidden: Tensor,
        exclude: Tensor | None,
    ) -> None:
        rows = top_rows if tail.rows in (1, top_rows) else None
        super().__init__(tail.units, rows, ops.shape(hidden)[0])
        self.top = top if rows == top_rows else of_every_example(top, hidden)
        self.tail, self.hidden = tail, hidden
        self.without_replacement = tail.without_replacement
        self.exclude = None if exclude is None else ops.expand_dims(exclude, -1)

    def draw(self, num_sampled: int, seed: Any) -> tuple[Tensor, Tensor]:
        ids, log_count = self.tail.draw(num_sampled, seed)
        ids, log_count = self._in_rows(ids), self._of_others(ids, log_count)
        ids = ops.concatenate([self.top, ids], axis=-1)
        return ids, ops.concatenate([self._of_top(), log_count], axis=-1)

    def samples(self, num_sampled: int, seed: Any, labels: Tensor | None) -> list[Samples]:
        if self.tail.rows == self.rows:
            return super().samples(num_sampled, seed, labels)
        true = self.true_log_count(labels, num_sampled)
        ids, log_count = self.tail.draw(num_sampled, seed)
        log_count = of_every_example(self._of_others(ids, log_count), self.hidden)
        return [Samples(self.top, self._of_top(), true), Samples(ids, log_count, true)]

    def _in_rows(self, x: Tensor) -> Tensor:
        """x (R', N) of the tail's rows as (R, N)."""
        if self.tail.rows == 1:
            return ops.broadcast_to(x, (ops.shape(self.top)[0], *x.shape[1:]))
        return x if self.tail.rows == self.rows else of_every_example(x, self.hidden)

    def _of_top(self) -> Tensor:
        """log E[count] (R, T) of the certain classes."""
        return self._without_excluded(self.top, ops.zeros_like(self.top, dtype="float32"))

    def _of_others(self, ids: Tensor, log_count: Tensor) -> Tensor:
        """log E[count] (R, m) of the tail's draws (R', m), -inf where they are certain classes."""
        ids = self._in_rows(ids)
        log_count = ops.where(contains(self.top, ids), -float("inf"), self._in_rows(log_count))
        return self._without_excluded(ids, log_count)

    def _without_excluded(self, ids: Tensor, log_count: Tensor) -> Tensor:
        if self.exclude is None:
            return log_count
        return ops.where(ops.equal(ids, self.exclude), -float("inf"), log_count)

    def log_count(self, ids: Tensor, num_sampled: int) -> Tensor:
        log_count = ops.where(contains(self.top, ids), 0.0, self._tail_count(ids, num_sampled))
        return self._without_excluded(ids, log_count)

    def _tail_count(self, ids: Tensor, num_sampled: int) -> Tensor:
        """The tail's log E[count] (R, N) of ids (R, N)."""
        if self.tail.rows == self.rows:
            return self.tail.log_count(ids, num_sampled)
        if self.rows is None:
            return self.tail.log_count_for(ids, num_sampled)
        flat = self.tail.log_count(ops.reshape(ids, (1, -1)), num_sampled)
        return ops.reshape(flat, ops.shape(ids))

    def _all_ids(self) -> Tensor:
        shape = (ops.shape(self.top)[0], self.units)
        return ops.broadcast_to(ops.arange(self.units, dtype="int32"), shape)

    def log_count_all(self, num_sampled: int) -> Tensor:
        ids, log_count = self._all_ids(), self._in_rows(self.tail.log_count_all(num_sampled))
        log_count = ops.where(contains(self.top, ids), 0.0, log_count)
        return self._without_excluded(ids, log_count)

    def log_total(self, num_sampled: int) -> Tensor:
        total = ops.logsumexp(self.log_count_all(num_sampled), axis=-1, keepdims=True)
        return of_every_example(total, self.hidden)

    def components(self, num_sampled: int) -> list[Component]:
        certain = contains(self.top, self._all_ids())
        return [
            component._replace(
                log_count=ops.where(certain, -float("inf"), self._in_rows(component.log_count))
            )
            for component in self.tail.components(num_sampled)
        ]


@keras.saving.register_keras_serializable(PACKAGE)
class TopAndTail(CertainClasses):
    """T classes for certain, and m draws by the tail's distribution that represent all others.

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
    (G, k, d) x (G, T + m, d), or (G, k, d) x (G, T, d) and (B, d) x (d, m) where the batch shares
    the tail's draws.

    Args:
        num_top: T; with fewer classes, their number.
        num_candidates: None, or more than T: so many of the best classes by the codebook are scored
            exactly (a product without a gradient) before the best T of them are kept.
        share_draws: whose the certain classes are: a power of two, G: of each of G groups; True: of
            the batch; False: of each example.
        top: "codebook" or the config of one; its `counts` are the power 0.25 of `counts` unless it
            says otherwise.
        counts: of the classes (n,), for the codebook and for the default tail.
        tail: any sampler, by name, config or as a `Sampler`. None: the unigram of `counts` to the
            power 0.75, without replacement. Unless it says otherwise it shares its draws as the
            certain classes are shared (with the batch where those are of each example); with
            `share_draws=True` one set of its draws serves all groups.
        seed: of the draws.

    Raises:
        ValueError: if an argument is not in its range, `counts` is missing where it is needed, or
            the codebook has `within_cell="exact"`.

    Example:
        >>> config = {"num_top": 2, "share_draws": True, "counts": [5, 3, 1, 1, 1, 1]}
        >>> head = softbench.SampledSoftmax(6, {"class_name": "top_and_tail", "config": config}, 3)
        >>> tuple(head(np.ones((4, 8), "float32"), np.arange(4), training=True).shape)
        (4,)
    """

    shares_by_groups = True
    arguments: Arguments = ("num_top", "num_candidates", "counts")

    def __init__(
        self,
        num_top: int = 256,
        num_candidates: int | None = None,
        share_draws: bool | int = 16,
        top: str | dict | Sampler = "codebook",
        counts: Sequence[float] | None = None,
        tail: str | dict | Sampler | None = None,
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
        super().__init__(share_draws=share_draws, seed=seed, **kwargs)
        check_splits(self.rows or 1)
        self.counts = None if counts is None else check_counts(counts)
        self.num_top, self.num_candidates = int(num_top), num_candidates
        self.top = self._codebook(top)
        self.tail = self._tail(tail)

    def _codebook(self, top: str | dict | Sampler) -> Any:
        defaults: dict[str, Any] = {"seed": self.seed}
        if self.counts is not None:
            defaults["counts"] = count_weights(self.counts, TOP_POWER)
        name = top.get("class_name") if isinstance(top, dict) else top
        codebook: Any = top
        if isinstance(top, dict) or name == "codebook":
            codebook = get(top, **(defaults if name == "codebook" else {}))
        if getattr(codebook, "within_cell", None) != "weights":
            raise ValueError(
                "`top` must be 'codebook' or the config of one with within_cell='weights'. "
                f"Received: top={top!r}"
            )
        return codebook

    def _tail(self, tail: str | dict | Sampler | None) -> Sampler:
        if tail is None:
            if self.counts is None:
                raise ValueError(
                    "`counts` must be given, or a `tail`: by default it is the unigram of the "
                    "counts. Received: counts=None"
                )
            config = {"counts": self.counts.tolist(), "power": TAIL_POWER, "unique": True}
            tail = {"class_name": "unigram", "config": config}
        seed = None if self.seed is None else self.seed + 1
        return get(tail, seed=seed, share_draws=self.share_draws or True)

    @property
    def depends_on(self) -> frozenset[str]:  # type: ignore[override]
        return super().depends_on | self.tail.depends_on

    @property
    def per_example(self) -> bool:
        return self.rows is None and (self.tail.per_example or not self.tail.depends_on)

    @property
    def excludes_labels(self) -> bool:
        return self.rows is None or self.tail.excludes_labels

    def index(self) -> Any:
        return self.top

    def build(self, table_shape: tuple, num_sampled: int | None = None, table: Any = None) -> None:
        super().build(table_shape, num_sampled or 1, table)
        if self.counts is not None:
            check_length(self.counts, self.units)
        for sampler in (self.top, self.tail):
            if not sampler.built:
                sampler.build(table_shape, num_sampled, table)
        self._add_odds(table_shape[-1])

    def propose(self, table, hidden, exclude=None, targets=None):
        check_width(table, hidden)
        excluded = exclude if self.tail.excludes_labels else None
        tail = self.tail.propose(table, hidden, excluded, targets)
        return TopAndTailProposal(self._top(table, hidden), self.rows, tail, hidden, exclude)

    def arrange(self, hidden: Tensor) -> Tensor | None:
        return None if self.rows in (None, 1) else similar(hidden, self.rows)

    @property
    def tracks_rows(self) -> bool:
        return True

    def tracked_ids(self, ids: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """As the codebook wants them; all ids where the tail tracks rows too."""
        return (ids, {}) if self.tail.tracks_rows else self.top.tracked_ids(ids)

    def rows_changed(
        self, table: Any, ids: Tensor, old_rows: Tensor, new_rows: Tensor, **further: Any
    ) -> None:
        self.top.rows_changed(table, ids, old_rows, new_rows, **further)
        if self.tail.tracks_rows:
            self.tail.rows_changed(table, ids, old_rows, new_rows)

    def refresh(self, table: Any) -> None:
        self._check_built(table)
        self.top.refresh(table)
        self.tail.refresh(table)
        self.odds.assign(self._odds())

    def get_config(self) -> dict:
        return {**super().get_config(), "top": serialize(self.top), "tail": serialize(self.tail)}

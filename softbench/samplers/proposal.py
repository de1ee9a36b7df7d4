"""What a sampler proposes for one batch: draws, and how often each class is drawn.

Shape letters: B batch, R rows of draws (see `groups`), m samples, n classes, N ids of a row.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from keras import ops

from softbench.common import Tensor
from softbench.groups import by_groups


class Samples(NamedTuple):
    """Sampled classes and their expected counts.

    Row r serves the examples [r k, (r + 1) k), k = ceil(B / R): R = 1 where the batch shares its
    draws, R = G where each of G groups of examples does, R = B where each example has its own.

    Attributes:
        ids: int32 (R, m).
        log_expected_count: float32 (R, m) or (B, m): log E[number of times drawn], which is
            log m + log q with replacement and the log inclusion probability without. -inf is a draw
            that does not count.
        true_log_expected_count: float32 (B,), the same of the labels ((B, P) of several labels);
            None where there were no labels, or the draws exclude them.
    """

    ids: Tensor
    log_expected_count: Tensor
    true_log_expected_count: Tensor | None


class Component(NamedTuple):
    """Draws of one distribution.

    Attributes:
        rows: how many sets of them are drawn independently; None for B.
        log_count: (R, n), log E[times drawn], R the rows of the proposal.
        size: m of draws with replacement; None without.
    """

    rows: int | None
    log_count: Tensor
    size: int | None


class Proposal:
    """The distribution q for the inputs of one batch. What it needs of them is computed once.

    A subclass writes `draw` and `log_count`, and whatever of the rest it knows better.

    Args:
        units: n.
        rows: R; None where each example has its own row (R = B).
        batch: B.

    Attributes:
        without_replacement: whether draws are distinct, and `log_count` is that of being drawn.
    """

    without_replacement = False

    def __init__(self, units: int, rows: int | None, batch: int | Tensor) -> None:
        self.units, self.rows, self.batch = units, rows, batch

    def draw(self, num_sampled: int, seed: Any) -> tuple[Tensor, Tensor]:
        """ids int32 (R, m), and their log E[count] float32 (R, m), or (B, m).

        `seed` is a `keras.random.SeedGenerator`.
        """
        raise NotImplementedError

    def log_count(self, ids: Tensor, num_sampled: int) -> Tensor:
        """log E[times drawn in m draws] (R, N) of ids (R, N)."""
        raise NotImplementedError

    def class_pass(self, num_sampled: int) -> Callable[[Tensor], Tensor]:
        """ids (C,) -> `log_count` (R, C) of the same classes for every row.

        What all calls have in common is computed here.
        """
        rows = self.batch if self.rows is None else self.rows
        return lambda ids: self.log_count(
            ops.broadcast_to(ids, (rows, *ops.shape(ids))), num_sampled
        )

    def log_count_all(self, num_sampled: int) -> Tensor:
        """`log_count` (R, n) of all classes."""
        return self.class_pass(num_sampled)(ops.arange(self.units, dtype="int32"))

    def log_total(self, num_sampled: int) -> Tensor | float:
        """log of the expected number of draws that count."""
        return math.log(num_sampled)

    def log_scale(self, num_sampled: int) -> Tensor | float:
        """log_count - log_prob: 0 without replacement, where log_prob is that of being drawn."""
        return 0.0 if self.without_replacement else self.log_total(num_sampled)

    def components(self, num_sampled: int) -> list[Component]:
        """The draws as independent components; what they do not add to `log_count` is certain."""
        size = None if self.without_replacement else num_sampled
        return [Component(self.rows, self.log_count_all(num_sampled), size)]

    def samples(self, num_sampled: int, seed: Any, labels: Tensor | None) -> list[Samples]:
        """The draws as what a head scores, with log E[count] of labels (B, P) if they are given.

        Components with different numbers of rows are `Samples` of their own.
        """
        ids, log_count = self.draw(num_sampled, seed)
        return [Samples(ids, log_count, self.true_log_count(labels, num_sampled))]

    def true_log_count(self, labels: Tensor | None, num_sampled: int) -> Tensor | None:
        """log E[count] (B, P) of labels (B, P), None if they are."""
        return None if labels is None else self.log_count_for(labels, num_sampled)

    def log_count_for(self, ids: Tensor, num_sampled: int) -> Tensor:
        """`log_count` (B, N) of ids (B, N), each by the row of its example."""
        if self.rows is None:
            return self.log_count(ids, num_sampled)
        size = ids.shape[1]
        flat = ops.reshape(by_groups(ids, self.rows), (self.rows, -1))
        log_count = ops.reshape(self.log_count(flat, num_sampled), (-1, size))
        return log_count if self.rows == 1 else log_count[: ops.shape(ids)[0]]


class Independent(Proposal):
    """m independent draws from q: log E[count] = log m + log q. A subclass writes q."""

    def draw_with_log_q(self, num_sampled: int, seed: Any) -> tuple[Tensor, Tensor]:
        """ids int32 (R, m), and their log q (R, m)."""
        raise NotImplementedError

    def log_q(self, ids: Tensor) -> Tensor:
        """log q (R, N) of ids (R, N)."""
        raise NotImplementedError

    def log_q_all(self) -> Tensor:
        """log q (R, n) of all classes."""
        rows = self.batch if self.rows is None else self.rows
        ids = ops.arange(self.units, dtype="int32")
        return self.log_q(ops.broadcast_to(ids, (rows, self.units)))

    def draw(self, num_sampled: int, seed: Any) -> tuple[Tensor, Tensor]:
        ids, log_q = self.draw_with_log_q(num_sampled, seed)
        return ids, ops.stop_gradient(log_q) + math.log(num_sampled)

    def log_count(self, ids: Tensor, num_sampled: int) -> Tensor:
        return ops.stop_gradient(self.log_q(ids)) + math.log(num_sampled)

    def log_count_all(self, num_sampled: int) -> Tensor:
        return ops.stop_gradient(self.log_q_all()) + math.log(num_sampled)

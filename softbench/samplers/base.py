"""What a sampler is: draws of classes, together with the distribution that they are from."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
from keras import ops

from softbench.common import Tensor, check_positive
from softbench.labels import check_integers, check_values, safe_ids
from softbench.state import Arguments, SavedGenerators, saved_arguments


class Samples(NamedTuple):
    """Sampled classes and their expected counts.

    Shape letters: B batch, m samples.

    Attributes:
        ids: int32 (B, m), (m,) when the batch shares its draws, or (G, m) when each of G groups of
            examples shares its own: group g is the examples [g k, (g + 1) k), k = ceil(B / G).
        log_expected_count: float32, shaped like `ids`: log E[number of times drawn], which is
            log m + log q with replacement and the log inclusion probability without. Of shared ids
            it may be (B, m) or (G, m) too; -inf is a draw that does not count.
        true_log_expected_count: float32 (B,), the same of the labels; None when the sampler was
            given no labels, or when the draws exclude them.

    Draws of several of these shapes together have tuples of ids and of log expected counts.
    """

    ids: Any
    log_expected_count: Any
    true_log_expected_count: Tensor | None

    def blocks(self) -> list[tuple[Tensor, Tensor]]:
        """Ids and log expected counts of each shape."""
        if not isinstance(self.ids, tuple):
            return [(self.ids, self.log_expected_count)]
        return list(zip(self.ids, self.log_expected_count, strict=True))


class Sampler(SavedGenerators, keras.layers.Layer):
    """Base class of the proposals q.

    A subclass writes `_draw` and `_log_prob`, and `build` if it holds variables. `log_prob` must be
    of the distribution that `sample` draws from: label excluded where the draw excludes it,
    normalised over all classes (for draws without replacement: the log inclusion probability).

    Args:
        share_draws: one set of m ids for the whole batch instead of one for each example. Shared
            draws cannot exclude each example's label; the head masks the hits. A number G above 1,
            of a sampler that can: a set for each of G groups of consecutive examples.
        seed: of the sampler's own `SeedGenerator`.

    Attributes:
        kind: what q depends on: "static" (on nothing), "kernel" (the example and sums that follow
            the class table), "tree" (features that a tree was fitted to), "batch" (the labels of
            the batch), "exact" (all scores), "codebook" (the example and codewords that follow the
            class table), or "mixed". Every registered class sets it.
        unique: whether draws are without replacement, and q is the probability of being drawn.
        uses_present: whether the draws depend on which examples are there (weight not 0), so that
            `_draw` takes `present`, bool (B,).
        shares_by_groups: whether `share_draws` can be a number of groups.
        draws_for_certain: whether some classes are always drawn, and which depends on the input.
        one_random_set: whether what is random in the draws of all examples and groups is the same.
        shares_in_part: whether a part of the draws is shared, and a part each example's own.
    """

    kind: str
    arguments: Arguments = ("share_draws", "seed")  # that `get_config` gives
    unique = False
    uses_present = False
    shares_by_groups = False
    draws_for_certain = False
    one_random_set = False
    shares_in_part = False

    def __init__(
        self, share_draws: bool | int = False, seed: int | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.share_draws = self._checked_groups(share_draws)
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)

    def _checked_groups(self, share_draws: bool | int) -> bool | int:
        if isinstance(share_draws, bool):
            return share_draws
        if not self.shares_by_groups:
            raise ValueError(
                f"`share_draws` must be True or False: {type(self).__name__} does not draw for "
                f"groups. Received: share_draws={share_draws!r}"
            )
        check_positive(share_draws=share_draws)
        return True if share_draws == 1 else int(share_draws)

    @property
    def groups(self) -> int | None:
        """G where each of more than one group of examples shares its own draws, else None."""
        return None if isinstance(self.share_draws, bool) else self.share_draws

    @property
    def per_example(self) -> bool:
        """Whether ids are (B, m) rather than (m,) or (G, m)."""
        return not self.share_draws

    def build(self, table_shape: tuple, num_sampled: int | None = None, table: Any = None) -> None:
        """Create the variables for a table of shape (n, d) of which `num_sampled` are drawn.

        A sampler that keeps something of the `ClassTable` itself is built with `table`.
        """
        self.units = table_shape[0]

    def sample(
        self,
        table: Any,
        hidden: Tensor,
        num_sampled: int,
        labels: Tensor | None = None,
        exclude_labels: bool = True,
        present: Tensor | None = None,
    ) -> Samples:
        """Draw classes, with their log expected counts.

        Args:
            table: the head's `ClassTable`.
            hidden: (B, d).
            num_sampled: m.
            labels: integers (B,) or None. With labels, a per-example sampler draws from the other
                classes; `exclude_labels=False` makes it draw from all n and report the labels'
                own log expected count. Without labels it draws from all n.

            present: bool (B,) or None: which examples are there, for a sampler with `uses_present`.

        Returns:
            `Samples`. In a compiled step, the expected count of a label out of range is NaN.

        Raises:
            ValueError: if labels are not integers or, where they can be seen, not in [0, n).
        """
        self._check_built(table, num_sampled)
        if labels is None:
            return self._draw(table, hidden, num_sampled, None, None)
        extra = {} if present is None or not self.uses_present else {"present": present}
        labels, valid = self._safe_labels(labels, present)
        if exclude_labels and self.per_example:
            return self._draw(table, hidden, num_sampled, labels, None, **extra)
        found = self._draw(table, hidden, num_sampled, None, labels, **extra)
        true = found.true_log_expected_count
        if true is None:
            return found
        return found._replace(true_log_expected_count=ops.where(valid, true, float("nan")))

    def certain(self, table: Any, hidden: Tensor) -> Tensor | None:
        """Which classes are drawn for certain, bool (B, n); None: none."""
        return None

    def arrange(self, hidden: Tensor) -> Tensor | None:
        """The order (B,) in which groups want the examples of hidden (B, d); None: any will do."""
        return None

    def _safe_labels(self, labels: Tensor, present: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Labels as int32, 0 where out of range, and whether they are in range."""
        check_values("labels", labels, self.units, present)
        return safe_ids(labels, self.units)

    def _draw(
        self,
        table: Any,
        hidden: Tensor,
        num_sampled: int,
        excluded: Tensor | None,
        labels: Tensor | None,
    ) -> Samples:
        """As `sample`, with labels (B,) to leave out, or to report the expected count of."""
        raise NotImplementedError

    def log_prob(
        self, table: Any, hidden: Tensor, ids: Tensor | None = None, labels: Tensor | None = None
    ) -> Tensor:
        """log q of `ids` (B, m), or of all n classes (B, n) (float32).

        A sampler whose draws the batch shares takes ids (m,) too, and returns (m,).
        With `labels` (B,), of a per-example sampler: of the distribution over the other classes,
        where the label itself has log q = -inf.
        """
        self._check_built(table)
        if ids is not None:
            check_integers("ids", ids)
            ids = ops.cast(ids, "int32")
        if labels is None or self.share_draws:
            return self._log_prob(table, hidden, ids, None)
        return self._log_prob(table, hidden, ids, self._safe_labels(labels)[0])

    def _log_prob(
        self, table: Any, hidden: Tensor, ids: Tensor | None, excluded: Tensor | None
    ) -> Tensor:
        """As `log_prob`, with labels (B,) to leave out or None."""
        raise NotImplementedError

    def log_prob_pass(self, table: Any, hidden: Tensor) -> Callable[[Tensor], Tensor]:
        """ids (C,) -> log q (B, C) of them for every example, for a pass over all classes."""

        def part(ids: Tensor) -> Tensor:
            shape = (ops.shape(hidden)[0], *ops.shape(ids))
            return self.log_prob(table, hidden, ops.broadcast_to(ids, shape))

        return part

    def log_size(self, hidden: Tensor, num_sampled: int) -> Tensor | float:
        """log(E[count] / q) of `num_sampled` draws for hidden (B, d)."""
        return 0.0 if self.unique else math.log(num_sampled)

    def log_expected_count(
        self,
        table: Any,
        hidden: Tensor,
        num_sampled: int,
        ids: Tensor | None = None,
        labels: Tensor | None = None,
        present: Tensor | None = None,
    ) -> Tensor:
        """log E[times drawn] in `num_sampled` draws; arguments and shape as of `log_prob`.

        `present` is that of `sample`.
        """
        return self.log_prob(table, hidden, ids, labels) + self.log_size(hidden, num_sampled)

    def shared_log_prob(self, table: Any, hidden: Tensor) -> Tensor:
        """log q (n,) of a sampler with `share_draws`: the one that the batch (B, d) shares."""
        return self.log_prob(table, hidden[:1])[0]

    @property
    def follows(self) -> bool:
        """Whether it is to be told of row updates, by `rows_changed`."""
        return type(self).rows_changed is not Sampler.rows_changed

    def followed(self, ids: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Those of the touched ids (U,) that `rows_changed` is told of, and its other arguments.

        Called before the update. Rows of theirs are read twice, at random places of the table. If
        the update is not made, because a gradient is not finite, others than all of `ids` are told
        of all the same: with rows that have not changed.
        """
        return ids, {}

    def rows_changed(self, table: Any, ids: Tensor, old_rows: Tensor, new_rows: Tensor) -> None:
        """Called after a row update with the touched ids (U,) and their rows (U, d).

        On JAX `ids` is padded with n. Where q does not depend on the table nothing is done.
        """

    def is_frozen(self, table: Any) -> bool:
        """Whether training leaves the statistics as they are; draws are new at every step."""
        return not (self.trainable and getattr(table, "trainable", True))

    def refresh(self, table: Any) -> None:
        """Rebuild from the table whatever the sampler keeps of it."""

    def _check_built(self, table: Any, num_sampled: int | None = None) -> None:
        """Build for `table` if no head has done so."""
        if not self.built:
            self.build((table.units, table.kernel.shape[-1]), num_sampled, table)

    def get_build_config(self) -> None:
        """None: the head that holds the sampler builds it, with a table that cannot be saved."""

    def get_config(self) -> dict:
        return {**super().get_config(), **saved_arguments(self)}


def check_width(table: Any, hidden: Tensor) -> None:
    """Raise a ValueError unless hidden (B, d) can be compared with the rows of the table (n, d)."""
    width = table.kernel.shape[-1]
    if hidden.shape[-1] != width:
        raise ValueError(
            f"A sampler that follows the class table needs `hidden` of its width, {width}, or "
            f"`sampler_inputs` of that width. Received shape: {tuple(hidden.shape)}"
        )


def all_ids(units: int, hidden: Tensor) -> Tensor:
    """All class ids for every example, (B, n)."""
    row = ops.expand_dims(ops.arange(units, dtype="int32"), 0)
    return ops.repeat(row, ops.shape(hidden)[0], axis=0)


def log_mean(log_p: Tensor) -> Tensor:
    """log of the mean (K,) over the batch of p, from log p (B, K)."""
    batch = ops.cast(ops.shape(log_p)[0], "float32")
    return ops.logsumexp(log_p, axis=0) - ops.log(batch)

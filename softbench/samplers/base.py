"""What a sampler is: a proposal for every batch, and what it learns while a head trains."""

from typing import Any

import keras
from keras import ops

from softbench.common import Tensor, check_positive
from softbench.groups import of_every_example
from softbench.labels import check_integers, check_values, safe_ids
from softbench.samplers.proposal import Proposal, Samples
from softbench.state import Arguments, SavedGenerators, saved_arguments
from softbench.targets import Targets


class Sampler(SavedGenerators, keras.layers.Layer):
    """Base class of the samplers.

    A subclass writes `propose`, and `build` if it holds variables; `observe` if it learns from the
    labels or looks at the table every so many steps; `rows_changed` if it follows every row update.
    The proposal's `log_count` must be of the distribution that it draws from.

    Shape letters: B batch, d features, n classes, m samples, R rows of draws, U updated rows.

    Args:
        share_draws: False: m draws for each example (R = B), of classes other than its label. True:
            the batch shares one set of m draws (R = 1). A number G above 1: each of G groups of
            consecutive examples shares a set (R = G), for samplers that can. Shared draws cannot
            exclude each example's label; the head masks the hits.
        seed: of the sampler's `SeedGenerator`.

    Attributes:
        shares_by_groups: whether `share_draws` can be a number of groups.
        depends_on: what q depends on: "input" (the hidden vectors), "labels" (of the batch).
    """

    arguments: Arguments = ("share_draws", "seed")  # that `get_config` gives
    shares_by_groups = False
    depends_on = frozenset({"input"})

    def __init__(
        self, share_draws: bool | int = False, seed: int | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.share_draws = self._checked_groups(share_draws)
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)
        self.num_sampled: int | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        # Keras keeps the arguments of `build`. With the table among them it would be a part of the
        # sampler, frozen with it.
        super().__setattr__(name, None if name == "_build_shapes_dict" else value)

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
    def rows(self) -> int | None:
        """R, the rows of draws for a batch; None where each example has its own."""
        return int(self.share_draws) or None

    @property
    def per_example(self) -> bool:
        """Whether the draws of an example depend on no other example."""
        return self.rows is None

    @property
    def excludes_labels(self) -> bool:
        """Whether draws can leave out the label of their example."""
        return self.rows is None

    def build(self, table_shape: tuple, num_sampled: int | None = None, table: Any = None) -> None:
        """Create the variables for a table of shape (n, d) of which `num_sampled` are drawn.

        A sampler that keeps something of the table itself is built with `table`.
        """
        self.units = table_shape[0]
        self.num_sampled = num_sampled

    def propose(
        self,
        table: Any,
        hidden: Tensor,
        exclude: Tensor | None = None,
        targets: Targets | None = None,
    ) -> Proposal:
        """The proposal for a batch.

        Args:
            table: the head's table.
            hidden: (B, d).
            exclude: int32 (B,), a class that each example's draws leave out, where
                `excludes_labels`; or None.
            targets: the labels of the batch, for draws that are made of them.
        """
        raise NotImplementedError

    def observe(self, table: Any, targets: Targets) -> None:
        """Called once in each training step that may change statistics, before the proposal.

        `targets` has the step's labels and weights: an example of weight 0 is not there.
        """

    def remember(self, targets: Targets) -> None:
        """Called after the draws of each training step that calls `observe`, with its `targets`.

        For what the draws of later steps are made of, and this step's must not be.
        """

    def sample(
        self,
        table: Any,
        hidden: Tensor,
        num_sampled: int,
        labels: Tensor | None = None,
        exclude_labels: bool = True,
    ) -> Samples | list[Samples]:
        """Draw classes, with their log expected counts. It changes no statistics: see `observe`.

        Args:
            table: the head's table.
            hidden: (B, d).
            num_sampled: m.
            labels: integers (B,) or None. With labels, draws of single examples are of the other
                classes; `exclude_labels=False` makes them of all n, with the log
                expected count. Without labels they are of all n.

        Returns:
            `Samples`; a list of them where components of the draws have different numbers of rows.
            In a compiled step, the expected count of a label out of range is NaN.

        Raises:
            ValueError: if labels are not integers or, where they can be seen, not in [0, n).
        """
        self._check_built(table, num_sampled)
        exclude: Tensor | None = None
        true: Tensor | None = None
        targets: Targets | None = None
        if labels is not None:
            check_values("labels", labels, self.units)
            safe, valid = safe_ids(labels, self.units)
            targets = Targets(safe)
            if exclude_labels and self.excludes_labels:
                exclude = safe
            else:
                true = ops.expand_dims(safe, -1)
        proposal = self.propose(table, hidden, exclude, targets)
        components = proposal.samples(num_sampled, self.seed_generator, true)
        if true is not None:
            count: Any = components[0].true_log_expected_count
            count = ops.where(valid, count[:, 0], float("nan"))
            components = [
                component._replace(true_log_expected_count=count) for component in components
            ]
        return components[0] if len(components) == 1 else components

    def log_prob(
        self, table: Any, hidden: Tensor, ids: Tensor | None = None, labels: Tensor | None = None
    ) -> Tensor:
        """log q float32 (B, N) of `ids` (B, N), or of all n classes (B, n).

        It is normalised over all classes; of draws without replacement it is the log inclusion
        probability. With `labels` (B,), of a sampler whose draws exclude them: of the distribution
        over the other classes, where the label itself has log q = -inf.
        """
        self._check_built(table)
        exclude = None
        if labels is not None:
            check_values("labels", labels, self.units)
            exclude = safe_ids(labels, self.units)[0] if self.excludes_labels else None
        proposal, size = self.propose(table, hidden, exclude), self.num_sampled or 1
        if ids is None:
            log_count = of_every_example(proposal.log_count_all(size), hidden)
        else:
            check_integers("ids", ids)
            log_count = proposal.log_count_for(ops.cast(ids, "int32"), size)
        return log_count - proposal.log_scale(size)

    def arrange(self, hidden: Tensor) -> Tensor | None:
        """The order (B,) in which groups want the examples of hidden (B, d); None: any will do."""
        return None

    def index(self) -> Any:
        """What names the best classes for `head.top_k(approximate=True)`; None: nothing."""
        return None

    @property
    def input_width(self) -> int | None:
        """Features of its input where that is not the hidden vector, else None."""
        return None

    @property
    def tracks_rows(self) -> bool:
        """Whether it is to be told of row updates, by `rows_changed`."""
        return type(self).rows_changed is not Sampler.rows_changed

    def tracked_ids(self, ids: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Those of the touched ids (U,) that `rows_changed` is told of, and its other arguments.

        Called before the update. Their rows are read twice, at random positions of the table. If
        the update is not made, because a gradient is not finite, others than all of `ids` are told
        of all the same: with rows that have not changed.
        """
        return ids, {}

    def rows_changed(self, table: Any, ids: Tensor, old_rows: Tensor, new_rows: Tensor) -> None:
        """Called after a row update with the touched ids (U,) and their rows (U, d).

        On JAX `ids` is padded with n. Where q does not depend on the table nothing is done.
        """

    def refresh(self, table: Any) -> None:
        """Rebuild from the table whatever the sampler keeps of it."""

    def _check_built(self, table: Any, num_sampled: int | None = None) -> None:
        """Build for `table` if no head has done so."""
        if not self.built:
            self.build((table.units, table.width), num_sampled, table)

    def get_build_config(self) -> None:
        """None: the head that holds the sampler builds it, with a table that cannot be saved."""

    def get_config(self) -> dict:
        return {**super().get_config(), **saved_arguments(self)}


def check_width(table: Any, hidden: Tensor) -> None:
    """Raise a ValueError unless hidden (B, d) can be compared with the rows of the table (n, d)."""
    width = table.width
    if hidden.shape[-1] != width:
        raise ValueError(
            f"A sampler that follows the class table needs `hidden` of its width, {width}, or "
            f"`sampler_inputs` of that width. Received shape: {tuple(hidden.shape)}"
        )


def log_mean(log_p: Tensor) -> Tensor:
    """log of the mean (K,) over the batch of p, from log p (B, K)."""
    batch = ops.cast(ops.shape(log_p)[0], "float32")
    return ops.logsumexp(log_p, axis=0) - ops.log(batch)

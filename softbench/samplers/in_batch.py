"""In-batch negatives: the other examples' labels."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from softbench.common import PACKAGE, Tensor, check_counts, check_length
from softbench.ops import gather_rows, random_uniform, read, scatter_add
from softbench.samplers.base import Sampler
from softbench.samplers.proposal import Proposal
from softbench.state import add_constant, add_state, check_one_replica
from softbench.targets import Targets


class InBatchProposal(Proposal):
    """The labels at up to m positions of a batch: E[count_i] = k (B - 1) / B p_i, k = min(m, B).

    Args:
        sampler: a built `InBatch`.
        batch: the number of hidden vectors.
        targets: whose labels are drawn; None to ask for counts alone.
    """

    def __init__(self, sampler: Any, batch: int | Tensor, targets: Targets | None) -> None:
        super().__init__(sampler.units, 1, batch)
        self.sampler, self.targets = sampler, targets

    def draw(self, num_sampled: int, seed: Any) -> tuple[Tensor, Tensor]:
        if self.targets is None:
            raise ValueError("`labels` must be given: they are the negatives. Received: None")
        labels, present = self.targets.labels, self.targets.present()
        keys = random_uniform(ops.shape(labels), seed.next())
        chosen = ops.argsort(ops.where(present, keys, 2.0))[:num_sampled]
        ids = ops.take(labels, chosen, axis=0)
        log_count = self.sampler.log_frequency(ids) + self.log_total(num_sampled)
        log_count = ops.where(ops.take(present, chosen), log_count, -float("inf"))
        return ids[None], log_count[None]

    def log_count(self, ids: Tensor, num_sampled: int) -> Tensor:
        return self.sampler.log_frequency(ids) + self.log_total(num_sampled)

    def log_total(self, num_sampled: int) -> Tensor:
        batch = ops.cast(self.batch, "float32")
        if self.targets is not None:
            batch = ops.maximum(ops.sum(ops.cast(self.targets.present(), "float32")), 1.0)
        size = ops.minimum(batch, float(num_sampled))
        # A batch of one has no others: its only draw is masked, whatever its count.
        return ops.log(size * ops.maximum(batch - 1.0, 1.0) / batch)


@keras.saving.register_keras_serializable(PACKAGE)
class InBatch(Sampler):
    """The labels of up to m examples of the batch, shared by all; q is the distribution of labels.

    Of the k = min(m, B) chosen positions, (B - 1) / B * k are expected to be another example's, and
    each holds class i with probability p_i: E[count_i] = k (B - 1) / B * p_i (the correction of
    Yi et al. 2019 with its constant kept). The head masks an example's own label. Examples of
    weight 0 are not of the batch: B is the number of the others, which are chosen first, and draws
    beyond these have log E[count] = -inf.

    Args:
        counts: class counts that give p. None estimates p from the labels seen in
            training so far: p_i = (seen_i + smoothing) / (all seen + n * smoothing).
        smoothing: pseudo-count of every class in that estimate.
    """

    depends_on = frozenset({"labels"})
    arguments = ("counts", "smoothing")

    def __init__(
        self,
        counts: Sequence[float] | None = None,
        smoothing: float = 1.0,
        share_draws: bool = True,
        **kwargs: Any,
    ) -> None:
        if share_draws is not True:
            raise ValueError(
                "`share_draws` must be True: in-batch negatives are shared by the batch. "
                f"Received: share_draws={share_draws!r}"
            )
        super().__init__(share_draws=True, **kwargs)
        if counts is None and not smoothing > 0:
            raise ValueError(f"`smoothing` must be positive. Received: smoothing={smoothing}")
        self.counts = None if counts is None else check_counts(counts)
        self.smoothing = smoothing

    def build(self, table_shape: tuple, num_sampled: int | None = None, table: Any = None) -> None:
        super().build(table_shape, num_sampled, table)
        if self.counts is None:
            # Integers: a float32 stops counting at 2^24.
            self.seen = add_state(self, "seen", (self.units,), dtype="int32", per_class=True)
            self.seen_total = add_state(self, "seen_total", dtype="int32")
        else:
            check_length(self.counts, self.units)
            with np.errstate(divide="ignore"):
                log_p = np.log(self.counts) - np.log(self.counts.max())  # their sum may overflow
            log_p = log_p - np.log(np.exp(log_p).sum())
            self.log_p = add_constant(self, "log_p", log_p, per_class=True)

    def log_frequency(self, ids: Tensor) -> Tensor:
        """log p of ids of any shape."""
        if self.counts is not None:
            return gather_rows(self.log_p, ids)
        seen = ops.cast(gather_rows(self.seen, ids), "float32") + self.smoothing
        total = ops.cast(read(self.seen_total), "float32") + self.smoothing * self.units
        return ops.log(seen / total)

    def observe(self, table: Any, targets: Targets) -> None:
        if self.counts is not None:
            return
        check_one_replica("in_batch", "Give its class counts as `counts`.")
        ones = ops.cast(targets.present(), "int32")
        scatter_add(self.seen, targets.labels, ones)
        self.seen_total.assign_add(ops.sum(ones))

    def propose(self, table, hidden, exclude=None, targets=None):
        return InBatchProposal(self, ops.shape(hidden)[0], targets)

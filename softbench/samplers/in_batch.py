"""In-batch negatives: the other examples' labels."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from softbench.common import PACKAGE, Tensor, check_counts, check_length
from softbench.ops import gather_rows, read, scatter_add
from softbench.samplers.base import Sampler, Samples, all_ids
from softbench.state import add_constant, add_state, check_one_replica


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

    kind = "batch"
    uses_present = True
    arguments = ("counts", "smoothing")

    def __init__(
        self, counts: Sequence[float] | None = None, smoothing: float = 1.0, **kwargs: Any
    ) -> None:
        share_draws = kwargs.pop("share_draws", True)
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

    def _log_p(self, ids: Tensor) -> Tensor:
        if self.counts is not None:
            return gather_rows(self.log_p, ids)
        seen = ops.cast(gather_rows(self.seen, ids), "float32") + self.smoothing
        total = ops.cast(read(self.seen_total), "float32") + self.smoothing * self.units
        return ops.log(seen / total)

    def _draw(self, table, hidden, num_sampled, excluded, labels, present=None):
        if labels is None:
            raise ValueError("`labels` must be given: they are the negatives. Received: None")
        batch = ops.shape(labels)[0]
        keys = keras.random.uniform((batch,), seed=self.seed_generator)
        present = ops.ones_like(labels, dtype="bool") if present is None else present
        chosen = ops.argsort(ops.where(present, keys, 2.0))[:num_sampled]
        ids = ops.take(labels, chosen, axis=0)
        if self.counts is None and not self.is_frozen(table):
            check_one_replica("in_batch", "Give its class counts as `counts`.")
            ones = ops.cast(present, "int32")
            scatter_add(self.seen, labels, ones)
            self.seen_total.assign_add(ops.sum(ones))
        log_size = self.log_size(labels, num_sampled, present)
        count = ops.where(ops.take(present, chosen), self._log_p(ids) + log_size, -float("inf"))
        return Samples(ids, count, self._log_p(labels) + log_size)

    def log_size(self, hidden: Tensor, num_sampled: int, present: Tensor | None = None) -> Tensor:
        if present is None:
            batch = ops.cast(ops.shape(hidden)[0], "float32")
        else:
            batch = ops.maximum(ops.sum(ops.cast(present, "float32")), 1.0)
        size = ops.minimum(batch, float(num_sampled))
        # A batch of one has no others: its only draw is masked, whatever its count.
        return ops.log(size * ops.maximum(batch - 1.0, 1.0) / batch)

    def log_expected_count(self, table, hidden, num_sampled, ids=None, labels=None, present=None):
        log_q = self.log_prob(table, hidden, ids, labels)
        return log_q + self.log_size(hidden, num_sampled, present)

    def _log_prob(self, table, hidden, ids, excluded):
        return self._log_p(all_ids(self.units, hidden) if ids is None else ids)

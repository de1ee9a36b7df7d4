"""In-batch negatives: the other examples' labels."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from softbench.common import PACKAGE, Tensor, check_counts, check_length, check_positive
from softbench.ops import gather_rows, random_uniform, read, scatter_add
from softbench.samplers.base import Sampler
from softbench.samplers.proposal import Component, Proposal
from softbench.state import add_constant, add_state, check_one_replica
from softbench.targets import Targets

_EMPTY = -1  # a position of the memory that no label has come to yet


class InBatchProposal(Proposal):
    """The labels at up to m positions of a batch, and those of earlier examples.

    E[count_i] = (k (B - 1) / B + M) p_i, k = min(m, B), M labels of earlier examples.

    Args:
        sampler: a built `InBatch`.
        batch: the number of hidden vectors.
        targets: whose labels are drawn; None to ask for counts alone.
    """

    def __init__(self, sampler: Any, batch: int | Tensor, targets: Targets | None) -> None:
        super().__init__(sampler.units, 1, batch)
        self.sampler, self.targets = sampler, targets
        self.recent = read(sampler.recent) if sampler.memory else None

    def draw(self, num_sampled: int, seed: Any) -> tuple[Tensor, Tensor]:
        if self.targets is None:
            raise ValueError("`labels` must be given: they are the negatives. Received: None")
        labels, present = self.targets.labels, self.targets.present()
        keys = random_uniform(ops.shape(labels), seed.next())
        chosen = ops.argsort(ops.where(present, keys, 2.0))[:num_sampled]
        ids = ops.take(labels, chosen, axis=0)
        log_count = self.sampler.log_frequency(ids) + self.log_total(num_sampled)
        log_count = ops.where(ops.take(present, chosen), log_count, -float("inf"))
        if self.recent is not None:
            exists = self.recent >= 0
            # An empty position looks up a row that is looked up anyway.
            earlier = ops.where(exists, self.recent, labels[0])
            count = self.log_count(earlier, num_sampled)
            ids = ops.concatenate([ids, earlier])
            log_count = ops.concatenate([log_count, ops.where(exists, count, -float("inf"))])
        return ids[None], log_count[None]

    def log_count(self, ids: Tensor, num_sampled: int) -> Tensor:
        return self.sampler.log_frequency(ids) + self.log_total(num_sampled)

    def log_total(self, num_sampled: int) -> Tensor:
        batch = ops.cast(self.batch, "float32")
        if self.targets is not None:
            batch = ops.maximum(ops.sum(ops.cast(self.targets.present(), "float32")), 1.0)
        size = ops.minimum(batch, float(num_sampled))
        total = size * (batch - 1.0) / batch
        if self.recent is not None:
            total = total + ops.sum(ops.cast(self.recent >= 0, "float32"))
        # A batch of one has no others: its only draw is masked, whatever its count.
        return ops.log(ops.where(total > 0, total, size / batch))

    def components(self, num_sampled: int) -> list[Component]:
        size = num_sampled + self.sampler.memory
        return [Component(self.rows, self.log_count_all(num_sampled), size)]


@keras.saving.register_keras_serializable(PACKAGE)
class InBatch(Sampler):
    """The labels of up to m examples of the batch, shared by all; q is the distribution of labels.

    Of the k = min(m, B) chosen positions, (B - 1) / B * k are expected to be another example's, and
    each holds class i with probability p_i: E[count_i] = k (B - 1) / B * p_i (the correction of
    Yi et al. 2019 with its constant kept). The head masks an example's own label. Examples of
    weight 0 are not of the batch: B is the number of the others, which are chosen first, and draws
    beyond these have log E[count] = -inf.

    With a `memory` the labels of the last M examples before the batch that counted are negatives
    too, all of them, in addition to the m of the batch. None of these is an example of the batch,
    so E[count_i] = (k (B - 1) / B + M) p_i, M the number of labels in the memory, which is empty at
    first. This is exact given the sizes k, B and M, for labels that are independent draws of p; it
    is not conditioned on the labels, given which the negatives would be certain. (Within a pass
    over shuffled data labels are drawn without replacement, and what the memory holds is a little
    rarer in the batch.) The memory changes in training steps alone, and is saved with the weights.

    Args:
        counts: class counts that give p. None estimates p from the labels seen in
            training so far: p_i = (seen_i + smoothing) / (all seen + n * smoothing).
        smoothing: pseudo-count of every class in that estimate.
        memory: M, the number of earlier examples whose labels are negatives too.
    """

    depends_on = frozenset({"labels"})
    arguments = ("counts", "smoothing", "memory")

    def __init__(
        self,
        counts: Sequence[float] | None = None,
        smoothing: float = 1.0,
        memory: int = 0,
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
        if memory != 0:
            check_positive(memory=memory)
        self.memory = int(memory)

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
        if self.memory:
            empty = keras.initializers.Constant(_EMPTY)
            self.recent = add_state(self, "recent", (self.memory,), empty, dtype="int32")

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

    def remember(self, targets: Targets) -> None:
        if not self.memory:
            return
        check_one_replica("in_batch", "Leave out its `memory`.")
        self.recent.assign(_latest(read(self.recent), targets.labels, targets.present()))

    def propose(self, table, hidden, exclude=None, targets=None):
        return InBatchProposal(self, ops.shape(hidden)[0], targets)


def _latest(memory: Tensor, labels: Tensor, present: Tensor) -> Tensor:
    """The last M of the labels in `memory` (M,) and of those of `labels` (B,) that are present.

    They are at its end, in their order; positions before them are empty.
    """
    size = memory.shape[0]
    every = ops.concatenate([memory, labels])
    exists = ops.concatenate([memory >= 0, present])
    number = ops.cumsum(ops.cast(exists, "int32"))
    position = size - 1 - (number[-1] - number)
    kept = ops.logical_and(exists, position >= 0)
    position = ops.where(kept, position, size)  # one more, which is cut off
    moved = ops.scatter(position[:, None], every - _EMPTY, (size + 1,))
    return moved[:size] + _EMPTY

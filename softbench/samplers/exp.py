"""The softmax itself as proposal: the exact, O(n d) reference of the adaptive samplers."""

from typing import Any

import keras
from keras import ops

from softbench.common import PACKAGE, Tensor
from softbench.ops import READ_COPIES
from softbench.samplers.base import Sampler, check_width, log_mean
from softbench.samplers.proposal import Independent
from softbench.samplers.sum_tree import descend, partial_sums, take_entries

CHUNK = 8192  # classes scored at once, see `all_scores`
LARGEST_SCORES = 2**24  # held at once for the mixture of a batch


class ExpProposal(Independent):
    """The softmax of every example, without the label where it is excluded."""

    def __init__(self, table: Any, hidden: Tensor, exclude: Tensor | None) -> None:
        super().__init__(table.units, None, ops.shape(hidden)[0])
        self.scores = scores_without(table, hidden, exclude)
        self.masses, self.peak = shifted_masses(self.scores)

    def draw_with_log_q(self, num_sampled: int, seed: Any) -> tuple[Tensor, Tensor]:
        levels = partial_sums(self.masses)
        rest = ops.log(_or_one(ops.sum(levels[0], axis=-1)))
        ids = descend(levels, self.units, num_sampled, seed)
        return ids, (take_entries(self.scores, ids) - self.peak) - rest

    def _log_softmax(self, scores: Tensor) -> Tensor:
        # From the peak first: the logarithm of Z has only as many digits as the largest score.
        rest = ops.log(_or_one(ops.sum(self.masses, axis=-1, keepdims=True)))
        return (scores - self.peak) - rest

    def log_q(self, ids: Tensor) -> Tensor:
        return self._log_softmax(take_entries(self.scores, ids))

    def log_q_all(self) -> Tensor:
        return self._log_softmax(self.scores[:, : self.units])


class ExpMixtureProposal(Independent):
    """The mean of the softmax of all examples: q_bar(i) = 1/B sum_b q(i | h_b).

    It is computed a slice of the batch at a time, see `LARGEST_SCORES`.
    """

    def __init__(self, table: Any, hidden: Tensor) -> None:
        super().__init__(table.units, 1, ops.shape(hidden)[0])
        self.table, self.hidden = table, hidden
        mixture, log_z = 0.0, []
        for slice_ in self._slices():
            masses, peak = shifted_masses(scores_without(table, slice_, None))
            total = ops.sum(masses, axis=-1, keepdims=True)
            mixture = mixture + ops.matmul(ops.transpose(1.0 / total), masses)
            log_z.append(peak + ops.log(_or_one(total)))
        self.mixture = mixture
        self.log_z = log_z[0] if len(log_z) == 1 else ops.concatenate(log_z, axis=0)

    def _slices(self) -> list[Tensor]:
        """The batch in pieces that have not many more than `LARGEST_SCORES` scores."""
        size = max(1, LARGEST_SCORES // self.units)
        starts = range(0, self.hidden.shape[0] or 1, size)  # one piece where B is not fixed
        if len(starts) == 1:
            return [self.hidden]
        return [self.hidden[start : start + size] for start in starts]

    def draw_with_log_q(self, num_sampled: int, seed: Any) -> tuple[Tensor, Tensor]:
        ids = descend(partial_sums(self.mixture), self.units, num_sampled, seed)
        return ids, self.log_q(ids)

    def log_q(self, ids: Tensor) -> Tensor:
        return log_mean(self.table.scores(self.hidden, ids) - self.log_z)[None]

    def log_q_all(self) -> Tensor:
        sums = []
        for slice_ in self._slices():
            scores = scores_without(self.table, slice_, None)
            masses, peak = shifted_masses(scores)
            rest = ops.log(_or_one(ops.sum(masses, axis=-1, keepdims=True)))
            log_q = (scores[:, : self.units] - peak) - rest
            sums.append(ops.logsumexp(log_q, axis=0))
        total = sums[0] if len(sums) == 1 else ops.logsumexp(ops.stack(sums), axis=0)
        return (total - ops.log(ops.cast(self.batch, "float32")))[None]


@keras.saving.register_keras_serializable(PACKAGE)
class Exp(Sampler):
    """q(i | h) proportional to exp(score(h, i)).

    The only proposal whose sampled-softmax gradient is unbiased (Bengio & Senecal 2008; Rawat et
    al. 2019, Theorem 1). It needs all n scores: O(B n d).

    With `share_draws` the batch shares m draws from the mixture q_bar(i) = 1/B sum_b q(i | h_b),
    corrected with log q_bar.
    """

    def propose(self, table, hidden, exclude=None, targets=None):
        check_width(table, hidden)
        hidden = ops.stop_gradient(hidden)
        if self.rows == 1:
            return ExpMixtureProposal(table, hidden)
        return ExpProposal(table, hidden, exclude)


def scores_without(table: Any, hidden: Tensor, exclude: Tensor | None) -> Tensor:
    """`all_scores`, -inf at the classes `exclude` (B,) if they are given."""
    scores = ops.stop_gradient(all_scores(table, hidden))
    if exclude is None:
        return scores
    index = ops.stack([ops.arange(ops.shape(exclude)[0], dtype="int32"), exclude], axis=-1)
    return ops.scatter_update(scores, index, ops.full_like(scores[:, 0], -float("inf")))


def all_scores(table: Any, hidden: Tensor) -> Tensor:
    """Scores (B, n or more, then -inf), in chunks where reading the whole table copies it."""
    if not READ_COPIES or table.units <= CHUNK:
        return table.scores(hidden)
    steps, last = ops.arange(CHUNK, dtype="int32"), table.units - 1
    starts = ops.arange(-(-table.units // CHUNK), dtype="int32") * CHUNK

    def chunk(start: Tensor) -> Tensor:
        ids = start + steps
        scores = table.scores(hidden, ops.minimum(ids, last)[None])
        return ops.where(ids <= last, scores, -float("inf"))

    scores = ops.transpose(ops.map(chunk, starts), (1, 0, 2))
    return ops.reshape(scores, (ops.shape(hidden)[0], starts.shape[0] * CHUNK))


def shifted_masses(scores: Tensor) -> tuple[Tensor, Tensor]:
    """exp(score - peak) (B, n), and the peak (B, 1) of each row; 0 where there is none."""
    peak = ops.max(scores, axis=-1, keepdims=True)
    peak = ops.where(ops.isfinite(peak), peak, 0.0)
    return ops.exp(scores - peak), peak


def _or_one(total: Tensor) -> Tensor:
    """A total of masses, 1 where there are none."""
    return ops.where(total > 0, total, 1.0)

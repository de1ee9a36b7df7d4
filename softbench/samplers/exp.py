"""The softmax itself as proposal: the exact, O(n d) reference of the adaptive samplers."""

import math
from typing import Any

import keras
from keras import ops

from softbench.common import PACKAGE, Tensor
from softbench.ops import READ_COPIES
from softbench.samplers.base import Sampler, Samples, check_width, log_mean
from softbench.samplers.sum_tree import descend, partial_sums, take_entries

CHUNK = 8192  # classes scored at once, see `_all_scores`
LARGEST_SCORES = 2**24  # held at once for the mixture of a batch


@keras.saving.register_keras_serializable(PACKAGE)
class Exp(Sampler):
    """q(i | h) proportional to exp(score(h, i)).

    The only proposal whose sampled-softmax gradient is unbiased (Bengio & Senecal 2008; Rawat et
    al. 2019, Theorem 1). It needs all n scores: O(B n d).

    With `share_draws` the batch shares m draws from the mixture q_bar(i) = 1/B sum_b q(i | h_b),
    corrected with log q_bar.
    """

    kind = "exact"

    def _scores(self, table: Any, hidden: Tensor, labels: Tensor | None) -> Tensor:
        """`_all_scores`, -inf at the labels if they are given."""
        check_width(table, hidden)
        scores = ops.stop_gradient(self._all_scores(table, hidden))
        if labels is None:
            return scores
        places = ops.stack([ops.arange(ops.shape(labels)[0], dtype="int32"), labels], axis=-1)
        return ops.scatter_update(scores, places, ops.full_like(scores[:, 0], -float("inf")))

    @staticmethod
    def _all_scores(table: Any, hidden: Tensor) -> Tensor:
        """Scores (B, n or more, then -inf), in chunks where reading the whole table copies it."""
        if not READ_COPIES or table.units <= CHUNK:
            return table.scores(hidden)
        steps, last = ops.arange(CHUNK, dtype="int32"), table.units - 1
        starts = ops.arange(-(-table.units // CHUNK), dtype="int32") * CHUNK

        def chunk(start: Tensor) -> Tensor:
            ids = start + steps
            scores = table.scores(hidden, ops.minimum(ids, last))
            return ops.where(ids <= last, scores, -float("inf"))

        found = ops.transpose(ops.map(chunk, starts), (1, 0, 2))
        return ops.reshape(found, (ops.shape(hidden)[0], starts.shape[0] * CHUNK))

    @staticmethod
    def _masses(scores: Tensor) -> tuple[Tensor, Tensor]:
        """exp(score - peak) (B, n), and the peak (B, 1) of each row; 0 where there is none."""
        peak = ops.max(scores, axis=-1, keepdims=True)
        peak = ops.where(ops.isfinite(peak), peak, 0.0)
        return ops.exp(scores - peak), peak

    def _log_softmax(self, table: Any, hidden: Tensor, labels: Tensor | None) -> Tensor:
        """log q (B, n), of the other classes if labels are given; all -inf if there are none."""
        scores = self._scores(table, hidden, labels)
        masses, peak = self._masses(scores)
        # From the peak first: the logarithm of Z has only as many digits as the largest score.
        rest = ops.log(_or_one(ops.sum(masses, axis=-1, keepdims=True)))
        return (scores[:, : table.units] - peak) - rest

    def _parts(self, table: Any, hidden: Tensor) -> list[Tensor]:
        """The batch in parts that have not many more than `LARGEST_SCORES` scores."""
        size = max(1, LARGEST_SCORES // table.units)
        starts = range(0, hidden.shape[0] or 1, size)  # one part where B is not known
        return [hidden[s : s + size] for s in starts] if len(starts) > 1 else [hidden]

    def shared_log_prob(self, table: Any, hidden: Tensor) -> Tensor:
        """log q_bar (n,)."""
        parts = self._parts(table, hidden)
        sums = [ops.logsumexp(self._log_softmax(table, h, None), axis=0) for h in parts]
        total = sums[0] if len(sums) == 1 else ops.logsumexp(ops.stack(sums), axis=0)
        return total - ops.log(ops.cast(ops.shape(hidden)[0], "float32"))

    def _sample_shared(self, table: Any, hidden: Tensor, num_sampled: int) -> tuple:
        """Ids (m,) of the mixture, and log sum_i exp(score_i) (B, 1)."""
        mixture, log_z = 0.0, []
        for part in self._parts(table, hidden):
            masses, peak = self._masses(self._scores(table, part, None))
            total = ops.sum(masses, axis=-1, keepdims=True)
            mixture = mixture + ops.matmul(ops.transpose(1.0 / total), masses)
            log_z.append(_log_total(peak, total))
        ids = descend(partial_sums(mixture), table.units, num_sampled, self.seed_generator)[0]
        return ids, log_z[0] if len(log_z) == 1 else ops.concatenate(log_z, axis=0)

    def _log_mixture(self, table: Any, hidden: Tensor, log_z: Tensor, ids: Tensor) -> Tensor:
        """log q_bar (K,) of ids (K,)."""
        return log_mean(ops.stop_gradient(table.scores(hidden, ids)) - log_z)

    def _draw(self, table, hidden, num_sampled, excluded, labels):
        hidden = ops.stop_gradient(hidden)
        log_size, true = math.log(num_sampled), None
        if self.share_draws:
            ids, log_z = self._sample_shared(table, hidden, num_sampled)
            if labels is not None:
                true = self._log_mixture(table, hidden, log_z, labels) + log_size
            return Samples(ids, self._log_mixture(table, hidden, log_z, ids) + log_size, true)
        scores = self._scores(table, hidden, excluded)
        masses, peak = self._masses(scores)
        levels = partial_sums(masses)
        rest = ops.log(_or_one(ops.sum(levels[0], axis=-1)))
        ids = descend(levels, table.units, num_sampled, self.seed_generator)
        if labels is not None:
            own = take_entries(scores, labels[:, None]) - peak
            true = (own - rest)[:, 0] + log_size
        return Samples(ids, (take_entries(scores, ids) - peak) - rest + log_size, true)

    def _log_prob(self, table, hidden, ids, excluded):
        if self.share_draws:
            log_q = self.shared_log_prob(table, hidden)
            if ids is not None:
                return ops.take(log_q, ids, axis=0)
            return ops.broadcast_to(log_q[None], (ops.shape(hidden)[0], table.units))
        log_q = self._log_softmax(table, hidden, excluded)
        return log_q if ids is None else ops.take_along_axis(log_q, ids, axis=-1)


def _log_total(peak: Tensor, total: Tensor) -> Tensor:
    """log sum_i exp(score_i) from the peak and the sum of exp(score - peak); 0 without classes."""
    return peak + ops.log(_or_one(total))


def _or_one(total: Tensor) -> Tensor:
    """A total of masses, 1 where there are none."""
    return ops.where(total > 0, total, 1.0)

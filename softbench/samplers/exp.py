"""The softmax itself as proposal: the exact, O(n d) reference of the adaptive samplers."""

import math
from typing import Any

import keras
from keras import ops

from softbench.rows import PACKAGE
from softbench.samplers.base import Sampler, Samples
from softbench.samplers.sum_tree import draw

Tensor = Any

LARGEST_SCORES = 2**24  # held at once for the mixture of a batch


@keras.saving.register_keras_serializable(PACKAGE)
class Exp(Sampler):
    """q(i | h) proportional to exp(score(h, i)).

    The only proposal whose sampled-softmax gradient is unbiased (Bengio & Senecal 2008; Rawat et
    al. 2019, Theorem 1). It needs all n scores: O(B n d).

    With `share_draws` the batch shares m draws from the mixture q_bar(i) = 1/B sum_b q(i | h_b),
    corrected with log q_bar.
    """

    def _log_softmax(self, table: Any, hidden: Tensor, labels: Tensor | None) -> Tensor:
        """log q (B, n), of the other classes if labels are given; all -inf if there are none."""
        scores = ops.stop_gradient(table.scores(hidden))
        if labels is not None:
            ids = ops.arange(table.units, dtype="int32")
            excluded = ops.equal(ops.expand_dims(ops.cast(labels, "int32"), -1), ids)
            scores = ops.where(excluded, -float("inf"), scores)
        peak = ops.max(scores, axis=-1, keepdims=True)
        peak = ops.where(ops.isfinite(peak), peak, 0.0)
        total = ops.sum(ops.exp(scores - peak), axis=-1, keepdims=True)
        return scores - peak - ops.log(ops.where(total > 0, total, 1.0))

    def shared_log_prob(self, table, hidden):
        """log q_bar (n,), never holding many more than `LARGEST_SCORES` scores."""
        size = max(1, LARGEST_SCORES // table.units)
        starts = range(0, hidden.shape[0] or 1, size)  # one part where B is not known
        parts = [hidden[s : s + size] for s in starts] if len(starts) > 1 else [hidden]
        sums = [ops.logsumexp(self._log_softmax(table, h, None), axis=0) for h in parts]
        total = sums[0] if len(sums) == 1 else ops.logsumexp(ops.stack(sums), axis=0)
        return total - ops.log(ops.cast(ops.shape(hidden)[0], "float32"))

    def sample(self, table, hidden, num_sampled, labels=None, exclude_labels=True):
        self._check_built(table)
        hidden = ops.stop_gradient(hidden)
        log_size = math.log(num_sampled)
        if self.share_draws:
            log_q = self.shared_log_prob(table, hidden)
            ids = draw(ops.exp(log_q)[None], num_sampled, self.seed_generator)[0]
            true = None if labels is None else ops.take(log_q, labels, axis=0) + log_size
            return Samples(ids, ops.take(log_q, ids, axis=0) + log_size, true)
        excluded = labels if exclude_labels else None
        log_q = self._log_softmax(table, hidden, excluded)
        ids = draw(ops.exp(log_q), num_sampled, self.seed_generator)
        true = None
        if labels is not None and not exclude_labels:
            column = ops.expand_dims(ops.cast(labels, "int32"), -1)
            true = ops.take_along_axis(log_q, column, axis=-1)[:, 0] + log_size
        return Samples(ids, ops.take_along_axis(log_q, ids, axis=-1) + log_size, true)

    def log_prob(self, table, hidden, ids=None, labels=None):
        self._check_built(table)
        if self.share_draws:
            log_q = self.shared_log_prob(table, hidden)
            if ids is not None:
                return ops.take(log_q, ids, axis=0)
            return ops.broadcast_to(log_q[None], (ops.shape(hidden)[0], table.units))
        log_q = self._log_softmax(table, hidden, labels)
        return log_q if ids is None else ops.take_along_axis(log_q, ids, axis=-1)

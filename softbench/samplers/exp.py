"""The softmax itself as proposal: the exact, O(n d) reference of the adaptive samplers."""

import math
from typing import Any

import keras
from keras import ops

from softbench.rows import PACKAGE
from softbench.samplers.base import Sampler, Samples
from softbench.samplers.sum_tree import draw

Tensor = Any


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

    def _log_mixture(self, table: Any, hidden: Tensor) -> Tensor:
        """log q_bar (n,)."""
        log_q = self._log_softmax(table, hidden, None)
        batch = ops.cast(ops.shape(hidden)[0], "float32")
        return ops.logsumexp(log_q, axis=0) - ops.log(batch)

    def sample(self, table, hidden, num_sampled, labels=None, exclude_labels=True):
        self._check_built(table)
        hidden = ops.stop_gradient(hidden)
        log_size = math.log(num_sampled)
        if self.share_draws:
            log_q = self._log_mixture(table, hidden)
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
            log_q = ops.broadcast_to(
                self._log_mixture(table, hidden)[None], (ops.shape(hidden)[0], table.units)
            )
        else:
            log_q = self._log_softmax(table, hidden, labels)
        return log_q if ids is None else ops.take_along_axis(log_q, ids, axis=-1)

"""Perplexity and predictive log-likelihood as Keras metrics."""

from typing import Any

import keras
from keras import ops

from softbench.metrics.mean import WeightedMean


@keras.saving.register_keras_serializable("softbench")
class PredictiveLogLikelihood(WeightedMean):
    """Mean of log p(y|x), from negative log-likelihoods (what `head(h, labels)` returns).

    `update_state(nll, sample_weight=None)`: `nll` of any shape, weights of the same shape or of
    its leading dimensions (0 for padding).
    """

    def __init__(self, name: str = "log_likelihood", dtype: Any = None) -> None:
        super().__init__(name, dtype)

    def update_state(self, nll: Any, sample_weight: Any = None) -> None:
        self._update_mean(-ops.cast(nll, self.dtype), sample_weight)


@keras.saving.register_keras_serializable("softbench")
class Perplexity(WeightedMean):
    """`exp` of the mean negative log-likelihood.

    Like `keras.metrics.Mean`, it takes values, not (y_true, y_pred): a head returns the exact
    negative log-likelihood without ever holding (B, n) scores. For `compile(metrics=[...])` on a
    model that outputs scores, use `ScorePerplexity`.

    `update_state(nll, sample_weight=None)`: as in `PredictiveLogLikelihood`.
    """

    def __init__(self, name: str = "perplexity", dtype: Any = None) -> None:
        super().__init__(name, dtype)

    def update_state(self, nll: Any, sample_weight: Any = None) -> None:
        self._update_mean(nll, sample_weight)

    def result(self) -> Any:
        return ops.where(self._sums[2] > 0, ops.exp(super().result()), 0.0)


@keras.saving.register_keras_serializable("softbench")
class ScorePerplexity(Perplexity):
    """Perplexity of integer labels `(...)` under `log_softmax` of scores `(..., n)`.

    `update_state(y_true, y_pred, sample_weight=None)`, so it works in `compile(metrics=[...])`.
    """

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        scores = ops.cast(y_pred, self.dtype)
        labels = ops.reshape(ops.cast(y_true, "int32"), ops.shape(scores)[:-1])
        own = ops.take_along_axis(scores, labels[..., None], axis=-1)[..., 0]
        self._update_mean(ops.logsumexp(scores, axis=-1) - own, sample_weight)

"""Evaluation on multi-label data: precision@k and the likelihood of every true label.

Shape letters: B batch, N examples, n classes, R label slots, K ranked ids.
"""

import keras
import numpy as np
import scipy.sparse as sp

from softbench import metrics
from softbench.bench.build import Batches
from softbench.datasets import padded_labels


class _Ranking(keras.layers.Layer):
    """hidden (B, d), label ids (B, R) -> the best ids (B, K), -log p of each label (B, R)."""

    def __init__(self, head: keras.layers.Layer, k: int) -> None:
        super().__init__()
        self.head, self.k = head, k
        self.built = True

    def call(self, hidden: object, labels: object) -> tuple:
        scores = self.head.prediction_scores(hidden, labels)
        first = self.head.negative_log_likelihood(hidden, labels[:, 0])
        # log Z once per example: -log p(l) = -log p(first) + score(first) - score(l).
        return self.head.top_k(hidden, self.k)[1], first[:, None] + scores[:, :1] - scores


class _Inputs:
    """Evaluation batches ((ids, weights), labels, mask) as ((ids, weights, padded labels),)."""

    def __init__(self, batches: object, labels: np.ndarray, batch_size: int) -> None:
        self._batches, self._labels, self._size = batches, labels, batch_size

    def __len__(self) -> int:
        return len(self._batches)

    def __getitem__(self, index: int) -> tuple:
        (ids, weights), *_ = self._batches[index]
        part = self._labels[index * self._size : (index + 1) * self._size]
        padded = np.zeros((self._size, part.shape[1]), np.int32)
        padded[: len(part)] = np.maximum(part, 0)
        return ((ids, weights, padded),)


def evaluate_ranking(
    model: keras.Model, batches: object, truth: sp.csr_matrix, ks: tuple[int, ...]
) -> dict[str, float]:
    """Returns precision_at_k for every k, nll and perplexity.

    The likelihood of an example is the mean over its labels, as training draws one uniformly;
    `nll` is the mean over the examples that have labels.

    Args:
        model: a `Classifier`.
        batches: `BagBatches` of a held-out split, rows in order.
        truth: csr (N, n), its labels.
        ks: the k of precision@k.
    """
    labels = padded_labels(truth)
    evaluator = _evaluator(model, labels.shape[1], min(max(ks), truth.shape[1]))
    inputs = Batches(_Inputs(batches, labels, batches.batch_size))
    top_ids, nll = evaluator.predict(inputs, verbose=0)
    present = labels >= 0
    sizes = present.sum(axis=1)
    of_labels = np.where(present, nll[: len(labels)].astype(np.float64), 0.0)
    mean = float((of_labels.sum(axis=1)[sizes > 0] / sizes[sizes > 0]).mean())
    depths = [k for k in ks if k <= truth.shape[1]]
    precision = metrics.precision_at_k(top_ids[: len(labels)], truth, depths)
    scores = {"nll": mean, "perplexity": float(np.exp(mean))}
    return scores | {f"precision_at_{k}": value for k, value in precision.items()}


def _evaluator(model: keras.Model, width: int, k: int) -> keras.Model:
    """Returns the compiled evaluation model, made once for each width of the labels."""
    cache = model.__dict__.setdefault("_ranking_evaluators", {})
    if (width, k) not in cache:
        bag = [keras.Input(i.shape[1:], dtype=i.dtype) for i in model.encoder.inputs]
        labels = keras.Input((width,), dtype="int32")
        outputs = _Ranking(model.head, k)(model.encoder(bag), labels)
        cache[width, k] = keras.Model([*bag, labels], outputs)
    return cache[width, k]

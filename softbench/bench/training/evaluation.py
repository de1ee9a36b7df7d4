"""Evaluation of a trained model, a batch at a time: rankings, likelihood, calibration.

Shape letters: B batch, d features, n classes, R label slots, K ranked ids, T labels of a batch.
"""

from collections.abc import Callable, Iterable
from typing import Any

import keras
import numpy as np
import scipy.sparse as sp

from softbench import metrics
from softbench.datasets import padded_labels
from softbench.datasets.base import Truth
from softbench.targets import Targets

_SLOTS = 64  # labels of a row that are scored at a time


class _FirstLabel(keras.layers.Layer):
    """hidden (..., d), a label of each (...) -> the best ids, log p of the first; score, log Z.

    Leading dimensions are flattened: ids (B, K), and (B,) of what follows. `features` (..., v) are
    the sampler's, where it takes separate inputs. First come hidden and features, flattened, for
    `_MoreLabels`.
    """

    def __init__(self, head: keras.layers.Layer, k: int) -> None:
        super().__init__()
        self.head, self.k = head, k
        self.built = True

    def call(self, hidden: Any, labels: Any, features: Any = None) -> tuple:
        hidden = keras.ops.reshape(hidden, (-1, hidden.shape[-1]))
        labels = keras.ops.reshape(labels, (-1,))
        if features is not None:
            features = keras.ops.reshape(features, (-1, features.shape[-1]))
        side = _side(features)
        score = self.head.prediction_scores(hidden, labels[:, None], **side)[:, 0]
        log_z = self.head.negative_log_likelihood(hidden, Targets(labels), **side) + score
        top_ids = self.head.top_k(hidden, self.k, **_side(features, "sampler_inputs"))[1]
        # Not the score that `top_k` returned: XLA on a CPU then computes all scores twice.
        best = self.head.prediction_scores(hidden, top_ids[:, :1], **side)[:, 0]
        encoded = [hidden] if features is None else [hidden, features]
        return encoded, top_ids, best - log_z, score, log_z


class _MoreLabels(keras.layers.Layer):
    """hidden (B, d), labels (B, R), features (B, v) or None -> scores (B, R)."""

    def __init__(self, head: keras.layers.Layer) -> None:
        super().__init__()
        self.head = head
        self.built = True

    def call(self, hidden: Any, labels: Any, features: Any = None) -> Any:
        return self.head.prediction_scores(hidden, labels, **_side(features))


class Evaluator:
    """Scores batches of a `Classifier`; classes are streamed by the head, rows by the caller.

    Args:
        model: the classifier.
        k: ranked ids, at most n.
    """

    def __init__(self, model: keras.Model, k: int) -> None:
        encoder, head = model.encoder, model.head
        inputs = [keras.Input(batch_shape=i.shape, dtype=i.dtype) for i in encoder.inputs]
        encoded = encoder(inputs if len(inputs) > 1 else inputs[0])
        encoded = encoded if isinstance(encoded, dict) else {"hidden": encoded}
        hidden, features = encoded["hidden"], encoded.get("sampler_inputs")
        labels = keras.Input(batch_shape=hidden.shape[:-1], dtype="int32")
        first = _FirstLabel(head, k)(hidden, labels, features=features)
        self._first = keras.Model([*inputs, labels], first)
        flat = keras.Input((hidden.shape[-1],))
        more = keras.Input((_SLOTS,), dtype="int32")
        side_input = None if features is None else keras.Input((features.shape[-1],))
        encoded = [flat] if side_input is None else [flat, side_input]
        self._more = keras.Model(
            [*encoded, more], _MoreLabels(head)(flat, more, features=side_input)
        )

    def __call__(self, inputs: Any, labels: sp.csr_matrix, shape: tuple) -> tuple:
        """Scores a batch.

        Args:
            inputs: of the encoder.
            labels: csr (B, n), B the product of `shape`.
            shape: leading dimensions of the hidden vectors.

        Returns:
            The best ids (B, K), -log p (T,) of each label in the order of `labels`, and p (B,) of
            the best class.
        """
        padded = padded_labels(labels)
        inputs = list(inputs) if isinstance(inputs, (tuple, list)) else [inputs]
        first = np.maximum(padded[:, 0], 0).reshape(shape)
        encoded, top_ids, best, score, log_z = self._first.predict_on_batch([*inputs, first])
        width = padded.shape[1]
        if width == 1:
            scores = score[:, None]
        else:
            slots = -(-width // _SLOTS) * _SLOTS
            filled = np.maximum(padded_labels(labels, slots), 0)
            chunks = np.split(filled, slots // _SLOTS, axis=1)
            scores = [self._more.predict_on_batch([*encoded, chunk]) for chunk in chunks]
            scores = np.concatenate(scores, axis=1)[:, :width]
        nll = log_z.astype(np.float64)[:, None] - scores
        return top_ids, nll[padded >= 0], np.exp(np.minimum(best.astype(np.float64), 0.0))


def by_frequency(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Classes (n,) by their training counts, and -log p_i of (counts_i + 1) / (sum of counts + n).

    Args:
        counts: (n,) training labels of each class.
    """
    counts = np.asarray(counts, np.float64)
    nll = np.log(counts.sum() + len(counts)) - np.log(counts + 1)
    return np.argsort(-counts, kind="stable"), nll


def most_frequent(counts: np.ndarray, k: int) -> Callable[..., tuple]:
    """Returns what scores batches, as an `Evaluator`, by the class frequencies alone.

    Args:
        counts: of `by_frequency`.
        k: ranked ids, at most n.
    """
    order, nll = by_frequency(counts)
    top = order[:k]

    def scorer(inputs: Any, labels: sp.csr_matrix, shape: tuple) -> tuple:
        rows = labels.shape[0]
        return np.tile(top, (rows, 1)), nll[labels.indices], np.full(rows, np.exp(-nll[top[0]]))

    return scorer


def oracle(truth: Truth, ks: tuple[int, ...], counts: np.ndarray) -> dict[str, float]:
    """Returns nll, perplexity and precision@k of the distribution that the data were drawn from.

    Args:
        truth: of a data set.
        ks: depths; those beyond n are left out.
        counts: (n,) training labels of each class.
    """
    ks = tuple(k for k in ks if k <= len(counts))
    totals = metrics.RankingTotals(ks, counts)
    for p, labels in truth():
        best = np.argpartition(-p, max(ks) - 1, axis=1)[:, : max(ks)]
        order = np.argsort(-np.take_along_axis(p, best, axis=1), axis=1, kind="stable")
        rows = np.repeat(np.arange(len(p)), np.diff(labels.indptr))
        nll = -np.log(p[rows, labels.indices])
        totals.update(np.take_along_axis(best, order, axis=1), labels, nll)
    scores = totals.result()
    names = ("nll", "perplexity", *(f"precision_at_{k}" for k in ks))
    return {name: scores[name] for name in names}


def _evaluator(model: keras.Model, k: int) -> Evaluator:
    """The evaluator of a model, made once for each k."""
    cache = model.__dict__.setdefault("_evaluators", {})
    if k not in cache:
        cache[k] = Evaluator(model, k)
    return cache[k]


def _side(features: Any, name: str = "features") -> dict[str, Any]:
    return {} if features is None else {name: features}


def evaluate(
    model: keras.Model | None,
    batches: Iterable,
    ks: tuple[int, ...],
    counts: np.ndarray,
    inverse_propensity: np.ndarray | None = None,
) -> dict[str, float]:
    """Returns the results of `metrics.RankingTotals`; one batch is held at a time.

    Args:
        model: a `Classifier`, or None for `most_frequent`.
        batches: items (x, labels, mask): labels csr (B, n), or integers (...), one each; mask
            (B,), or (...), 0 where there is no example.
        ks: depths; those beyond n are left out.
        counts: (n,) training labels of each class, for the buckets.
        inverse_propensity: (n,), or None.
    """
    n = len(counts)
    ks = tuple(k for k in ks if k <= n)
    totals = metrics.RankingTotals(ks, counts, inverse_propensity)
    scorer = most_frequent(counts, max(ks)) if model is None else _evaluator(model, max(ks))
    for x, labels, mask in batches:
        shape = mask.shape
        if not sp.issparse(labels):
            flat = np.asarray(labels).reshape(-1)
            ends = np.arange(len(flat) + 1)
            labels = sp.csr_matrix((np.ones(len(flat), np.float32), flat, ends), (len(flat), n))
        top_ids, nll, confidence = scorer(x, labels, shape)
        kept = mask.reshape(-1) > 0
        nll = nll[np.repeat(kept, np.diff(labels.indptr))]
        totals.update(top_ids[kept], labels[kept], nll, confidence[kept])
    return totals.result()

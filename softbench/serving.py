"""The best classes in production: an index of the class table, and a layer to export.

    index = softbench.serving.Index(model.head)  # once, after training
    scores, ids = model.head.top_k(hidden, 10, approximate=index)

For TensorFlow Serving, a model from a row's inputs to {"scores": (B, k), "ids": (B, k)}:

    inputs = keras.Input((length,), dtype="int32", name="tokens")
    best = softbench.serving.TopK(model.head, 10, approximate=index)
    keras.Model(inputs, best(model.encoder(inputs))).export("folder/1")

For an index of another library, `head.index_vectors()` is its data and `head.index_queries(hidden)`
are its queries, with the inner product as the measure: with FAISS,

    vectors = head.index_vectors()
    index = faiss.IndexHNSWFlat(vectors.shape[1], 32, faiss.METRIC_INNER_PRODUCT)
    index.add(vectors)
    scores, ids = index.search(np.asarray(head.index_queries(hidden)), 10)

and with ScaNN `scann.scann_ops_pybind.builder(vectors, 10, "dot_product")`.
"""

import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from softbench.common import Tensor, check_counts, check_length, check_positive, count_weights
from softbench.heads import retrieval
from softbench.ops import matmul_transposed, read, run
from softbench.samplers.codebook import fit, search
from softbench.samplers.codebook.cells import laid_out
from softbench.samplers.codebook.follow import SMALLEST_WEIGHT
from softbench.state import add_constant


class Index(keras.layers.Layer):
    """An index of a head's classes for `head.top_k(hidden, k, approximate=index)`.

    The vectors of `head.index_vectors()`, biases included, are written as the sum of two codewords
    (an inverted multi-index, Babenko & Lempitsky 2012, on two residual codebooks of K codewords,
    fitted by k-means). A query's cells are ranked by the sum of two inner products; the classes of
    the best cells are scored exactly by the head.

    It is of the table as it is now: make another after more training. It is saved with a model
    that `TopK` exports, and not with `.keras` files: making it takes seconds (n = 1M: about as long
    as two products of the table with 2 K vectors).

    Shape letters: n classes, d features, K codewords.

    Args:
        head: a head with a class table, which has its weights.
        num_codewords: K; with fewer classes, their number. There are K^2 cells; a good K has a few
            classes in a cell.
        counts: of the classes (n,), the weights of the k-means: cells of frequent classes are
            smaller, so that these are missed less. None weighs all alike.
        seed: of the k-means.

    Raises:
        ValueError: if the head has no class table, is not built, or its scores are not inner
            products (see `index_vectors`); if rows are not finite, or counts do not fit.

    Example:
        >>> head = softbench.FullSoftmax(1000)
        >>> hidden = np.ones((2, 8), "float32")
        >>> scores = head(hidden)
        >>> index = softbench.serving.Index(head, num_codewords=8)
        >>> best, ids = head.top_k(hidden, 5, approximate=index, num_candidates=200)
        >>> ids.shape
        (2, 5)
    """

    def __init__(
        self,
        head: Any,
        num_codewords: int = 256,
        counts: Sequence[float] | None = None,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(autocast=False, **kwargs)
        check_positive(num_codewords=num_codewords)
        if not hasattr(head, "index_vectors"):
            raise ValueError(
                "`head` must have a class table: an index is of its rows. "
                f"Received: {type(head).__name__}"
            )
        vectors = head.index_vectors()
        if not np.all(np.isfinite(vectors)):
            raise ValueError(
                "`head` must have finite rows. Received: a table with NaN or infinite entries"
            )
        self.units, self.has_bias = head.units, head.scores_have_bias
        weight = np.ones(self.units)
        if counts is not None:
            counts = check_counts(counts)
            check_length(counts, self.units)
            weight = count_weights(counts, 1.0)
        weight = np.maximum(weight / weight.mean(), SMALLEST_WEIGHT)
        scale = np.ones(vectors.shape[1])
        if self.has_bias:
            scale[-1] = _bias_scale(head.table, vectors.shape[1] - 1)
        found = _fitted(vectors, weight, scale, min(num_codewords, self.units), seed)
        self.first, self.second, self.edges, self.order = (
            add_constant(self, name, ops.convert_to_numpy(value)) for name, value in found.items()
        )
        self.built = True

    def candidates(self, table: Any, hidden: Tensor, size: int, k: int) -> search.Candidates:
        """M = `size` classes of the best cells for hidden (B, d), k of them known for certain."""
        query = retrieval.queries(table, hidden, self.has_bias)
        first, second = (matmul_transposed(query, read(v)) for v in (self.first, self.second))
        offset = ops.zeros((first.shape[1], second.shape[1]))
        return search.candidates(first, second, offset, read(self.edges), read(self.order), size, k)


def _bias_scale(table: Any, width: int) -> float:
    """What biases are multiplied with in the k-means of [row, bias]: it weighs all entries alike.

    An error of the bias is one of the score; an error of another entry is multiplied with one of
    the query, of 1 / (sqrt(d) temperature) if vectors are normalised, else about 1 / temperature.
    """
    return table.temperature * (math.sqrt(width) if table.normalize else 1.0)


def _fitted(
    vectors: np.ndarray, weight: np.ndarray, scale: np.ndarray, size: int, seed: int
) -> dict[str, Tensor]:
    """The weights of an `Index` of vectors (n, d), whose entries the k-means sees times `scale`."""
    units, priority = len(vectors), None
    uniform = keras.random.uniform((2, size, fit.CANDIDATES), seed=seed)
    if units > fit.POINTS * size:
        priority = keras.random.uniform((units,), 1e-6, 1.0, seed=seed)
    points, weights = (ops.convert_to_tensor(x, "float32") for x in (vectors * scale, weight))
    options = {"quantizer": "residual", "normalize": False}
    words, cell, _ = run(fit.fit, points, weights, uniform, priority, **options)
    places = run(laid_out, cell, None, size=size * size)
    found = {"first": words.first / scale, "second": words.second / scale}
    return found | {"edges": places["bounds"], "order": places["order"]}


class TopK(keras.layers.Layer):
    """The k best classes as a layer: hidden (..., d) -> {"scores": (..., k), "ids": (..., k)}.

    For the model that is exported; see `softbench.serving`. It has no config of its own (a `.keras`
    file holds the model it is made from), and no weights but those of the head and of the index.

    Args:
        head: a head that has its weights.
        k, approximate, num_candidates: as in `head.top_k`.

    Example:
        >>> head = softbench.FullSoftmax(20)
        >>> scores = head(np.ones((2, 8), "float32"))
        >>> best = softbench.serving.TopK(head, 3)
        >>> best(np.ones((2, 8), "float32"))["ids"].shape
        (2, 3)
    """

    def __init__(
        self,
        head: Any,
        k: int = 10,
        approximate: Any = False,
        num_candidates: int = retrieval.NUM_CANDIDATES,
        **kwargs: Any,
    ) -> None:
        super().__init__(autocast=False, **kwargs)
        check_positive(k=k, num_candidates=num_candidates)
        if not head.built:
            raise ValueError(
                "`head` must have its weights: train or load it first. Received: a head that is "
                "not built"
            )
        self.head, self.k, self.num_candidates = head, int(k), int(num_candidates)
        self.approximate = approximate
        self.built = True

    def call(self, hidden: Tensor, sampler_inputs: Tensor | None = None) -> dict[str, Tensor]:
        """`sampler_inputs`: for a head that takes them."""
        side = {} if sampler_inputs is None else {"sampler_inputs": sampler_inputs}
        options = {"approximate": self.approximate, "num_candidates": self.num_candidates}
        scores, ids = self.head.top_k(hidden, self.k, **options, **side)
        return {"scores": scores, "ids": ids}

    def compute_output_spec(
        self, hidden: keras.KerasTensor, sampler_inputs: keras.KerasTensor | None = None
    ) -> dict[str, keras.KerasTensor]:
        shape = (*hidden.shape[:-1], self.k)
        return {
            "scores": keras.KerasTensor(shape, "float32"),
            "ids": keras.KerasTensor(shape, "int32"),
        }

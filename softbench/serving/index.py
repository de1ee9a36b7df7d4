"""An index of a head's classes: cells of similar ones, for `head.top_k(..., approximate=index)`."""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from softbench.common import Tensor, check_positive
from softbench.heads import retrieval
from softbench.ops import matmul_transposed, read
from softbench.samplers.codebook import search
from softbench.serving.inverted_lists import InvertedLists, inverted_lists
from softbench.state import add_constant

CLASSES = 32  # in a cell, on average
ABOVE = 2.0  # standard deviations of a cell's scores, by which its best class may exceed its mean


class Index(keras.layers.Layer):
    """Cells of similar classes, by k-means of the vectors of `head.index_vectors()`.

    Cells are small where rows are far apart and large where they are similar (rows that were hardly
    trained), so that every mean tells about as much of its classes. Cells are ranked by the score
    of their mean, biases included, and two standard deviations of their classes' scores for a query
    in no particular direction: one (B, d) x (d, C) product. The classes of the best cells are the
    candidates that `head.top_k(hidden, k, approximate=index)` scores exactly.

    It is of the table as it is now: make another after more training. It is saved with a model
    that `TopK` exports, and not in `.keras` files. Making it takes about as long as a few dozen
    products of the table with 2 sqrt(C) vectors.

    Shape letters: B batch, n classes, d features, C cells.

    Args:
        head: a head with a class table, which has its weights.
        num_cells: C, about; None for n / 32.
        seed: of the k-means.

    Raises:
        ValueError: if the head has no class table, is not built, or its scores are not inner
            products (see `index_vectors`); if rows are not finite.

    Example:
        >>> head = softbench.FullSoftmax(1000)
        >>> hidden = np.ones((2, 8), "float32")
        >>> scores = head(hidden)
        >>> index = softbench.serving.Index(head)
        >>> best, ids = head.top_k(hidden, 5, approximate=index, num_candidates=200)
        >>> tuple(ids.shape)
        (2, 5)
    """

    def __init__(
        self, head: Any, num_cells: int | None = None, seed: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(autocast=False, **kwargs)
        if num_cells is not None:
            check_positive(num_cells=num_cells)
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
        scale = np.ones(vectors.shape[1], "float32")
        if self.has_bias:
            scale[-1] = _bias_scale(head.table, vectors.shape[1] - 1)
        size = num_cells or math.ceil(self.units / CLASSES)
        lists = inverted_lists(vectors * scale, size, seed)
        means = lists.means / scale
        self.means = add_constant(self, "means", means)
        self.spread = add_constant(self, "spread", _spread(vectors, means, lists))
        self.edges = add_constant(self, "edges", lists.edges)
        self.order = add_constant(self, "order", lists.order)
        self.usual = max(1, int(np.median(np.diff(lists.edges))))
        self.built = True

    def candidates(self, table: Any, hidden: Tensor, size: int, k: int) -> search.Candidates:
        """M = `size` classes of the best cells for hidden (B, d), k of them for certain."""
        query = retrieval.queries(table, hidden, self.has_bias)
        length = ops.sqrt(ops.sum(ops.square(query), axis=-1, keepdims=True))
        scores = matmul_transposed(query, read(self.means)) + ABOVE * length * read(self.spread)
        return search.candidates(scores, read(self.edges), read(self.order), size, k, self.usual)


def _spread(vectors: np.ndarray, means: np.ndarray, lists: InvertedLists) -> np.ndarray:
    """The standard deviation of an entry of the vectors (n, d) of each cell: float32 (C,)."""
    sizes = np.diff(lists.edges)
    cell = np.repeat(np.arange(len(sizes)), sizes)
    away = np.square(vectors[lists.order] - means[cell]).mean(-1)
    return np.sqrt(np.bincount(cell, away) / sizes).astype("float32")


def _bias_scale(table: Any, width: int) -> float:
    """What biases are multiplied with in the k-means of [row, bias]: it weighs all entries equally.

    An error of the bias is one of the score; an error of another entry is multiplied with one of
    the query, of 1 / (sqrt(d) temperature) if vectors are normalised, else about 1 / temperature.
    """
    return table.temperature * (math.sqrt(width) if table.normalize else 1.0)

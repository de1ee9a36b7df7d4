"""Heads whose scores come from one class table."""

from typing import Any

import keras
import numpy as np
from keras import ops

from softbench.common import Tensor
from softbench.heads import retrieval
from softbench.heads.base import Head
from softbench.heads.compact import check_rows
from softbench.ops import read
from softbench.state import saved_arguments
from softbench.table import ClassTable

_BELOW = 30.0  # a bias of -inf, below the smallest other


class TableHead(Head):
    """Base class of the heads with a `ClassTable`, `table`. A subclass writes `training_loss`.

    Args:
        units: n, the number of classes.
        use_bias, normalize, temperature, absolute, row_optimizer, kernel_initializer,
            bias_initializer, table_dtype: of the `ClassTable`.
    """

    def __init__(self, units: int, **kwargs: Any) -> None:
        options = {name: kwargs.pop(name) for name in ClassTable.arguments if name in kwargs}
        super().__init__(units, **kwargs)
        self.table = ClassTable(self.units, **options, dtype=self.dtype_policy, name="table")
        check_rows(self.max_valid, self.table.row_optimizer)
        self.supports_jit = self.table.supports_jit

    def build(self, hidden_shape: tuple) -> None:
        super().build(hidden_shape)
        if not self.table.built:  # a `TiedEmbedding` may have built it
            self.table.build((None, hidden_shape[-1]))
        if self.table.kernel.shape[-1] != hidden_shape[-1]:
            raise ValueError(
                f"`hidden` must have the width of the class table, {self.table.kernel.shape[-1]}. "
                f"Received shape: {tuple(hidden_shape)}"
            )

    def prediction_scores(
        self, hidden: Tensor, ids: Tensor | None = None, **side: Tensor
    ) -> Tensor:
        """As `Head.prediction_scores`: the table's scores, whatever the side inputs."""
        return self.table.scores(hidden, ids)

    @property
    def class_variables(self) -> list[keras.Variable]:
        return self.table.class_variables

    def index_vectors(self) -> np.ndarray:
        """Vectors whose inner products with `index_queries` are the scores: float32 (n, d[+1]).

        For an index of another library (FAISS, ScaNN). v_i = [c_i, b_i] and
        q(h) = [h / temperature, 1], with c_i and h divided by their norms where the table
        normalises, and without the last entry where scores have no bias. A b_i of -inf (a class
        of probability 0) is 30 below the smallest other here.

        Example:
            >>> head = softbench.FullSoftmax(3, temperature=0.5)
            >>> scores = head(np.ones((2, 4), "float32"))
            >>> queries = np.asarray(head.index_queries(np.ones((2, 4), "float32")))
            >>> np.allclose(queries @ head.index_vectors().T, scores, atol=1e-5)
            True

        Raises:
            ValueError: if the head is not built, or its scores are not such products: `absolute`
                ones, and those of `NegativeSampling` with noise that depends on the input.
        """
        if not self.built:
            raise ValueError(
                "`head` must have its weights: call it once, or load it. Received: a head that is "
                "not built"
            )
        self.check_inner_products()
        rows = ops.convert_to_numpy(self.table.normalized(read(self.table.kernel)))
        if not self.scores_have_bias:
            return np.array(rows)
        bias = np.array(ops.convert_to_numpy(self._score_bias()), "float32")
        possible = ~np.isneginf(bias)
        lowest = bias[possible].min(initial=np.inf) - _BELOW
        bias = np.where(possible, bias, lowest if np.isfinite(lowest) else 0.0)
        return np.concatenate([rows, bias[:, None]], axis=1, dtype="float32")

    def index_queries(self, hidden: Tensor) -> Tensor:
        """The queries of hidden (B, d) for `index_vectors`: float32 (B, d[+1])."""
        return retrieval.queries(self.table, hidden, self.scores_have_bias)

    @property
    def scores_have_bias(self) -> bool:
        """Whether something is added to the inner products."""
        return self.table.bias is not None

    def _score_bias(self) -> Tensor:
        """What is added (n,)."""
        return ops.cast(read(self.table.bias), "float32")

    def check_inner_products(self) -> None:
        """Raise a ValueError unless scores are inner products with the rows, plus a bias."""
        if self.table.absolute:
            raise ValueError(
                "`absolute` scores are not inner products, which an index needs; use the exact "
                "`top_k`. Received: absolute=True"
            )

    def get_config(self) -> dict:
        return {**super().get_config(), **saved_arguments(self.table)}

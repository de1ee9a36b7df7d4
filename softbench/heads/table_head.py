"""Heads whose scores come from one class table."""

from typing import Any

import keras
import numpy as np
from keras import ops

from softbench.class_table import ClassTable
from softbench.common import Tensor
from softbench.embedding_table import EmbeddingTable
from softbench.heads import retrieval
from softbench.heads.base import Head
from softbench.heads.compact import check_rows
from softbench.table import Table, serialized

_BELOW = 30.0  # a bias of -inf, below the smallest other
_DEFAULTS = {"use_bias": True, "normalize": False, "temperature": 1.0, "row_optimizer": None}
_GIVEN = {"absolute", "logit_soft_cap", "kernel_initializer", "bias_initializer", "table_dtype"}


class TableHead(Head):
    """Base class of the heads with a class table, `table`. A subclass writes `training_loss`.

    Args:
        units: n, the number of classes; None with `table`, which has it.
        table: None, or a `ClassTable` that the head takes instead of making one, or an `ItemTower`,
            or an embedding layer, see `EmbeddingTable`. Its dtype and its seed are the table's; to
            freeze the head freezes it, for all that share it.
        use_bias, normalize, temperature, row_optimizer: of the `ClassTable` that the head makes.
        seed: of the table that the head makes.
        **kwargs: of `Head`.
    """

    def __init__(
        self,
        units: Any = None,
        *,
        table: Table | None = None,
        use_bias: bool = True,
        normalize: bool = False,
        temperature: float = 1.0,
        row_optimizer: Any = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        options: dict[str, Any] = {
            "use_bias": use_bias,
            "normalize": normalize,
            "temperature": temperature,
            "row_optimizer": row_optimizer,
        }
        if isinstance(table, keras.layers.Embedding):
            table = EmbeddingTable(table)
        check_table(units, table, options, kwargs)
        super().__init__(units if table is None else table.units, **kwargs)
        if table is None:
            options |= {"seed": seed, "dtype": self.dtype_policy, "name": "table"}
            table = ClassTable(self.units, **options)
        self.table: Any = table
        table.users.heads.add(self)
        check_rows(self.max_valid, table.row_optimizer)
        self.supports_jit = table.supports_jit

    def build(self, hidden_shape: tuple) -> None:
        super().build(hidden_shape)
        build_table(self.table, hidden_shape)
        if self.table.tie is not None:
            self.check_tied()

    def check_tied(self) -> None:
        """Raise a ValueError unless a `TiedEmbedding` and a `row_optimizer` suit the head.

        The rows that a step of it touches must be of a fixed number.
        """
        refuse_tied(self)

    @property
    def tie(self) -> Any:
        """Where updates of the table wait for the gradient of a `TiedEmbedding`, or None."""
        return self.table.tie

    def begin(self, training: bool) -> None:
        self.table.begin(training)

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
        if not self.built and self.table.built:
            self.build((None, self.table.width))
        if not self.built:
            raise ValueError(
                "`head` must have its weights: call it once, or load it. Received: a head that is "
                "not built"
            )
        self.check_inner_products()
        rows = ops.convert_to_numpy(self.table.normalized(self.table.all_rows()[0]))
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
        return self.table.use_bias

    def _score_bias(self) -> Tensor:
        """What is added (n,)."""
        return ops.cast(self.table.all_rows()[1], "float32")

    def check_inner_products(self) -> None:
        """Raise a ValueError unless scores are inner products with the rows, plus a bias."""
        for name in ("absolute", "logit_soft_cap"):
            if value := getattr(self.table, name):
                raise ValueError(
                    f"Scores with `{name}` are not inner products, which an index needs; use the "
                    f"exact `top_k`. Received: {name}={value}"
                )

    def get_config(self) -> dict:
        return {**super().get_config(), "table": serialized(self.table)}


def check_table(units: int | None, table: Any, options: dict, others: dict) -> None:
    """Raise a ValueError unless the arguments of a head name one table.

    Args:
        units: n, or None.
        table: what the head was given, or None.
        options: of the table that the head would make.
        others: arguments that the head does not know.
    """
    for name in _GIVEN.intersection(others):
        raise ValueError(
            f"`{name}` is an option of the table: use "
            f"`table=softbench.ClassTable(units, {name}=...)`. Received: {name}={others[name]!r}"
        )
    if table is None:
        if units is None:
            raise ValueError(
                "`units` must be the number of classes where there is no `table`. Received: "
                "units=None"
            )
        return
    if not isinstance(table, Table):
        raise ValueError(
            "`table` must be None, a `softbench.ClassTable`, a `softbench.ItemTower` or a "
            "`keras.layers.Embedding`. "
            f"Received: table={type(table).__name__}"
        )
    if units not in (None, table.units):
        raise ValueError(
            f"`units` must be None or that of the `table`, {table.units}. Received: units={units!r}"
        )
    for name, value in options.items():
        if value is not _DEFAULTS[name] and value != _DEFAULTS[name]:
            raise ValueError(
                f"`{name}` must be left out with `table`, {table.option_hint(name)}. "
                f"Received: {name}={value!r}"
            )


def refuse_tied(head: Head) -> None:
    """Raise the ValueError of a head that has no `TiedEmbedding` with a `row_optimizer`."""
    raise ValueError(
        "`head` must draw from a sampler if it has a `row_optimizer` and a `TiedEmbedding`. "
        f"Received: {type(head).__name__}"
    )


def build_table(table: Any, hidden_shape: tuple) -> None:
    """Build a table for hidden vectors; raise a ValueError if it is built for others."""
    if not table.built:
        table.build((None, hidden_shape[-1]))
    if table.width != hidden_shape[-1]:
        raise ValueError(
            f"`hidden` must have the width of the class table, {table.width}. "
            f"Received shape: {tuple(hidden_shape)}"
        )

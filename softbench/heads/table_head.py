"""Heads whose scores come from one class table."""

from typing import Any

from softbench.common import Tensor
from softbench.heads.base import Head
from softbench.heads.compact import check_rows
from softbench.state import saved_arguments
from softbench.table import ClassTable


class TableHead(Head):
    """Base class of the heads with a `ClassTable`, `table`. A subclass writes `training_loss`.

    Args:
        units: n, the number of classes.
        use_bias, normalize, temperature, absolute, row_optimizer, kernel_initializer,
            bias_initializer: of the `ClassTable`.
    """

    def __init__(self, units: int, **kwargs: Any) -> None:
        options = {name: kwargs.pop(name) for name in ClassTable.arguments if name in kwargs}
        super().__init__(units, **kwargs)
        self.table = ClassTable(self.units, **options, dtype=self.dtype_policy, name="table")
        check_rows(self.max_valid, self.table.row_optimizer)
        self.supports_jit = self.table.supports_jit

    def build(self, hidden_shape: tuple) -> None:
        super().build(hidden_shape)
        self.table.build((None, hidden_shape[-1]))

    def prediction_scores(
        self, hidden: Tensor, ids: Tensor | None = None, **side: Tensor
    ) -> Tensor:
        """As `Head.prediction_scores`: the table's scores, whatever the side inputs."""
        return self.table.scores(hidden, ids)

    def get_config(self) -> dict:
        return {**super().get_config(), **saved_arguments(self.table)}

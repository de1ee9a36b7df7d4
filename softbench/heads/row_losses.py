"""Losses of gathered rows, and the update of these rows by their table's row optimizer."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from softbench.common import Tensor
from softbench.heads.inputs import mean_of_weighted
from softbench.ops import gradients_and_aux
from softbench.table import Table


def row_losses(
    table: Table,
    id_sets: list[Tensor],
    function: Callable[[list[list[Tensor]]], tuple[Tensor, Any]],
    weight: Tensor | None,
) -> tuple[Tensor, Any]:
    """`function` of the rows of every set of ids; with a `row_optimizer` these rows are updated.

    The update takes the gradient of the mean loss with respect to the gathered rows alone and sums
    it over duplicated ids. The gradient that flows back to what `function` closes over is that
    of the rows before the update. A table with `trainable=False` is not updated.

    Args:
        table: of n rows.
        id_sets: integers in [0, n), of any shapes.
        function: rows, one list [kernel rows, biases] for each set -> losses (B,), and anything.
        weight: (B,) or None, of the mean; if all of it is 0, no row moves.

    Returns:
        What `function` returns.
    """
    table.check_replicas()
    rows = table.training_rows(id_sets)
    if table.row_optimizer is None:
        return function(rows)
    # Of bfloat16 rows the gradients would be bfloat16 too.
    rows = keras.tree.map_structure(lambda x: ops.stop_gradient(ops.cast(x, "float32")), rows)
    if not table.trainable:
        return function(rows)

    def mean_loss(*arrays: Tensor) -> tuple[Tensor, tuple]:
        losses, extra = function(keras.tree.pack_sequence_as(rows, arrays))
        own = losses if weight is None else losses * ops.cast(weight, "float32")
        return mean_of_weighted(own, weight), (losses, extra)

    gradients, result = gradients_and_aux(mean_loss, keras.tree.flatten(rows))
    by_variable = zip(*keras.tree.pack_sequence_as(rows, gradients), strict=True)
    table.train_rows(
        _joined(id_sets, ()),
        [ops.stop_gradient(_joined(v, v[0].shape[len(id_sets[0].shape) :])) for v in by_variable],
        when=None if weight is None else ops.any(ops.not_equal(weight, 0)),
    )
    return result


def _joined(arrays: Sequence[Tensor], trailing: tuple) -> Tensor:
    return ops.concatenate([ops.reshape(a, (-1, *trailing)) for a in arrays], axis=0)

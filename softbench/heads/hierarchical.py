"""Hierarchical softmax: a balanced binary tree over the classes."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from softbench.class_table import ClassTable
from softbench.common import PACKAGE, Tensor
from softbench.heads.base import Head
from softbench.heads.compact import check_rows
from softbench.heads.row_losses import row_losses
from softbench.heads.table_head import build_table, check_table, refuse_tied
from softbench.ops import gather_rows, read
from softbench.state import add_constant
from softbench.table import Table, serialized
from softbench.targets import Targets

TOP_LEVELS = 16  # at most, whose log-probabilities a pass over all classes holds at once


@keras.saving.register_keras_serializable(PACKAGE)
class HierarchicalSoftmax(Head):
    """log p(y|h) = sum over the path to y of log sigmoid(+-(<h, w_node> + b_node)).

    Morin & Bengio (2005). The classes are leaves of a binary tree of depth D = ceil(log2 n) whose
    2^D - 1 nodes each have a vector. The loss is exact, normalised by construction, and costs
    O(d log n) an example; `head(h)` has all log-probabilities, level by level, in O(n d). A node
    with no class on one side sends everything to the other and has no parameters of its own.
    With a `row_optimizer` a training step touches B log n of the rows.

    How well it does depends on which classes share a subtree: see `leaf_order`.

    Args:
        units: n, the number of classes.
        leaf_order: None, the order of the ids; or one integer for each class. A permutation of
            0..n-1 is the class's position from left to right (its rank by frequency, say), and the
            classes are spread evenly over the leaves. Other distinct integers in [0, 2^D)
            are the leaves themselves, such as those of a fitted `AdversarialTree`.
        table: None, or a `ClassTable` of the nodes to use: of `num_nodes(units)` rows, neither
            normalised nor of absolute scores, and of temperature 1.
        use_bias, row_optimizer: of the table of nodes that the head makes.
        ignore_index, max_valid: as in every head, see `softbench.heads.base.Head`.
        **kwargs: of `keras.layers.Layer`: name, dtype, trainable.

    Attributes:
        nodes: the `ClassTable` of the nodes, in the order of the levels.

    Raises:
        ValueError: if `leaf_order` or `table` is not as said.
    """

    arguments = ("leaf_order",)

    def __init__(
        self,
        units: int,
        leaf_order: Sequence[int] | None = None,
        *,
        table: Table | None = None,
        use_bias: bool = True,
        row_optimizer: Any = None,
        ignore_index: int | None = None,
        max_valid: int | float | None = None,
        **kwargs: Any,
    ) -> None:
        options = {"use_bias": use_bias, "row_optimizer": row_optimizer}
        check_table(None if table is not None else units, table, options, kwargs)
        super().__init__(units, ignore_index=ignore_index, max_valid=max_valid, **kwargs)
        self.depth = (self.units - 1).bit_length()
        self.leaf_order = None if leaf_order is None else np.asarray(leaf_order)
        self.positions = leaf_positions(self.units, self.leaf_order)
        if table is None:
            options |= {"dtype": self.dtype_policy, "name": "nodes"}
            table = ClassTable(self.num_nodes(self.units), **options)
        _check_nodes(table, self.num_nodes(self.units))
        check_rows(self.max_valid, table.row_optimizer)
        self.nodes: Any = table
        table.users.heads.add(self)
        self.nodes.per_class = False  # a row for each node
        self.supports_jit = self.nodes.supports_jit
        self.top_depth = min(self.depth, TOP_LEVELS)

    def build(self, hidden_shape: tuple) -> None:
        super().build(hidden_shape)
        build_table(self.nodes, hidden_shape)
        if self.nodes.tie is not None:
            self.check_tied()
        self.leaves = add_constant(self, "leaves", self.positions)
        self.forced = add_constant(self, "forced", forced_sides(self.positions, self.depth))

    def check_tied(self) -> None:
        """Raise a ValueError: a `TiedEmbedding` with a `row_optimizer` does not suit the head."""
        refuse_tied(self)

    @staticmethod
    def num_nodes(units: int) -> int:
        """2^D - 1, the number of nodes of the tree over n classes; 1 for one class."""
        return max(1, 2 ** (units - 1).bit_length() - 1)

    def path(self, ids: Tensor, start: int = 0) -> tuple[Tensor, Tensor]:
        """Nodes on the way to classes, and the sides taken there: -1 left, 1 right.

        Args:
            ids: integers (...).
            start: the level to begin at, 0 for the root.

        Returns:
            int32 (..., D - start) and float32 (..., D - start).
        """
        levels = np.arange(start, self.depth)
        spans = (2 ** (self.depth - levels)).astype(np.int32)
        leaf = ops.expand_dims(gather_rows(self.leaves, ids), -1)
        sides = (leaf // (spans // 2)) % 2
        return leaf // spans + (2**levels - 1).astype(np.int32), ops.cast(2 * sides - 1, "float32")

    def _log_sides(self, logits: Tensor, nodes: Tensor, sides: Tensor) -> Tensor:
        """log-probability (...) of going to `sides` at all of the nodes (..., L)."""
        free = ops.equal(gather_rows(self.forced, nodes), 0)
        return -ops.sum(ops.where(free, ops.softplus(-sides * logits), 0.0), axis=-1)

    def training_loss(self, hidden: Tensor, targets: Targets) -> Tensor:
        if not self.depth:
            return 0.0 * ops.cast(hidden[:, 0], "float32")
        nodes, sides = self.path(targets.labels)

        def losses(rows: list[list[Tensor]]) -> tuple[Tensor, tuple]:
            logits = self.nodes.logits(hidden, *rows[0])
            return -self._log_sides(logits, nodes, sides), ()

        return row_losses(self.nodes, [nodes], losses, targets.counts)[0]

    def negative_log_likelihood(self, hidden: Tensor, targets: Targets) -> Tensor:
        return -self.prediction_scores(hidden, ops.expand_dims(targets.labels, -1))[:, 0]

    def prediction_scores(self, hidden: Tensor, ids: Tensor | None = None) -> Tensor:
        """log p of all classes (B, n), or (B, m) of `ids` (B, m) or (1, m)."""
        if ids is not None:
            return self._below(hidden, ids, 0)
        return ops.take(self._top(hidden, self.depth), read(self.leaves), axis=1)

    def scorer(self, hidden: Tensor) -> Callable[[Tensor], Tensor]:
        top, span = self._top(hidden, self.top_depth), 2 ** (self.depth - self.top_depth)

        def scores(ids: Tensor) -> Tensor:
            prefix = ops.take(top, gather_rows(self.leaves, ids) // span, axis=1)
            return prefix + self._below(hidden, ids[None], self.top_depth)

        return scores

    def _top(self, hidden: Tensor, depth: int) -> Tensor:
        """log-probability (B, 2^depth) of reaching the nodes of a level from the root."""
        result = 0.0 * ops.cast(hidden[:, :1], "float32")
        if not depth:
            return result
        whole = depth == self.depth
        ids = ops.arange(2**depth - 1, dtype="int32")
        logits = self.nodes.scores(hidden, None if whole else ids[None])
        forced = gather_rows(self.forced, ids)
        for level in range(depth):
            part = slice(2**level - 1, 2 ** (level + 1) - 1)
            z, side = logits[:, part], forced[part]
            free = ops.equal(side, 0)
            left = ops.where(free, -ops.softplus(z), ops.where(side > 0, -float("inf"), 0.0))
            right = ops.where(free, -ops.softplus(-z), ops.where(side < 0, -float("inf"), 0.0))
            result = ops.expand_dims(result, -1) + ops.stack([left, right], axis=-1)
            result = ops.reshape(result, (-1, 2 ** (level + 1)))
        return result

    def _below(self, hidden: Tensor, ids: Tensor, start: int) -> Tensor:
        """log-probability (B, m) of ids (B, m) or (1, m), given the level `start` on their way."""
        count, length = ids.shape[-1], self.depth - start
        if not length:
            return ops.repeat(0.0 * ops.cast(hidden[:, :1], "float32"), count, axis=1)
        nodes, sides = self.path(ids, start)
        logits = self.nodes.scores(hidden, ops.reshape(nodes, (-1, count * length)))
        return self._log_sides(ops.reshape(logits, (-1, count, length)), nodes, sides)

    def get_config(self) -> dict:
        return {**super().get_config(), "table": serialized(self.nodes)}


def _check_nodes(table: Any, rows: int) -> None:
    """Raise a ValueError unless a table is one of `rows` nodes."""
    if table.units != rows:
        raise ValueError(
            f"`table` must have a row for each node of the tree: softbench.ClassTable({rows}). "
            f"Received: units={table.units}"
        )
    plain = not table.normalize and not table.absolute and table.logit_soft_cap is None
    if not plain or table.temperature != 1.0:
        raise ValueError(
            "`table` must be of plain scores: the nodes of a tree have no normalize, absolute, "
            f"temperature or logit_soft_cap. Received: normalize={table.normalize}, "
            f"absolute={table.absolute}, temperature={table.temperature}, "
            f"logit_soft_cap={table.logit_soft_cap}"
        )


def leaf_positions(units: int, order: np.ndarray | None) -> np.ndarray:
    """Leaf int32 (n,) of every class in a tree with 2^D leaves, D = ceil(log2 n).

    Args:
        units: n.
        order: None or a permutation of 0..n-1 (the classes are spread evenly, in that order), or
            the leaves themselves.

    Raises:
        ValueError: unless `order` is one or the other.
    """
    leaves = 1 << (units - 1).bit_length()
    order = np.arange(units) if order is None else order
    if order.shape != (units,) or order.dtype.kind not in "iu":
        raise ValueError(
            f"`leaf_order` must be one integer for each of the {units} classes. "
            f"Received: {order.dtype} of shape {order.shape}"
        )
    if order.min() < 0 or order.max() >= leaves or len(np.unique(order)) < units:
        raise ValueError(
            f"`leaf_order` must be distinct integers in [0, {leaves}). Received values from "
            f"{order.min()} to {order.max()}, {len(np.unique(order))} of them distinct"
        )
    if order.max() < units:
        order = order.astype(np.int64) * leaves // units
    return order.astype(np.int32)


def forced_sides(positions: np.ndarray, depth: int) -> np.ndarray:
    """int32 (2^D - 1,) over the nodes of a tree, level by level: 0 where both sides have classes.

    -1 where the right side has none, 1 where the left side (alone) has none.
    """
    occupied = np.zeros(2**depth, bool)
    occupied[positions] = True
    levels = []
    for _ in range(depth):
        left, right = occupied[0::2], occupied[1::2]
        levels.append(np.where(left & right, 0, np.where(right & ~left, 1, -1)))
        occupied = left | right
    return np.concatenate([*levels[::-1], np.zeros(0)]).astype(np.int32)

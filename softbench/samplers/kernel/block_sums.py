"""Sums of class features over blocks of classes, in levels, kept equal to the class table.

Level 0 holds the leaf blocks: node v is the classes [v b, (v + 1) b). Each further level joins a
fixed number of nodes of the one below, until at most `top_size` are left. Shape letters: n classes,
D length of a feature vector, b classes in a leaf block, N class ids, U distinct ones, V nodes.

Drift: a sum follows its rows by differences, each rounded to float32. At every change a
1 / REFRESH_PERIOD share of the leaf blocks, and the sums above them, are computed afresh, in turn;
so no sum is ever older than REFRESH_PERIOD changes, however long the run.
"""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from softbench.common import Tensor
from softbench.ops import gather_groups, gather_rows, read, scatter_add, scatter_update
from softbench.state import add_constant, add_state

REFRESH_PERIOD = 4096
CHUNK = 2**23  # numbers held at a time while rebuilding


class BlockSums(keras.layers.Layer):
    """The levels of sums, and how many classes each node holds.

    Args:
        units: n.
        block_size: b.
        top_size: the last level has at most this many nodes.
        branching: nodes that one above joins.
        prior: float64 (n,), a weight for each class of which 0 takes it out of all blocks; or None.

    Attributes:
        spans: classes in a node of each level, from the leaves up.
        sums: for each level a variable (V, D); below the top, V is a multiple of `branching`.
    """

    def __init__(
        self,
        units: int,
        block_size: int,
        top_size: int,
        prior: np.ndarray | None,
        branching: int = 16,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.units, self.prior, self.branching = units, prior, branching
        self.spans = [block_size]
        while -(-units // self.spans[-1]) > top_size:
            self.spans.append(self.spans[-1] * branching)
        nodes = [-(-units // span) for span in self.spans]
        self.nodes = [-(-v // branching) * branching for v in nodes[:-1]] + nodes[-1:]

    def build(
        self, dim: int, features: Callable[[Tensor], Tensor], split: Callable | None = None
    ) -> None:
        """`features` gives the weighted features (N, D) of class ids (N,), zero where id >= n.

        `split` is `by_shards` of all variables that it reads, where each shard holds whole blocks.
        """
        self.dim, self.features, self.split = dim, features, split
        self.sums, self.prior_sums, below = [], [], None
        for level, span in enumerate(self.spans):
            below = self._add_sums(level, below)
            self.sums.append(below)
            if self.prior is not None:
                values = _prior_sums(self.prior, span, self.nodes[level])
                name = f"prior_{span}"
                self.prior_sums.append(add_constant(self, name, values, per_class=True))
        self.cursor = add_state(self, "cursor", dtype="int32")

    def _add_sums(self, level: int, below: keras.Variable | None) -> keras.Variable:
        def fill(shape: tuple, dtype: Any = None) -> Tensor:
            return self._leaves() if below is None else self._parents(read(below), level)

        name, shape = f"sums_{self.spans[level]}", (self.nodes[level], self.dim)
        return add_state(self, name, shape, fill, per_class=True)

    def size(self, level: int, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Prior weight of `nodes` and their number of classes with any, float32, as `nodes`."""
        if self.prior is not None:
            both = gather_rows(self.prior_sums[level], nodes)
            return both[..., 0], both[..., 1]
        span = self.spans[level]
        count = ops.cast(ops.clip(self.units - nodes * span, 0, span), "float32")
        return count, count

    def _leaf_sums(self, nodes: Tensor) -> Tensor:
        """Fresh sums (V, D) of the leaf blocks `nodes` (V,)."""
        span = self.spans[0]
        ids = ops.expand_dims(nodes, -1) * span + ops.arange(span, dtype="int32")
        sums = self.features(ops.reshape(ids, (-1,)))
        return sums if span == 1 else ops.sum(ops.reshape(sums, (-1, span, self.dim)), axis=1)

    def _leaves(self) -> Tensor:
        if self.split is None:
            return self._leaves_of(0, self.units)

        def join(sums: Tensor) -> Tensor:
            sums = ops.reshape(sums, (-1, self.dim))
            return ops.pad(sums, ((0, self.nodes[0] - sums.shape[0]), (0, 0)))

        return self.split(self._leaves_of, join)

    def _leaves_of(self, first: Tensor | int, count: int) -> Tensor:
        """Fresh sums (V, D) of the blocks of the classes [first, first + count)."""
        nodes = self.nodes[0] if count == self.units else count // self.spans[0]
        size = max(1, min(nodes, CHUNK // (self.spans[0] * self.dim)))
        chunks, begin = -(-nodes // size), first // self.spans[0]
        if chunks == 1:
            return self._leaf_sums(begin + ops.arange(nodes, dtype="int32"))
        starts = begin + ops.arange(chunks, dtype="int32") * size
        sums = ops.map(lambda s: self._leaf_sums(s + ops.arange(size, dtype="int32")), starts)
        return ops.reshape(sums, (chunks * size, self.dim))[:nodes]

    def _parents(self, below: Tensor, level: int) -> Tensor:
        sums = ops.sum(ops.reshape(below, (-1, self.branching, self.dim)), axis=1)
        return ops.pad(sums, ((0, self.nodes[level] - sums.shape[0]), (0, 0)))

    def compute(self) -> list[Tensor]:
        """All levels, computed afresh from the table."""
        levels = [self._leaves()]
        for level in range(1, len(self.spans)):
            levels.append(self._parents(levels[-1], level))
        return levels

    def change(self, ids: Tensor, difference: Tensor) -> None:
        """Add `difference` (U, D) to every block that holds `ids` (U,); then refresh a share.

        Ids of n or more must come with differences of zero.
        """
        ids = ops.minimum(ids, self.units - 1)
        for span, sums in zip(self.spans, self.sums, strict=True):
            scatter_add(sums, ids // span, difference)
        self._refresh_share()

    def _refresh_share(self) -> None:
        count = -(-self.nodes[0] // REFRESH_PERIOD)
        start = read(self.cursor)
        nodes = ops.mod(start + ops.arange(count, dtype="int32"), self.nodes[0])
        scatter_update(self.sums[0], nodes, self._leaf_sums(nodes))
        for below, sums in zip(self.sums[:-1], self.sums[1:], strict=True):
            nodes = nodes // self.branching
            children = gather_groups(below, nodes, self.branching)
            scatter_update(sums, nodes, ops.sum(children, axis=1))
        self.cursor.assign(ops.mod(start + count, self.nodes[0]))

    def children(self, nodes: Tensor) -> Tensor:
        """The nodes one level below, (..., branching)."""
        steps = ops.arange(self.branching, dtype="int32")
        return ops.expand_dims(nodes, -1) * self.branching + steps


def _prior_sums(prior: np.ndarray, span: int, nodes: int) -> np.ndarray:
    """(V, 2): prior weight of each node, and how many of its classes have any."""
    blocks = np.pad(prior, (0, nodes * span - len(prior))).reshape(nodes, span)
    return np.stack([blocks.sum(-1), (blocks > 0).sum(-1)], axis=-1)

"""Adaptive softmax: a short list of frequent classes, and clusters of the others."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from softbench.class_table import ClassTable
from softbench.common import (
    PACKAGE,
    Tensor,
    check_counts,
    check_length,
    check_number,
    check_positive,
)
from softbench.heads.base import Head
from softbench.ops import gather_rows, read
from softbench.state import add_constant
from softbench.targets import Targets

_PARTS = 1024  # a share of the batch is counted in these


@keras.saving.register_keras_serializable(PACKAGE)
class AdaptiveSoftmax(Head):
    """Softmax over frequent classes and k clusters, then within the cluster (Grave et al. 2017).

    With the classes in the order of their frequency and cutoffs c_1 < ... < c_k, the classes
    below c_1 and the k clusters share one softmax of c_1 + k scores; cluster i, the classes from
    c_i to c_{i+1} (or n), has a separate softmax over hidden vectors projected to
    d / div_value^i dimensions: log p(y) = log p(cluster i) + log p(y | cluster i). The loss is
    the exact likelihood of this model, which is smaller than the full softmax's.

    Cost of a step: B c_1 d for the short list, and for each cluster R n_i d_i, R the rows that
    it is computed for. Shapes are static, so R is a fixed share of the batch, `tail_capacity`;
    a batch with more labels than that in a cluster computes it for all its rows, and stays exact.

    Args:
        units: n, the number of classes.
        cutoffs: increasing, each in [1, n).
        use_bias, kernel_initializer, bias_initializer: of the short list and of the clusters.
        div_value: by which the dimension of each cluster is smaller than that of the one before.
        counts: the classes' frequencies (n,), which they are then sorted by. None takes the ids to
            be sorted already, the most frequent class first.
        tail_capacity: R / B in (0, 1], of every cluster. None: twice the cluster's share of
            `counts`, and 1 without counts.
        ignore_index, max_valid: as in every head, see `softbench.heads.base.Head`.
        **kwargs: of `keras.layers.Layer`: name, dtype, trainable.

    Attributes:
        shortlist: the `ClassTable` of c_1 + k rows.
        tails: a `ClassTable` for each cluster; `projections`, its matrix (d, d_i).

    Raises:
        ValueError: on cutoffs, counts, `div_value` < 1 or `tail_capacity` that are not as said.
    """

    arguments = (
        "cutoffs",
        "use_bias",
        "kernel_initializer",
        "bias_initializer",
        "div_value",
        "counts",
        "tail_capacity",
    )

    def __init__(
        self,
        units: int,
        cutoffs: Sequence[int],
        *,
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        div_value: float = 4.0,
        counts: Sequence[float] | None = None,
        tail_capacity: float | None = None,
        ignore_index: int | None = None,
        max_valid: int | float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(units, ignore_index=ignore_index, max_valid=max_valid, **kwargs)
        check_number(1, div_value=div_value)
        self.cutoffs = _checked_cutoffs(cutoffs, self.units)
        self.div_value = div_value
        self.counts: np.ndarray | None = None
        if counts is not None:
            self.counts = check_counts(counts)
            check_length(self.counts, self.units)
        self.tail_capacity = tail_capacity
        self.bounds = list(itertools.pairwise([*self.cutoffs, self.units]))
        self.capacities = self._capacities()
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.shortlist = self._table(self.cutoffs[0] + len(self.cutoffs), "shortlist")
        self.tails = [self._table(b - a, f"tail_{i}") for i, (a, b) in enumerate(self.bounds)]

    def _table(self, rows: int, name: str) -> ClassTable:
        table = ClassTable(
            rows,
            use_bias=self.use_bias,
            kernel_initializer=self.kernel_initializer,
            bias_initializer=self.bias_initializer,
            dtype=self.dtype_policy,
            name=name,
        )
        table.per_class = False  # of a part of the classes, and one row for each tail
        return table

    def _capacities(self) -> list[float]:
        """The share of the batch that each cluster is computed for."""
        if self.tail_capacity is not None:
            check_number(0, exclusive=True, tail_capacity=self.tail_capacity)
            if self.tail_capacity > 1:
                raise ValueError(
                    f"`tail_capacity` must be at most 1. Received: {self.tail_capacity}"
                )
            return [float(self.tail_capacity)] * len(self.bounds)
        if self.counts is None:
            return [1.0] * len(self.bounds)
        shares = -np.sort(-self.counts) / self.counts.sum()
        return [min(1.0, 2 * float(shares[a:b].sum())) for a, b in self.bounds]

    def build(self, hidden_shape: tuple) -> None:
        super().build(hidden_shape)
        width = hidden_shape[-1]
        self.shortlist.build((None, width))
        self.projections = []
        for index, tail in enumerate(self.tails):
            size = max(1, int(width / self.div_value ** (index + 1)))
            self.projections.append(
                self.add_weight(
                    name=f"projection_{index}",
                    shape=(width, size),
                    initializer=self.kernel_initializer,
                    autocast=False,
                )
            )
            tail.build((None, size))
        self.ranks = None
        if self.counts is not None:
            ranks = np.empty(self.units, np.int32)  # the lower id first among equals
            ranks[np.argsort(-self.counts, kind="stable")] = np.arange(self.units, dtype=np.int32)
            self.ranks = add_constant(self, "ranks", ranks)

    def _rank(self, ids: Tensor) -> Tensor:
        """The classes' ranks in the order of their frequency."""
        return ids if self.ranks is None else gather_rows(self.ranks, ids)

    def _project(self, hidden: Tensor, index: int) -> Tensor:
        matrix = ops.cast(read(self.projections[index]), self.compute_dtype)
        return ops.matmul(ops.cast(hidden, self.compute_dtype), matrix)

    def training_loss(self, hidden: Tensor, targets: Targets) -> Tensor:
        return self.negative_log_likelihood(hidden, targets)

    def negative_log_likelihood(self, hidden: Tensor, targets: Targets) -> Tensor:
        """-log p(label) (B,), exact, in training and evaluation alike."""
        rank = self._rank(targets.labels)
        inside = [ops.logical_and(rank >= start, rank < end) for start, end in self.bounds]
        first = rank
        for index, inside_cluster in enumerate(inside):
            first = ops.where(inside_cluster, self.cutoffs[0] + index, first)
        losses = _cross_entropy(self.shortlist, hidden, first)
        for index, inside_cluster in enumerate(inside):
            losses = losses + self._tail_losses(index, hidden, rank, inside_cluster)
        return losses

    def _tail_losses(self, index: int, hidden: Tensor, rank: Tensor, inside: Tensor) -> Tensor:
        """-log p(label | cluster) (B,) of the labels `inside` a cluster, 0 of the others."""
        start, end = self.bounds[index]
        local = ops.clip(rank - start, 0, end - start - 1)

        def losses(hidden: Tensor, local: Tensor) -> Tensor:
            return _cross_entropy(self.tails[index], self._project(hidden, index), local)

        return losses_inside(losses, inside, self.capacities[index], [hidden, local])

    def prediction_scores(self, hidden: Tensor, ids: Tensor | None = None) -> Tensor:
        """log p of all classes (B, n), or (B, m) of `ids` (B, m) or (1, m)."""
        if ids is not None:
            return self._scores_of(hidden)(ids)
        first, size = ops.log_softmax(self.shortlist.scores(hidden), axis=-1), self.cutoffs[0]
        columns = [first[:, :size]]
        for index, tail in enumerate(self.tails):
            within = ops.log_softmax(tail.scores(self._project(hidden, index)), axis=-1)
            columns.append(first[:, size + index : size + index + 1] + within)
        scores = ops.concatenate(columns, axis=-1)
        return scores if self.ranks is None else ops.take(scores, read(self.ranks), axis=1)

    def scorer(self, hidden: Tensor) -> Callable[[Tensor], Tensor]:
        scores = self._scores_of(hidden)
        return lambda ids: scores(ids[None])

    def _scores_of(self, hidden: Tensor) -> Callable[[Tensor], Tensor]:
        """ids (B, m) or (1, m) -> log p (B, m); normalised once for all calls."""
        projected = [self._project(hidden, index) for index in range(len(self.tails))]
        base = _log_partition(self.shortlist, hidden)[:, None]
        clusters = self.cutoffs[0] + ops.arange(len(self.tails), dtype="int32")
        entry = self.shortlist.scores(hidden, clusters[None]) - base
        shift = [
            entry[:, index : index + 1] - _log_partition(tail, projected[index])[:, None]
            for index, tail in enumerate(self.tails)
        ]

        def scores(ids: Tensor) -> Tensor:
            rank = self._rank(ids)
            scores = self.shortlist.scores(hidden, ops.minimum(rank, self.cutoffs[0] - 1)) - base
            for index, (start, end) in enumerate(self.bounds):
                local = ops.clip(rank - start, 0, end - start - 1)
                tail = self.tails[index].scores(projected[index], local) + shift[index]
                scores = ops.where(rank >= start, tail, scores)
            return scores

        return scores


def _checked_cutoffs(cutoffs: Sequence[int], units: int) -> list[int]:
    values = [0, *cutoffs, units]
    for value in cutoffs:
        check_positive(cutoffs=value)
    if len(values) == 2 or any(a >= b for a, b in itertools.pairwise(values)):
        raise ValueError(
            f"`cutoffs` must be one or more increasing integers in [1, {units}). "
            f"Received: cutoffs={list(cutoffs)}"
        )
    return [int(value) for value in cutoffs]


def _log_partition(table: ClassTable, hidden: Tensor) -> Tensor:
    """log Z (B,)."""
    return table.log_partition(hidden)


def _cross_entropy(table: ClassTable, hidden: Tensor, rows: Tensor) -> Tensor:
    """-log softmax (B,) of one row of the table for each example, `rows` (B,)."""
    true = table.scores(hidden, ops.expand_dims(rows, -1))[:, 0]
    return _log_partition(table, hidden) - true


def losses_inside(function: Callable, inside: Tensor, share: float, arrays: list[Tensor]) -> Tensor:
    """`function(*arrays)` (B,) where `inside` (B,), and 0 elsewhere; exact for every `inside`.

    It is computed for R = ceil(share B) rows if no more than that are inside, else for all B.

    Args:
        function: arrays with rows (R, ...) -> (R,).
        inside: bool (B,).
        share: in (0, 1].
        arrays: each (B, ...).
    """

    def masked(inside: Tensor, *arrays: Tensor) -> Tensor:
        return ops.where(inside, function(*arrays), 0.0)

    if share >= 1:
        return masked(inside, *arrays)
    batch = ops.shape(inside)[0]  # a tensor, where the batch is symbolic
    rows = (batch * math.ceil(share * _PARTS) + _PARTS - 1) // _PARTS
    chosen = ops.top_k(ops.cast(inside, "float32"), rows)[1]

    def of_chosen() -> Tensor:
        losses = masked(*(ops.take(x, chosen, axis=0) for x in (inside, *arrays)))
        return ops.scatter(ops.expand_dims(chosen, -1), losses, (batch,))

    fits = ops.sum(ops.cast(inside, "int32")) <= rows
    return ops.cond(fits, of_chosen, lambda: masked(inside, *arrays))

"""How a codebook is fitted to the class table, and follows it.

Shape letters: n classes, d features, K codewords, U touched rows.
"""

import functools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from softbench.common import Tensor, count_weights
from softbench.ops import (
    assign_when,
    by_shards,
    gather_rows,
    is_concrete,
    read,
    run,
    scatter_add,
    scatter_update,
)
from softbench.samplers.base import Sampler
from softbench.samplers.codebook import fit
from softbench.samplers.codebook.cells import Cells, laid_out
from softbench.samplers.kernel.class_weights import LARGEST_BIAS
from softbench.state import add_constant, add_state, check_one_replica
from softbench.targets import Targets

SMALLEST_WEIGHT = 1e-4  # of a class in the k-means, relative to the mean of all
SHARE = 1024  # classes whose cell is looked for in a step with a row optimizer, at most
FOLLOWED = 1024  # touched rows that the sums follow in a step


class FollowingCodebook(Sampler):
    """The state of the codebook sampler; `Codebook` has the arguments, the draws and the words.

    Attributes:
        codewords: the `Codewords`, as variables.
        cells: the `Cells`.
        followers: all variables that are computed from the table, by name.
        seen: int32 (n,), labels seen in training; None where the counts are given or not used.
        sums, next_cell, cursor: with a row optimizer, the `Statistics` of the cells in use, the
            cells (n,) that come into use when the cursor has passed all classes, and the cursor.
        applied: a (n,), the weights that the sums are made with.
    """

    num_codewords: int
    quantizer: str
    refresh_every: int
    counts: Any
    prior: np.ndarray | None
    prior_power: float

    def build(self, table_shape: tuple, num_sampled: int | None = None, table: Any = None) -> None:
        super().build(table_shape, num_sampled, table)
        self._add_counts()
        self._add_prior()
        self._add_followers(table)
        name = "steps" if table.row_optimizer is None else "cursor"
        setattr(self, name, add_state(self, name, dtype="int32"))

    def _add_counts(self) -> None:
        """What the weights of the k-means are made from: the counts, or the labels seen so far."""
        self.seen = self.fixed_importance = None
        if self.counts is None:
            self.seen = add_state(self, "seen", (self.units,), dtype="int32", per_class=True)
            return
        weights = np.ones(self.units)
        if isinstance(self.counts, np.ndarray):
            weights = self.counts / self.counts.max()
        weights = np.maximum(weights / weights.mean(), SMALLEST_WEIGHT)
        self.fixed_importance = add_constant(self, "fixed_importance", weights, per_class=True)

    def _add_prior(self) -> None:
        self.prior_weights = None
        if self.prior is not None:
            weights = count_weights(self.prior, self.prior_power)
            self.prior_weights = add_constant(self, "prior", weights, per_class=True)

    def _add_followers(self, table: Any) -> None:
        """The variables that are computed from the table, from a full fit at first."""
        fitted: dict[str, Tensor] = {}

        def initial(name: str) -> Callable:
            def initializer(shape: tuple, dtype: Any = None) -> Tensor:
                if name not in fitted:
                    fitted.update(self._fitted(table))
                return fitted.pop(name)

            return initializer

        def add(
            name: str, shape: tuple, dtype: str = "float32", per_class: bool = False
        ) -> keras.Variable:
            return add_state(self, name, shape, initial(name), dtype, per_class)

        first, second = fit.shapes(self._size, table.width, self.quantizer)
        weighted = self.prior is not None or table.use_bias
        self.cells = Cells(self.units, first[0] * second[0], weighted)
        self.codewords = fit.Codewords(add("first", first), add("second", second))
        own = list(self.codewords)
        if table.row_optimizer is not None:
            cells = add("cell_mass", (first[0], second[0]))
            self.sums = fit.Statistics(add("first_sums", first), add("second_sums", second), cells)
            self.next_cell = add("next_cell", (self.units,), "int32", per_class=True)
            own += [*self.sums, self.next_cell]
            self.applied = self.fixed_importance
            if self.seen is not None:
                self.applied = add("applied", (self.units,), per_class=True)
                own.append(self.applied)
        self.cells.build(initial)
        self.followers = {v.name: v for v in [*own, *self.cells.weights]}

    @property
    def _size(self) -> int:
        return min(self.num_codewords, self.units)

    def _weights(self, table: Any) -> Tensor | None:
        """w (n,) by the bias of now, or None if all are equal."""
        if not self.cells.weighted:
            return None
        weights = ops.ones((self.units,), "float32")
        if self.prior is not None:
            weights = read(self.prior_weights)
        if not table.use_bias:
            return weights
        bias = ops.cast(table.all_rows()[1], "float32")
        return weights * ops.exp(ops.clip(bias, -LARGEST_BIAS, LARGEST_BIAS))

    def _importance(self) -> Tensor:
        """a (n,), the weights of the k-means by what is known now."""
        if self.seen is None:
            return read(self.fixed_importance)
        seen = ops.cast(read(self.seen), "float32")
        mean = ops.mean(seen)
        return ops.where(mean > 0, ops.maximum(seen / mean, SMALLEST_WEIGHT), 1.0)

    def _rows(self, table: Any) -> fit.Rows:
        return lambda ids: table.normalized(table.rows(ids))

    def _fitted(self, table: Any) -> dict[str, Tensor]:
        """All followers, of a full fit."""
        self._check_rows(table)
        size = self._size
        uniform = keras.random.uniform((2, size, fit.CANDIDATES), seed=self.seed or 0)
        priority = None
        if self.units > fit.POINTS * size:
            priority = keras.random.uniform((self.units,), 1e-6, 1.0, seed=self.seed or 0)
        weight = self._importance()
        options = {"quantizer": self.quantizer, "normalize": bool(table.normalize)}
        words, cell, sums = run(fit.fit, table.all_rows()[0], weight, uniform, priority, **options)
        return self._laid_out(table, words, cell, sums, weight)

    def _passed(self, table: Any, codewords: fit.Codewords) -> dict[str, Tensor]:
        """All followers after one Lloyd pass over all classes."""
        weight = self._importance()
        cell, sums = self._sums(table, weight, None, codewords)
        return self._laid_out(table, codewords, cell, sums, weight)

    def _sums(
        self, table: Any, weight: Tensor, cell: Tensor | None, codewords: fit.Codewords
    ) -> tuple[Tensor, fit.Statistics]:
        """`fit.sums_of` all classes, each device those that it has the rows of."""
        own = functools.partial(fit.sums_of, self._rows(table), self.quantizer)
        divided = table.class_variables
        return by_shards(own, fit.joined, self.units, divided, [], weight, cell, codewords)

    def _laid_out(
        self, table: Any, old: fit.Codewords, cell: Tensor, sums: fit.Statistics, weight: Tensor
    ) -> dict[str, Tensor]:
        """All followers of classes in the cells `cell` (n,)."""
        found = fit.means(sums, old, self.quantizer)._asdict()
        found |= run(laid_out, cell, self._weights(table), size=self.cells.size)
        if table.row_optimizer is None:
            return found
        found |= {"first_sums": sums.first, "second_sums": sums.second, "cell_mass": sums.mass}
        # JAX's `fit` donates its state: no two variables may share an array.
        return found | {"next_cell": cell + 0, "applied": weight}

    def _check_rows(self, table: Any) -> None:
        kernel = table.all_rows()[0]
        if is_concrete(kernel) and not bool(ops.all(ops.isfinite(kernel))):
            raise ValueError(
                "`table` must have finite rows for a codebook to be fitted to. Received: a kernel "
                "with NaN or infinite entries"
            )

    def refresh(self, table: Any) -> None:
        """A full fit to the table of now."""
        self._check_built(table)
        found = self._fitted(table)
        for name, variable in self.followers.items():
            variable.assign(found[name])

    def observe(self, table: Any, targets: Targets) -> None:
        """Count the labels; under an ordinary optimizer, make a Lloyd pass at its turn."""
        if self.seen is not None:
            check_one_replica("codebook", "Give its class counts as `counts`.")
            scatter_add(self.seen, targets.labels, ops.cast(targets.present(), "int32"))
        if table.row_optimizer is None:
            self.refresh_when_due(table)

    def refresh_when_due(self, table: Any) -> None:
        """Count a training step, and make a Lloyd pass at every `refresh_every`-th."""
        step = read(self.steps)
        due = ops.equal(ops.mod(step, self.refresh_every), 0)
        self._assign_when(due, lambda: self._passed(table, self._words()))
        self.steps.assign(step + 1)

    def _assign_when(self, due: Tensor, compute: Callable) -> None:
        def values() -> list[Tensor]:
            found = compute()
            return [found[name] for name in self.followers]

        assign_when(due, list(self.followers.values()), values)

    def tracked_ids(self, ids: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """`FOLLOWED` of ids (U,) in proportion to their weights a, and the weight of each.

        A frequent class that every step moves is never left out, so it does not come at once with
        the moves of many steps. Fewer ids are all followed.
        """
        size = ops.shape(ids)[0]
        known = isinstance(size, int)
        if known and size <= FOLLOWED:
            return ids, {}
        count, weight = FOLLOWED if known else ops.minimum(size, FOLLOWED), self._weight_of(ids)
        step = read(self.cursor) // self._share
        places, share = fit.in_proportion(weight, count, fit.golden_shift(step))
        if not known:
            places = ops.where(size > FOLLOWED, places, ops.arange(count, dtype="int32"))
            share = ops.where(size > FOLLOWED, share, ops.take(weight, places, axis=0))
        return ops.take(ids, places, axis=0), {"weight": share}

    def _weight_of(self, ids: Tensor) -> Tensor:
        """a of ids (U,), 0 where they are padding."""
        weight = gather_rows(self.applied, ops.minimum(ids, self.units - 1))
        return ops.where(ids < self.units, weight, 0.0)

    def rows_changed(
        self,
        table: Any,
        ids: Tensor,
        old_rows: Tensor,
        new_rows: Tensor,
        weight: Tensor | None = None,
    ) -> None:
        if table.row_optimizer is None:
            return
        weight = self._weight_of(ids) if weight is None else weight
        moved = table.normalized(new_rows) - table.normalized(old_rows)
        sizes = self.codewords.first.shape[0], self.codewords.second.shape[0]
        cell = gather_rows(self.cells.cell, ops.minimum(ids, self.units - 1))
        change = fit.statistics(moved, weight, cell, sizes, self.quantizer)
        self.sums.first.assign_add(change.first)
        if self.quantizer != "single":
            self.sums.second.assign_add(change.second)
        sums = fit.Statistics(*(read(v) for v in self.sums))
        words = fit.means(sums, self._words(), self.quantizer)
        for variable, value in zip(self.codewords, words, strict=True):
            variable.assign(value)
        self._renew_share(table, words)

    def _words(self) -> fit.Codewords:
        return fit.Codewords(*(read(v) for v in self.codewords))

    @property
    def _share(self) -> int:
        """Classes whose cell is looked for in a step: all have their turn in `refresh_every`."""
        return min(SHARE, -(-self.units // self.refresh_every))

    def _renew_share(self, table: Any, words: fit.Codewords) -> None:
        """Find the nearest codewords of the next classes; put all in use when each had its turn."""
        size, cursor = self._share, read(self.cursor)
        ids = ops.mod(cursor + ops.arange(size, dtype="int32"), self.units)
        cell = fit.encode(self._rows(table)(ids), words, self.quantizer)
        scatter_update(self.next_cell, ids, cell)
        due = cursor + size >= self.units
        self._assign_when(due, lambda: self._renewed(table, words))
        self.cursor.assign(ops.mod(cursor + size, self.units))

    def _renewed(self, table: Any, words: fit.Codewords) -> dict[str, Tensor]:
        cell, weight = read(self.next_cell), self._importance()
        sums = self._sums(table, weight, cell, words)[1]
        return self._laid_out(table, words, cell, sums, weight)

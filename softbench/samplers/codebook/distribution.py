"""The distribution of the codebook sampler: a cell by its codewords, then a class within it.

q(i | h) = W[k1, k2] E1[k1] E2[k2] / Z w_i / W[k1, k2] with E1 = exp(s(h, c1)), E2 = exp(s(h, c2)),
(k1, k2) the cell of i, w_i its weight, W the sum of w over a cell, and Z = sum_k1 E1 (E2 W^T).
The scores of a codebook are taken relative to their largest, and raised to `LOWEST` where they are
below it, so that every cell with classes has a mass that float32 can hold.

Within k1 the second codewords are joined in groups of 16: the masses of all groups are one product
of E2 and W, a draw goes down to one of them, and compares 16 cells.

With `window` L, the class is drawn anew among the L classes of its window (L successive ones by
cell) from their softmax: q(i | h) = (q of the window) softmax_window(i).

Shape letters: R rows of queries (the batch, or the mixtures of its groups of examples), B batch,
m samples, K1 and K2 codewords (K2 a multiple of g), g in a group of codewords, G = K2 / g of these,
C = K1 K2 cells, L window, n classes, V windows asked for.
"""

from typing import Any, NamedTuple

from keras import ops

from softbench.common import Tensor
from softbench.groups import by_groups
from softbench.ops import (
    gather_rows,
    matmul_by_parts,
    matmul_float32,
    matmul_transposed,
    random_uniform,
    read,
    take_rows,
)
from softbench.samplers.codebook.cells import Cells, Drawn
from softbench.samplers.kernel.distribution import masked_softmax
from softbench.samplers.sum_tree import choose, draw, take_entries

LOWEST = -30.0
GROUP = 16
TOP = 64  # masses that all draws of a row are compared with first
DENSE = 4  # all classes are scored where they are at most so many times those asked for


class Query(NamedTuple):
    """What the distribution is asked about.

    Attributes:
        hidden: (B, d) as the head got it.
        first, second: (B, K1), (B, K2), log E1 / Z and log E2.
        weight: W (K1 G, g), 0 in the padding; with labels B more rows: those of the labels'
            groups, without the labels.
        groups: the masses (B, G K1) of the groups; None for a mixture.
        labels: int32 (B, 1) of classes to leave out, or None.
        label_rows: int32 (B, 1), the row of `weight` that each label is in, or None.
        mixture: log (R, K1, K2) of each group's mean of E1 E2 / Z, or None.
    """

    hidden: Tensor
    first: Tensor
    second: Tensor
    weight: Tensor
    groups: Tensor | None = None
    labels: Tensor | None = None
    label_rows: Tensor | None = None
    mixture: Tensor | None = None


class CodebookDistribution(NamedTuple):
    """Masses, draws and log-probabilities for one codebook.

    Attributes:
        table: the `ClassTable`.
        cells: the `Cells`; their numbers count k2 up to K2, unpadded.
        codewords: the pair of variables, of "single" only the first.
        split: hidden (B, d) -> what either codebook is compared with.
        window: L, or None.
    """

    table: Any
    cells: Cells
    codewords: tuple
    split: Any
    window: int | None

    @property
    def sizes(self) -> tuple[int, int, int]:
        """K1, K2 as the cells count it, and g."""
        second = self.codewords[1].shape[0]
        return self.codewords[0].shape[0], second, min(GROUP, second)

    def cell_masses(self) -> Tensor:
        """Integer W (K1 G, g), 0 in the padding."""
        first, second, group = self.sizes
        masses = ops.reshape(self.cells.masses(), (first, second))
        masses = ops.pad(masses, ((0, 0), (0, -second % group)))
        return ops.reshape(masses, (-1, group))

    def log_weights(self, hidden: Tensor, integer: Tensor) -> tuple[Tensor, Tensor]:
        """log E1 (B, K1) and log E2 (B, K2)."""
        first, second, _ = self.sizes
        by_cell = ops.reshape(integer, (first, -1))
        used = ops.any(by_cell > 0, axis=1), ops.any(by_cell > 0, axis=0)[:second]
        padding = by_cell.shape[1] - second
        parts = self.split(self.table.normalized(hidden))
        found = []
        for part, codewords, own in zip(parts, self.codewords, used, strict=True):
            scores = matmul_transposed(part, read(codewords)) / self.table.temperature
            # A codeword without classes must not set the scale.
            scores = ops.where(own, scores, -float("inf"))
            scores = scores - ops.max(scores, axis=-1, keepdims=True)
            found.append(ops.maximum(scores, LOWEST))
        found[1] = ops.pad(found[1], ((0, 0), (0, padding)), constant_values=LOWEST)
        return found[0], found[1]

    def query(self, hidden: Tensor, labels: Tensor | None, groups: int | None) -> Query:
        """Of hidden (B, d), with labels (B,) to leave out or None, or of the mixtures of groups."""
        count, _, group = self.sizes
        integer = self.cell_masses()
        first, second = self.log_weights(hidden, integer)
        weight = ops.cast(integer, "float32")
        if groups is not None:
            first = first - ops.log(self.total(first, second, weight))
            mean = self.mean_product(ops.exp(first), ops.exp(second), groups)
            return Query(hidden, first, second, weight, mixture=ops.log(mean))
        factors, parts = ops.exp(second), second.shape[1] // group
        masses = matmul_by_parts(factors, ops.reshape(weight, (count, -1)), parts)
        label_rows = None
        if labels is not None:
            labels = ops.expand_dims(labels, -1)
            label_rows, others = self.without(labels, integer)
            k1, part = self.divided(label_rows, parts)
            own = take_entries(ops.reshape(factors, (-1, parts, group)), part)[:, 0]
            rest = ops.sum(others * own, axis=-1, keepdims=True)
            examples = ops.expand_dims(ops.arange(ops.shape(masses)[0], dtype="int32"), -1)
            places = ops.concatenate([examples, part * count + k1], axis=-1)
            masses = ops.scatter_update(masses, places, rest[:, 0])
            weight = ops.concatenate([weight, others], axis=0)
        masses = ops.reshape(masses, (-1, parts, count)) * ops.exp(first)[:, None]
        masses = ops.reshape(masses, (-1, parts * count))
        total = ops.sum(masses, axis=-1, keepdims=True)
        first = first - ops.log(ops.where(total > 0, total, 1.0))
        return Query(hidden, first, second, weight, masses, labels, label_rows)

    def total(self, first: Tensor, second: Tensor, weight: Tensor) -> Tensor:
        """Z (B, 1) of log E1 and log E2, for cells of `weight` (K1 G, g)."""
        by_first = ops.reshape(weight, (first.shape[1], -1))
        masses = matmul_float32(ops.exp(second), ops.transpose(by_first))
        return ops.sum(masses * ops.exp(first), axis=-1, keepdims=True)

    @staticmethod
    def mean_product(first: Tensor, second: Tensor, groups: int) -> Tensor:
        """The means (G, K1, K2) over each group of first (B, K1) times second (B, K2)."""
        first, second = by_groups(first, groups), by_groups(second, groups)
        found = matmul_float32(ops.transpose(first, (0, 2, 1)), second)
        return found / ops.cast(ops.shape(first)[1], "float32")

    @staticmethod
    def divided(number: Tensor, by: int) -> tuple[Tensor, Tensor]:
        """Quotient and remainder of integers that are not negative."""
        quotient = number // by
        return quotient, number - quotient * by

    def without(self, labels: Tensor, integer: Tensor) -> tuple[Tensor, Tensor]:
        """The row of W (K1 G, g) that each label (B, 1) is in, and it (B, g) without the label."""
        _, second_size, group = self.sizes
        parts = -(-second_size // group)
        k1, k2 = self.divided(gather_rows(self.cells.cell, labels), second_size)
        part, place = self.divided(k2, group)
        row = k1 * parts + part
        width = self.cells.width(gather_rows(self.cells.place, labels))
        own = ops.equal(ops.arange(group, dtype="int32"), place)
        rest = take_rows(integer, row[:, 0]) - ops.where(own, width, 0)
        return row, ops.cast(rest, "float32")

    def children(self, query: Query, k1: Tensor, part: Tensor) -> Tensor:
        """W E2 (B, m, g) of the cells in the groups `part` (B, m) of `k1` (B, m)."""
        _, second_size, group = self.sizes
        parts = -(-second_size // group)
        row = k1 * parts + part
        if query.label_rows is not None:
            own = ops.arange(ops.shape(row)[0], dtype="int32") + self.sizes[0] * parts
            row = ops.where(ops.equal(row, query.label_rows), own[:, None], row)
        factors = ops.reshape(ops.exp(query.second), (-1, parts, group))
        return take_rows(query.weight, row) * take_entries(factors, part)

    def log_mass(self, query: Query, places: Tensor) -> Tensor:
        """log q (R, N) of the classes at `places` (R, N) in the order of the cells, by weight."""
        ids = gather_rows(self.cells.order, places)
        k1, k2 = self.divided(gather_rows(self.cells.cell, ids), self.sizes[1])
        width = self.cells.width(places) if self.cells.weighted else None
        return self.log_in_cell(query, k1, k2, width, ids)

    def log_in_cell(
        self, query: Query, k1: Tensor, k2: Tensor, width: Tensor | None, ids: Tensor
    ) -> Tensor:
        """log q (R, N) of the classes `ids`, of integer weight `width`, in the cells (k1, k2)."""
        if query.mixture is None:
            found = take_entries(query.first, k1) + take_entries(query.second, k2)
        else:
            flat = ops.reshape(query.mixture, (query.mixture.shape[0], -1))
            found = take_entries(flat, k1 * query.second.shape[1] + k2)
        if width is not None:
            found = found + ops.log(ops.cast(width, "float32"))
        if query.labels is None:
            return found
        return ops.where(ops.equal(ids, query.labels), -float("inf"), found)

    def draw_by_weight(
        self, query: Query, num_sampled: int, seed: Any
    ) -> tuple[Drawn, Tensor, Tensor]:
        """Classes (R, m) of cells, by weight within them, and the cells (k1, k2)."""
        count, second_size, group = self.sizes
        width = query.second.shape[1]
        if query.mixture is not None:
            masses = ops.exp(query.mixture) * ops.reshape(query.weight, (count, width))
            cell = draw(ops.reshape(masses, (masses.shape[0], -1)), num_sampled, seed)
            k1, k2 = self.divided(cell, width)
        else:
            assert query.groups is not None
            place = draw(query.groups, num_sampled, seed, TOP)
            part, k1 = self.divided(place, count)
            masses = self.children(query, k1, part)
            k2 = choose(masses, random_uniform(ops.shape(place), seed.next())) + part * group
        k2 = ops.minimum(k2, second_size - 1)
        return self.cells.draw(k1 * second_size + k2, query.labels, seed.next()), k1, k2

    def draw(self, query: Query, num_sampled: int, seed: Any) -> tuple[Tensor, Tensor]:
        """Classes (R, m), and log q of each."""
        (places, ids, weight), k1, k2 = self.draw_by_weight(query, num_sampled, seed)
        if self.window is None:
            log_q = self.log_in_cell(query, k1, k2, weight, ids)
        else:
            windows = places // self.window
            masses = self.in_windows(query, windows[0] if query.mixture is not None else windows)
            child = choose(masses, random_uniform(ops.shape(places), seed.next()))
            places = ops.minimum(windows * self.window + child, self.table.units - 1)
            log_q = ops.log(ops.take_along_axis(masses, ops.expand_dims(child, -1), axis=-1))
            log_q = ops.squeeze(log_q, -1)
            ids = gather_rows(self.cells.order, places)
        if query.labels is not None:  # where no other class can be drawn, the label is
            ids = ops.where(ops.isfinite(log_q), ids, query.labels)
        return ids, log_q

    def in_windows(self, query: Query, windows: Tensor) -> Tensor:
        """q (R, V, L) of the classes of `windows`: (V,) for all rows, or (B, V).

        The mass that the cells give to a window, times the softmax of the scores within it.
        """
        size, units = self.window, self.table.units
        places = ops.expand_dims(windows, -1) * size + ops.arange(size, dtype="int32")
        places = ops.reshape(places, (*ops.shape(windows)[:-1], -1))
        safe = ops.minimum(places, units - 1)
        ids = gather_rows(self.cells.order, safe)
        scores = ops.stop_gradient(self.scores(query.hidden, ids))
        shape = (ops.shape(scores)[0], *ops.shape(scores)[1:])
        own = query._replace(mixture=None)  # of each example
        mass = ops.exp(self.log_mass(own, ops.broadcast_to(safe, shape)))
        mass = ops.where(places < units, mass, 0.0)
        mass, scores = (ops.reshape(x, (shape[0], -1, size)) for x in (mass, scores))
        found = ops.sum(mass, axis=-1, keepdims=True) * masked_softmax(scores, mass > 0)
        return found if query.mixture is None else ops.mean(found, axis=0, keepdims=True)

    def scores(self, hidden: Tensor, ids: Tensor) -> Tensor:
        """Scores (B, N) of ids (N,), or (B, N) with repetitions, without holding (B, N, d)."""
        if len(ids.shape) == 1:
            return self.table.scores(hidden, ids[None])
        if self.table.units <= DENSE * (ids.shape[1] or 0):
            return ops.take_along_axis(self.table.scores(hidden), ids, axis=-1)

        def one(pair: tuple[Tensor, Tensor]) -> Tensor:
            return self.table.scores(pair[0][None], pair[1][None])[0]

        return ops.map(one, (hidden, ids))

    def log_prob(self, query: Query, ids: Tensor) -> Tensor:
        """log q (R, N) of classes (R, N)."""
        places = gather_rows(self.cells.place, ids)
        if self.window is None:
            return self.log_mass(query, places)
        windows = places // self.window
        masses = self.in_windows(query, windows[0] if query.mixture is not None else windows)
        child = ops.expand_dims(ops.mod(places, self.window), -1)
        return ops.log(ops.squeeze(ops.take_along_axis(masses, child, axis=-1), -1))

    def log_prob_all(self, query: Query) -> Tensor:
        """log q (R, n) of all classes."""
        units = self.table.units
        if self.window is None:
            places = ops.expand_dims(read(self.cells.place), 0)
            found = query.hidden if query.mixture is None else query.mixture
            rows = ops.shape(found)[0]
            return self.log_mass(query, ops.broadcast_to(places, (rows, units)))
        windows = ops.arange(-(-units // self.window), dtype="int32")
        masses = self.in_windows(query, windows)
        by_place = ops.reshape(masses, (-1, windows.shape[0] * self.window))
        return ops.log(ops.take(by_place, read(self.cells.place), axis=1))

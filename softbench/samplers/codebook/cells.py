"""Which classes a cell of the codebook holds, and draws of a class within it.

The classes are laid end to end in the order of their cells, each as long as its weight, an integer;
a cell is then an interval, and a draw within it is an integer below the interval's length and a
search. So the weight of a cell, what is left of it without a label, and log q are exact.

Shape letters: n classes, K1 and K2 codewords, C = K1 K2 cells, N ids or draws of any shape.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
from keras import ops

from softbench.common import Tensor
from softbench.ops import gather_rows, number_at_most, random_points, read
from softbench.samplers.static import GROUP, LARGEST_TOTAL, search
from softbench.samplers.sum_tree import take_entries
from softbench.state import add_state

TOTAL = 2.0**30  # about what integer weights add up to
STARTS = GROUP + 1  # of intervals in a row of level 0, behind the classes
CLASS_ZERO = -(2**31)  # how a row of level 0 holds class 0: its classes are below all starts


class Drawn(NamedTuple):
    """Classes drawn from cells (R, m).

    Attributes:
        places: in `order`.
        ids: of the classes.
        weight: of the classes, an integer; None if not weighted, 0 where there is no such class.
    """

    places: Tensor
    ids: Tensor
    weight: Tensor | None


def integer_widths(weight: Tensor) -> Tensor:
    """int32 (n,) proportional to `weight` (n,) up to rounding; at least 1 where that is above 0."""
    scaled = ops.maximum(ops.round(weight / ops.sum(weight) * TOTAL), 1.0)
    return ops.cast(ops.where(weight > 0, scaled, 0.0), "int32")


def exclusive_sums(widths: Tensor) -> Tensor:
    """Where each of the intervals (N,) begins, and where the last ends: int32 (N + 1,)."""
    return ops.pad(ops.cumsum(widths), ((1, 0),))


def levels_of(table: Tensor, order: Tensor) -> dict[str, Tensor]:
    """`static.search_levels` of a table (n + 1,) of the starts of classes `order` (n,), by name.

    A row of level 0 has the classes of its places before it, and behind it the first entry of the
    next group: what a search has read there then holds the class that it found, where its interval
    begins, and where it ends.
    """
    found: dict[str, Tensor] = {}
    while not found or table.shape[0] > 1:
        groups = -(-table.shape[0] // GROUP)
        missing = groups * GROUP - table.shape[0]
        padded = ops.pad(table, ((0, missing),), constant_values=LARGEST_TOTAL)
        found[f"level_{len(found)}"] = ops.reshape(padded, (groups, GROUP))
        table = padded[::GROUP]
    starts, units = found["level_0"], order.shape[0]
    following = ops.pad(starts[1:, :1], ((0, 1), (0, 0)), constant_values=LARGEST_TOTAL)
    places = ops.arange(starts.shape[0] * GROUP, dtype="int32")
    classes = ops.take(order, ops.minimum(places, units - 1), axis=0) + CLASS_ZERO
    parts = ops.reshape(classes, (-1, GROUP)), starts, following
    return found | {"level_0": ops.concatenate(parts, axis=1)}


def laid_out(cell: Tensor, weight: Tensor | None, *, size: int) -> dict[str, Tensor]:
    """The variables of `Cells`, for classes in the cells `cell` (n,) of C, of `weight` (n,)."""
    order = ops.cast(ops.argsort(cell), "int32")
    places = ops.arange(cell.shape[0], dtype="int32")
    place = ops.scatter(ops.expand_dims(order, -1), places, cell.shape)
    edges = exclusive_sums(ops.segment_sum(ops.ones_like(cell), cell, size))
    found = {"cell": cell, "order": order, "place": place, "bounds": edges}
    if weight is None:
        return found
    starts = exclusive_sums(ops.take(integer_widths(weight), order, axis=0))
    found |= {"bounds": ops.take(starts, edges, axis=0), "starts": starts, "edges": edges}
    return found | levels_of(starts, order)


class Cells(keras.layers.Layer):
    """The order of the classes, and where every cell and class begins.

    Args:
        units: n.
        size: C.
        weighted: whether classes have weights; else each has length 1, and nothing is searched.

    Attributes:
        cell: int32 (n,), of every class.
        order: int32 (n,), the classes by cell.
        place: int32 (n,), where a class stands in `order`.
        bounds: int32 (C + 1,), where the cells begin and the last one ends.
        starts: int32 (n + 1,), where the classes begin, by `order`; None if not weighted.
        edges: int32 (C + 1,), the places in `order` where the cells begin and the last one ends.
    """

    def __init__(self, units: int, size: int, weighted: bool, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.units, self.size, self.weighted = units, size, weighted

    def build(self, initial: Callable[[str], Callable]) -> None:
        """`initial` gives the initializer of the variable of a name."""

        def add(name: str, *shape: int, per_class: bool = False) -> keras.Variable:
            return add_state(self, name, shape, initial(name), "int32", per_class)

        self.cell = add("cell", self.units, per_class=True)
        self.order = add("order", self.units, per_class=True)
        self.place = add("place", self.units, per_class=True)
        self.bounds = add("bounds", self.size + 1)
        self.starts: keras.Variable | None = None
        self.levels: list[keras.Variable] = []
        self.edges = add("edges", self.size + 1) if self.weighted else self.bounds
        if self.weighted:
            self.starts, groups = add("starts", self.units + 1), self.units + 1
            while not self.levels or groups > 1:
                groups = -(-groups // GROUP)
                columns = GROUP if self.levels else GROUP + STARTS
                self.levels.append(add(f"level_{len(self.levels)}", groups, columns))

    def masses(self) -> Tensor:
        """Integer weight of every cell (C,)."""
        bounds = read(self.bounds)
        return bounds[1:] - bounds[:-1]

    def start(self, place: Tensor) -> Tensor:
        """Where the interval of the class at `place` (N) begins."""
        return place if self.starts is None else gather_rows(self.starts, place)

    def width(self, place: Tensor) -> Tensor:
        """Integer weight of the class at `place` (N)."""
        return self.start(place + 1) - self.start(place)

    def draw(self, cell: Tensor, left_out: Tensor | None, seed: Any) -> Drawn:
        """A class from each of the cells (R, m), by weight.

        `left_out` (R, 1) are classes that are not drawn, or None.
        """
        begin = gather_rows(self.bounds, cell)
        size = gather_rows(self.bounds, cell + 1) - begin
        if left_out is None:
            point = begin + random_points(ops.shape(cell), ops.maximum(size, 1), seed)
        else:
            place = gather_rows(self.place, left_out)
            inside = ops.equal(cell, gather_rows(self.cell, left_out))
            width = ops.where(inside, self.width(place), 0)
            point = begin + random_points(ops.shape(cell), ops.maximum(size - width, 1), seed)
            point = point + ops.where(point >= self.start(place), width, 0)
        if self.starts is not None:
            return self.interval_of(point)
        place = ops.minimum(point, self.units - 1)
        return Drawn(place, gather_rows(self.order, place), None)

    def interval_of(self, point: Tensor) -> Drawn:
        """The class whose interval holds a point (R, m).

        Behind the last interval it is the last class, with a weight of 0.
        """
        flat = ops.reshape(point, (-1, 1))
        group = search(self.levels[1:], flat) if self.levels[1:] else ops.zeros_like(flat)
        entries = gather_rows(self.levels[0], group[:, 0])
        inside = number_at_most(entries, flat, STARTS) - 1
        ids = take_entries(entries, inside) - CLASS_ZERO
        begin, end = (take_entries(entries, inside + GROUP + k) for k in (0, 1))
        place = group * GROUP + inside
        weight = ops.where(place < self.units, end - begin, 0)
        found = ops.minimum(place, self.units - 1), ids, weight
        return Drawn(*(ops.reshape(x, ops.shape(point)) for x in found))

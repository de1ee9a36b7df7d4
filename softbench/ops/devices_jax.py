"""Class tables that `keras.distribution` has divided over devices, on JAX.

XLA divides gathers, scatters and products of a table that is divided by rows by itself. A pass over
its classes in chunks it does not: it would send every chunk to every device. `by_shards` lets each
device pass over its own rows. Shape letters: n classes, S devices that a table is divided over.
"""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import jax
import keras
from jax.sharding import PartitionSpec

from softbench.common import Tensor

_axes: list[str] = []  # the axis of the pass that is being traced, if any


def planned_shards(path: str, shape: tuple) -> int:
    """Into how many shards the current distribution would cut the rows of a new variable."""
    distribution = keras.distribution.distribution()
    if distribution is None or not shape:
        return 1
    layout = distribution.get_variable_layout(SimpleNamespace(path=path, shape=shape))
    return _count(layout)


def _count(layout: Any) -> int:
    """S of a `TensorLayout` or None."""
    axes = getattr(layout, "axes", ())
    if not axes or axes[0] is None:
        return 1
    mesh = layout.device_mesh
    return dict(zip(mesh.axis_names, mesh.shape, strict=True))[axes[0]]


def shards(variable: keras.Variable) -> int:
    """S, into how many parts the rows of a variable are cut."""
    return _count(getattr(variable, "_layout", None))


def local_ids(value: Tensor, variable: keras.Variable, ids: Tensor) -> Tensor:
    """Where the rows `ids` of `variable` are in `value`: within `by_shards`, that of one device."""
    if value.shape[0] == variable.shape[0]:
        return ids
    return ids - jax.lax.axis_index(_axes[-1]) * value.shape[0]


def by_shards(
    function: Callable,
    join: Callable,
    units: int,
    variables: Sequence[keras.Variable],
    others: Sequence[keras.Variable],
    *arrays: Any,
) -> Any:
    """`function(first, count, *arrays)` of the classes [first, first + count), on each device.

    Within it `gather_rows` and `read` of `variables` are of these classes alone. If they are not
    divided it is called once, for all classes, and what it returns is the result.

    Args:
        function: returns arrays, of the same shapes whichever the classes are.
        join: the arrays (S, ...) of all devices, in the order of the classes -> the result.
        units: n.
        variables: (n, ...), the rows and what else is divided like them; none if the rows are
            computed from something else.
        others: further variables that it reads; any of `variables` among them does not count.
        arrays: trees of arrays, the same on all devices.
    """
    if not variables or any(shards(v) == 1 for v in variables):
        return function(0, units, *arrays)
    own = {id(v) for v in variables}
    others = [v for v in others if id(v) not in own]
    layout = variables[0]._layout
    axis, mesh = layout.axes[0], layout.device_mesh.backend_mesh
    count = units // shards(variables[0])

    def local(own: list, rest: list, *arrays: Any) -> Any:
        _axes.append(axis)
        try:
            with keras.StatelessScope() as scope:
                outer = scope.original_scope  # whose values a new scope does not see by itself
                known = {} if outer is None else outer.state_mapping
                pairs = zip([*variables, *others], [*own, *rest], strict=True)
                scope.state_mapping = {**known, **{id(v): value for v, value in pairs}}
                found = function(jax.lax.axis_index(axis) * count, count, *arrays)
        finally:
            _axes.pop()
        return jax.tree.map(lambda x: x[None], found)

    rows, everywhere = PartitionSpec(axis), PartitionSpec()
    specs = (rows, everywhere, *[everywhere] * len(arrays))
    options = {"mesh": mesh, "axis_names": {axis}, "check_vma": False}
    mapped = jax.shard_map(local, in_specs=specs, out_specs=rows, **options)
    values = [v.value for v in variables], [v.value for v in others]
    return join(jax.jit(mapped)(*values, *arrays))

"""The class table over several devices: a layout for `keras.distribution.ModelParallel`, on JAX.

    mesh = keras.distribution.DeviceMesh((2, 4), ["batch", "classes"])
    layouts = softbench.distribution.layout_map(mesh)
    keras.distribution.set_distribution(keras.distribution.ModelParallel(layout_map=layouts))

Models that are built after that have 1/4 of every class table on each device.
"""

import math
import re
from typing import Any, NamedTuple

import keras

COLLECTIVES = ("all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter")
BITS = {"pred": 8, "bf16": 16}
# The paths of the variables that have a row for each class, or block of classes: the layers that
# add them say so. (Keras asks for a layout by path, and at times after the layer was built.)
CLASS_ROWS: set[str] = set()


class ClassLayouts(keras.distribution.LayoutMap):
    """The layouts of its keys; without one, what `CLASS_ROWS` names is divided by rows."""

    def __init__(self, device_mesh: Any, axis: str) -> None:
        super().__init__(device_mesh)
        self.axis = axis

    def __getitem__(self, path: str) -> Any:
        layout = super().__getitem__(path)
        if layout is None and path in CLASS_ROWS:
            return keras.distribution.TensorLayout((self.axis,), self.device_mesh)
        return layout


def layout_map(device_mesh: Any, axis: str = "classes") -> Any:
    """A `keras.distribution.LayoutMap` that divides what has a row for each class over `axis`.

    Layers say which of their variables these are: the rows and biases of every `ClassTable` (but
    those inside `HierarchicalSoftmax` and `AdaptiveSoftmax`), the slots of its optimizer, the
    counts and codes that samplers keep for each class, and their sums over blocks of classes. All
    others are on every device; give those of your encoder layouts by keys:

        layouts = softbench.distribution.layout_map(mesh)
        layouts["encoder/.*kernel"] = (None, "classes")

    Args:
        device_mesh: a `keras.distribution.DeviceMesh`.
        axis: the name of its axis along which classes are divided. With one axis alone the batch
            is divided over it too.

    Raises:
        ValueError: if the mesh has no such axis, or the backend is not JAX.
    """
    backend = keras.backend.backend()
    if backend != "jax":
        raise ValueError(
            "`layout_map` needs the JAX backend, KERAS_BACKEND=jax: on others "
            "`keras.distribution` does nothing. On TensorFlow take `tf.distribute` with "
            f"`row_optimizer=None`. Received: KERAS_BACKEND={backend!r}"
        )
    if axis not in device_mesh.axis_names:
        raise ValueError(
            f"`axis` must be one of the axes of the mesh, {list(device_mesh.axis_names)}. "
            f"Received: axis={axis!r}"
        )
    return ClassLayouts(device_mesh, axis)


class Collective(NamedTuple):
    """One instruction that moves data between devices.

    Attributes:
        kind: of `COLLECTIVES`.
        elements: numbers in its largest result, on one device.
        bytes: of all its results, on one device.
        looped: whether it is in the body of a loop, and so may be run more than once.
    """

    kind: str
    elements: int
    bytes: int
    looped: bool


def collectives(hlo: str) -> list[Collective]:
    """The collective instructions of a compiled step.

    Args:
        hlo: `jax.jit(step).lower(...).compile().as_text()`.
    """
    kinds = "|".join(COLLECTIVES)
    instruction = re.compile(rf"= (.*?) ({kinds})(-start)?\(")
    found, looped, name = [], _in_loops(hlo), ""
    for line in hlo.splitlines():
        if header := _HEADER.match(line):
            name = header[1]
        match = instruction.search(line)
        if match is None:
            continue
        shapes = re.findall(r"([a-z]+\d*)\[([\d,]*)\]", match[1])
        if match[3] and match[2] != "all-reduce":
            shapes = shapes[len(shapes) // 2 :]  # after the operands
        sizes = [math.prod(int(x) for x in dims.split(",") if x) for _, dims in shapes]
        widths = [_bits(dtype) for dtype, _ in shapes]
        total = sum(size * bits // 8 for size, bits in zip(sizes, widths, strict=True))
        found.append(Collective(match[2], max(sizes, default=0), total, name in looped))
    return found


_HEADER = re.compile(r"(?:ENTRY )?%?([\w.\-]+) \(.*\{$")
_CALLED = re.compile(r"(?:body|condition|calls|to_apply|\w+_computations?)=(\{[^}]*\}|%?[\w.\-]+)")


def _in_loops(hlo: str) -> set[str]:
    """The computations that a loop runs, by name."""
    called: dict[str, set[str]] = {}
    waiting, name = set(), ""
    for line in hlo.splitlines():
        if header := _HEADER.match(line):
            name = header[1]
        used = {x for names in _CALLED.findall(line) for x in re.findall(r"[\w.\-]+", names)}
        called.setdefault(name, set()).update(used)
        if " while(" in line:
            waiting |= used
    found: set[str] = set()
    while waiting:
        found.add(one := waiting.pop())
        waiting |= called.get(one, set()) - found
    return found


def collective_bytes(hlo: str) -> dict[str, dict[str, int]]:
    """How many collectives of each kind a compiled step has, and the bytes of their results.

    Of one device, each instruction counted once; `collectives` tells which are in a loop.

    Example:
        >>> line = "%r = f32[4,8]{1,0} all-reduce(f32[4,8]{1,0} %x), replica_groups={{0,1}}"
        >>> softbench.distribution.collective_bytes(line)
        {'all-reduce': {'count': 1, 'bytes': 128}}
    """
    found: dict[str, dict[str, int]] = {}
    for one in collectives(hlo):
        own = found.setdefault(one.kind, {"count": 0, "bytes": 0})
        own["count"] += 1
        own["bytes"] += one.bytes
    return found


def _bits(dtype: str) -> int:
    """The width of an XLA type: f32 is 32."""
    digits = re.search(r"\d+", dtype)
    return BITS.get(dtype) or (int(digits[0]) if digits else 8)

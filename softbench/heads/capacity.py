"""A loss of the few rows of a batch that need it, under static shapes."""

import math
from collections.abc import Callable

from keras import ops

from softbench.common import Tensor

_PARTS = 1024  # a share of the batch is counted in these


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
        found = masked(*(ops.take(x, chosen, axis=0) for x in (inside, *arrays)))
        return ops.scatter(ops.expand_dims(chosen, -1), found, (batch,))

    fits = ops.sum(ops.cast(inside, "int32")) <= rows
    return ops.cond(fits, of_chosen, lambda: masked(inside, *arrays))

"""Orders of the classes that heads keep: leaves of a tree, ranks by frequency. NumPy."""

import numpy as np


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


def ranks(counts: np.ndarray) -> np.ndarray:
    """int32 (n,): 0 for the most frequent class, the lower id first among equals."""
    result = np.empty(len(counts), np.int32)
    result[np.argsort(-counts, kind="stable")] = np.arange(len(counts), dtype=np.int32)
    return result

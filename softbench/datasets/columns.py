"""Columns of a `pyarrow.Table` as arrays, checked. Shape letters: R rows, v features, n classes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from softbench.datasets.base import Labelled


def ids(table: Any, column: str, dtype: type = np.int32) -> tuple[np.ndarray, np.ndarray]:
    """The values of a column, and int64 `(R + 1,)` where each row's end: of a list it has several.

    Raises:
        ValueError: for missing values, or ids that are no whole numbers in [0, 2^31).
    """
    array = table.column(column).combine_chunks()
    ends = np.arange(len(array) + 1)
    missing = array.null_count
    if hasattr(array, "flatten") and hasattr(array, "offsets"):
        ends = array.offsets.to_numpy().astype(np.int64)
        ends, array = ends - ends[0], array.flatten()
        missing += array.null_count
    if missing:
        raise ValueError(f"`path`: {column!r} must have all values. Received: {missing} missing")
    values = array.to_numpy(zero_copy_only=False)
    if dtype is np.int32 and len(values):
        low, high = values.min(), values.max()
        if values.dtype.kind not in "iu" or low < 0 or high >= 2**31:
            raise ValueError(
                f"`path`: {column!r} must hold whole numbers from 0 to 2^31 - 1. "
                f"Received: {values.dtype} from {low} to {high}"
            )
    return values.astype(dtype, copy=False), ends


def sparse_rows(table: Any, columns: Sequence[str]) -> Labelled:
    """Features csr float32 `(R, v)` and labels csr `(R, n)` of a `pyarrow.Table`.

    v and n are the largest ids plus 1. Lists are kept in their order.

    Raises:
        ValueError: for missing values, wrong ids, unequal lists, or a row without a label.
    """
    types = (np.int32, np.float32, np.int32)
    read = [ids(table, *pair) for pair in zip(columns, types, strict=True)]
    (features, ends), (weights, others), (labels, label_ends) = read
    if not np.array_equal(ends, others):
        raise ValueError(f"`path`: {columns[1]!r} must be as long as {columns[0]!r}")
    if not np.diff(label_ends).all():
        raise ValueError(f"`path`: every row must have one of {columns[2]!r}")
    shapes = [(len(table), 1 + int(ids.max(initial=0))) for ids in (features, labels)]
    ones = np.ones(len(labels), np.float32)
    return Labelled(
        sp.csr_matrix((weights, features, ends), shapes[0]),
        sp.csr_matrix((ones, labels, label_ends), shapes[1]),
    )

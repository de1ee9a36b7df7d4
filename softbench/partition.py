"""Passes over all classes that never hold the (B, n) scores: log-partition, top k.

Shape letters: B batch, d features, n classes, C classes of one chunk.
"""

from collections.abc import Callable
from typing import Any

from keras import ops

from softbench.common import Tensor
from softbench.ops import on_cpu

# Scores that a pass holds at once, by whether it is on a CPU. Two cores, log-partition and the best
# 5 of B = 512, n = 41,334, d = 128: on JAX .48 of the time with all scores at once (84 MB), on
# TensorFlow .88; at n = 10,000 and 12,101 .8 to .9 and 1 to 1.1.
HELD = {True: 2**21, False: 2**26}
LEAST, ALIGNED = 1024, 64  # classes of a chunk, at least and a multiple of
BATCH = 1024  # where the number of examples is not known


def class_chunk(num_classes: int, batch: Any) -> int:
    """C: at most `HELD` scores of a batch, or `LEAST` classes, in chunks of nearly equal size.

    A batch that is no positive integer is not known: None, or a symbol of JAX.
    """
    known = isinstance(batch, int) and batch > 0
    most = max(HELD[on_cpu()] // (batch if known else BATCH), LEAST)
    equal = -(-num_classes // -(-num_classes // most))
    return min(-(-equal // ALIGNED) * ALIGNED, num_classes)


def fold_classes(
    num_classes: int,
    chunk: int,
    step: Callable,
    state: tuple,
    first: int = 0,
    begin: Tensor | int = 0,
) -> tuple:
    """Apply `state = step(state, start, ids, fresh)` to every chunk of `chunk` classes.

    It begins with chunk number `first`; the ids are those from `begin` on.

    The last chunk is moved back to end at n, so that all chunks have one static shape; `fresh`
    (C,) is False for the classes that it repeats.
    """
    chunk = min(chunk, num_classes)

    def body(i: Tensor, state: tuple) -> tuple:
        start = ops.minimum(i * chunk, num_classes - chunk)
        places = start + ops.arange(chunk, dtype="int32")
        return step(state, start, begin + places, places >= i * chunk)

    return ops.fori_loop(first, -(-num_classes // chunk), body, state)


def log_partition(
    scores: Callable[[Tensor], Tensor],
    hidden: Tensor,
    labels: Tensor,
    num_classes: int,
    begin: Tensor | int = 0,
) -> tuple[Tensor, Tensor]:
    """log sum_i exp(score_i) (B, 1), and the scores (B, P) of `labels` (B, P), streamed.

    Of the `num_classes` classes from `begin` on; a label that is none of them has -inf.
    `scores(ids)` returns float32 (B, C). Both are of the same scores: half precision would round
    two computations apart.
    """

    def step(state: tuple, start: Tensor, ids: Tensor, fresh: Tensor) -> tuple:
        peak, total, true = state
        block = ops.where(fresh, scores(ids), -float("inf"))
        new_peak = ops.maximum(peak, ops.max(block, axis=-1, keepdims=True))
        safe = ops.where(ops.isfinite(new_peak), new_peak, 0.0)
        own = ops.sum(ops.exp(block - safe), axis=-1, keepdims=True)
        column = labels - ids[0]
        is_here = ops.logical_and(column >= 0, column < ids.shape[0])
        found = ops.take_along_axis(block, ops.where(is_here, column, 0), axis=-1)
        true = ops.maximum(true, ops.where(is_here, found, -float("inf")))
        return new_peak, total * ops.exp(peak - safe) + own, true

    none = ops.zeros_like(ops.cast(hidden[:, :1], "float32"))
    state = none - float("inf"), none, ops.zeros_like(labels, "float32") - float("inf")
    chunk = class_chunk(num_classes, hidden.shape[0])
    peak, total, true = fold_classes(num_classes, chunk, step, state, begin=begin)
    return peak + ops.log(total), true


def top_k(
    scores: Callable[[Tensor], Tensor],
    hidden: Tensor,
    num_classes: int,
    k: int,
    begin: Tensor | int = 0,
) -> tuple[Tensor, Tensor]:
    """The k best (scores, ids), each (B, k), streamed; equal scores: the lower id first.

    Of the `num_classes` classes from `begin` on; of fewer than k, all of them. The ids are distinct
    whatever the scores are. NaN counts as infinity, so that it is seen.
    """
    k = min(k, num_classes)
    chunk = max(class_chunk(num_classes, hidden.shape[0]), k)

    def best(ids: Tensor, fresh: Tensor | None = None) -> tuple[Tensor, Tensor]:
        block = scores(ids)
        block = block if fresh is None else ops.where(fresh, block, -float("inf"))
        return largest(block, ids, k)

    def step(state: tuple, start: Tensor, ids: Tensor, fresh: Tensor) -> tuple:
        # Repeated classes never enter: k others are there already, and of equals the first stay.
        both = zip(state, best(ids, fresh), strict=True)
        found, own = (ops.concatenate(pair, axis=-1) for pair in both)
        return largest(found, own, k)

    state = best(begin + ops.arange(chunk, dtype="int32"))
    if chunk == num_classes:
        return state
    return fold_classes(num_classes, chunk, step, state, 1, begin)


def best_of(found: tuple[Tensor, Tensor], k: int) -> tuple[Tensor, Tensor]:
    """The k best of scores and ids (S, B, K), of S parts of the classes in their order: (B, k)."""
    parts, batch, size = found[0].shape
    scores, ids = (ops.reshape(ops.transpose(x, (1, 0, 2)), (batch, parts * size)) for x in found)
    return largest(scores, ids, k)


def without(scores: Callable[[Tensor], Tensor], ids: Tensor) -> Callable[[Tensor], Tensor]:
    """`scores` with -inf for the classes that each example leaves out.

    Args:
        scores: consecutive ids (C,) -> (B, C).
        ids: (B, S), what is left out, in any order; -1 is padding.
    """
    return lambda own: ops.where(is_left_out(own, ids), -float("inf"), scores(own))


def is_left_out(ids: Tensor, left_out: Tensor) -> Tensor:
    """Which of consecutive ids (C,) each example leaves out, of `left_out` (B, S): bool (B, C).

    By a scatter: to compare all with all would take S times the memory without XLA.
    """
    batch, chunk = ops.shape(left_out)[0], ids.shape[0]
    column = left_out - ids[0]
    is_here = ops.logical_and(column >= 0, column < chunk)
    row = ops.broadcast_to(ops.arange(batch, dtype="int32")[:, None], ops.shape(left_out))
    index = ops.reshape(ops.stack([row, ops.where(is_here, column, 0)], axis=-1), (-1, 2))
    count = ops.scatter(index, ops.cast(ops.reshape(is_here, (-1,)), "int32"), (batch, chunk))
    return count > 0


def largest(found: Tensor, ids: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of the scores `found` (B, C), NaN first, and their ids; equal ones in order.

    The ids are (C,), or (B, C).
    """
    ranked = ops.where(ops.isnan(found), float("inf"), found)
    ranked = ops.where(ops.equal(found, 0.0), 0.0, ranked)  # JAX ranks -0.0 below 0.0
    order = ops.top_k(ranked, k)[1]
    own = ops.take(ids, order) if len(ids.shape) == 1 else ops.take_along_axis(ids, order, axis=-1)
    return ops.take_along_axis(found, order, axis=-1), own

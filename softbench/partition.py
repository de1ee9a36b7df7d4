"""Passes over all classes that never hold the (B, n) scores: log-partition, top k.

Shape letters: B batch, d features, n classes, C classes of one chunk.
"""

from collections.abc import Callable

from keras import ops

from softbench.common import Tensor


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
    num_classes: int,
    chunk: int,
    begin: Tensor | int = 0,
) -> Tensor:
    """log sum_i exp(score_i) (B,), streamed; `scores(ids)` returns float32 (B, C).

    Of the `num_classes` classes from `begin` on.
    """

    def step(state: tuple, start: Tensor, ids: Tensor, fresh: Tensor) -> tuple:
        peak, total = state
        block = ops.where(fresh, scores(ids), -float("inf"))
        new_peak = ops.maximum(peak, ops.max(block, axis=-1))
        safe = ops.where(ops.isfinite(new_peak), new_peak, 0.0)
        total = total * ops.exp(peak - safe) + ops.sum(ops.exp(block - safe[:, None]), axis=-1)
        return new_peak, total

    first = ops.zeros_like(ops.cast(hidden[:, 0], "float32"))
    state = first - float("inf"), first
    peak, total = fold_classes(num_classes, chunk, step, state, begin=begin)
    return peak + ops.log(total)


def top_k(
    scores: Callable[[Tensor], Tensor],
    hidden: Tensor,
    num_classes: int,
    chunk: int,
    k: int,
    begin: Tensor | int = 0,
) -> tuple[Tensor, Tensor]:
    """The k best (scores, ids), each (B, k), streamed; equal scores: the lower id first.

    Of the `num_classes` classes from `begin` on; of fewer than k, all of them. The ids are distinct
    whatever the scores are. NaN counts as infinity, so that it is seen.
    """
    k = min(k, num_classes)
    chunk = min(max(chunk, k), num_classes)

    def step(state: tuple, start: Tensor, ids: Tensor, fresh: Tensor) -> tuple:
        # Repeated classes never enter: k others are there already, and of equals the first stay.
        block = ops.where(fresh, scores(ids), -float("inf"))
        both = zip(state, (block, ops.broadcast_to(ids, ops.shape(block))), strict=True)
        found, own = (ops.concatenate(pair, axis=-1) for pair in both)
        return largest(found, own, k)

    ids = begin + ops.arange(chunk, dtype="int32")
    block = scores(ids)
    best = largest(block, ops.broadcast_to(ids, ops.shape(block)), k)
    return best if chunk == num_classes else fold_classes(num_classes, chunk, step, best, 1, begin)


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
    """The k largest of the scores `found` (B, C), NaN first, and their ids; equal ones in order."""
    ranked = ops.where(ops.isnan(found), float("inf"), found)
    ranked = ops.where(ops.equal(found, 0.0), 0.0, ranked)  # JAX ranks -0.0 below 0.0
    order = ops.top_k(ranked, k)[1]
    return tuple(ops.take_along_axis(x, order, axis=-1) for x in (found, ids))

"""Passes over all classes that never hold the (B, n) scores: log-partition, top k.

Shape letters: B batch, d features, n classes, C classes of one chunk.
"""

from collections.abc import Callable

from keras import ops

from softbench.common import Tensor

NO_CLASS = -3e38  # a score of no weight, which unlike -inf has a gradient where all scores are it


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


def bilinear_log_partition(
    hidden: Tensor,
    kernel: Tensor,
    bias: Tensor | None,
    absolute: bool,
    chunk: int,
    left_out: Tensor | None = None,
) -> Tensor:
    """log sum_i exp(<h, c_i> + b_i) (B,) with a gradient that is streamed as well.

    The gradient of log Z is the softmax: sum_i p_i c_i for h, sum_b p_bi h_b for c_i. Both are
    recomputed chunk by chunk in the backward pass, so memory is O((B + n) d + B C). Products have
    the dtype of `hidden`.

    Args:
        hidden: (B, d).
        kernel, bias: (n, d), and (n,) or None.
        absolute: whether it is |<h, c_i>|.
        chunk: C.
        left_out: None, or (B, S): rows of the kernel that are not in the sum of an example. What is
            no row is padding.

    Returns:
        (B,).
    """
    num_classes = kernel.shape[0]
    chunk = min(chunk, num_classes)
    arrays = [hidden, kernel, *([] if bias is None else [bias])]
    trained = len(arrays)
    arrays += [] if left_out is None else [left_out]

    def block(arrays: tuple[Tensor, ...], start: Tensor) -> tuple:
        h, c, *b = arrays[:trained]
        rows = ops.cast(ops.slice(c, (start, 0), (chunk, c.shape[1])), h.dtype)
        inner = ops.cast(ops.matmul(h, ops.transpose(rows)), "float32")
        logits = ops.abs(inner) if absolute else inner
        if b:
            logits = logits + ops.slice(b[0], (start,), (chunk,))
        for out in arrays[trained:]:
            ids = start + ops.arange(chunk, dtype="int32")
            logits = ops.where(is_left_out(ids, out), NO_CLASS, logits)
        return rows, inner, logits

    @ops.custom_gradient
    def function(*arrays: Tensor) -> tuple[Tensor, Callable]:
        h, c = arrays[:2]

        def scores(ids: Tensor) -> Tensor:
            return block(arrays, ids[0])[2]

        log_z = log_partition(scores, h, num_classes, chunk)

        def gradient(*args: Tensor, upstream: Tensor | None = None) -> tuple:
            upstream = args[0] if upstream is None else upstream

            def step(state: tuple, start: Tensor, ids: Tensor, fresh: Tensor) -> tuple:
                rows, inner, logits = block(arrays, start)
                p = ops.exp(logits - log_z[:, None]) * upstream[:, None]
                to_bias = ops.sum(p, axis=0)
                p = ops.cast(p * ops.sign(inner) if absolute else p, h.dtype)
                to_h = state[0] + ops.matmul(ops.where(fresh, p, ops.zeros_like(p)), rows)
                to_rows = ops.cast(ops.matmul(ops.transpose(p), h), c.dtype)
                to_c = ops.slice_update(state[1], (start, 0), to_rows)
                to_b = [ops.slice_update(g, (start,), to_bias) for g in state[2:]]
                return to_h, to_c, *to_b

            zeros = tuple(ops.zeros_like(x) for x in arrays[:trained])
            gradients = fold_classes(num_classes, chunk, step, zeros)
            return *gradients, *[None] * (len(arrays) - trained)

        return log_z, gradient

    return function(*arrays)

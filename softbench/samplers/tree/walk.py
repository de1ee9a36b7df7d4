"""Probabilities of a tree's classes and draws from it, in Keras operations.

Nodes are in heap order: the root is 1, the children of i are 2i (left) and 2i + 1 (right), and
leaf j is P + j. Row i of `nodes` (P, k + 1) holds the weights and, last, the bias of node i; inputs
x have a last feature 1. Shape letters: B batch, n classes, m samples, k features, P = 2^D leaves.
"""

from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from softbench.common import Tensor
from softbench.ops import gather_rows, matmul_transposed, random_uniform, read

UNIFORM_STEP = 2.0**-23  # between the numbers that `random_uniform` can give


class LabelPath(NamedTuple):
    """The way from the root to each example's label.

    Attributes:
        nodes: int32 (D + 1, B), the root first and the leaf last.
        log_rest: (D + 1, B), log(1 - p(label | that node)), the last -inf.
    """

    nodes: Tensor
    log_rest: Tensor


def tree_depth(nodes: keras.Variable) -> int:
    """D."""
    return nodes.shape[0].bit_length() - 1


def node_scores(nodes: keras.Variable, x: Tensor, ids: Tensor) -> Tensor:
    """w.x + b (B, m) of x (B, k + 1) and nodes `ids` (B, m), or (1, m) for every example."""
    rows = gather_rows(nodes, ids)
    if ids.shape[0] == 1:
        return matmul_transposed(x, rows[0])
    return ops.sum(rows * ops.expand_dims(x, 1), axis=-1)


def path_log_prob(
    nodes: keras.Variable, x: Tensor, leaves: Tensor, levels: int | None = None
) -> Tensor:
    """log p (B, m) of leaves (B, m), or (1, m) for every example (eq. 7): O(k log n) each.

    With `levels`, p given the leaf's ancestor that many levels up.
    """

    def step(_: Tensor, state: tuple) -> tuple:
        child, log_p = state
        score = node_scores(nodes, x, child // 2)
        return child // 2, log_p + ops.log_sigmoid(_signed(score, child))

    start = ops.zeros((ops.shape(x)[0], leaves.shape[-1]))
    levels = tree_depth(nodes) if levels is None else levels
    return ops.fori_loop(0, levels, step, (leaves + nodes.shape[0], start))[1]


def all_log_prob(nodes: keras.Variable, x: Tensor, levels: int | None = None) -> Tensor:
    """log p of all leaves (B, P), level by level: O(k n); or of the nodes `levels` down."""
    table = read(nodes)
    total = ops.zeros_like(x[:, :1])
    for level in range(tree_depth(nodes) if levels is None else levels):
        scores = matmul_transposed(x, table[2**level : 2 ** (level + 1)])
        children = ops.stack([ops.log_sigmoid(-scores), ops.log_sigmoid(scores)], axis=-1)
        total = ops.expand_dims(total, -1) + children
        total = ops.reshape(total, (-1, 2 ** (level + 1)))
    return total


def label_path(nodes: keras.Variable, x: Tensor, leaves: Tensor) -> LabelPath:
    """The path of leaves (B,).

    1 - p is the sum over the path's nodes of p(the path so far) p(its other side), added up in log
    space, so that nothing is lost where p is near 1.
    """
    depth = tree_depth(nodes)
    ids = ops.expand_dims(leaves + nodes.shape[0], -1) // (
        2 ** np.arange(depth, -1, -1, dtype=np.int32)
    )
    rest = ops.full_like(x[:, :1], -float("inf"))
    if depth:
        toward = _signed(node_scores(nodes, x, ids[:, :-1]), ids[:, 1:])
        gone = ops.log_sigmoid(toward)
        before = ops.cumsum(gone, axis=-1) - gone
        leaving = before + ops.log_sigmoid(-toward)
        later = np.triu(np.ones((depth, depth), bool))
        terms = ops.where(later, ops.expand_dims(leaving, 1), -float("inf"))
        below = ops.logsumexp(terms, axis=-1) - before
        rest = ops.concatenate([below, rest], axis=-1)
    return LabelPath(ops.transpose(ids), ops.transpose(rest))


def descend(
    nodes: keras.Variable, x: Tensor, num_sampled: int, seed: Any, path: LabelPath | None = None
) -> tuple[Tensor, Tensor]:
    """Leaves (B, m) drawn from p, and their log p (B, m).

    With `path`, no draw is that leaf: at each of its nodes the odds of its side are multiplied by
    1 - p(label | child), which is what remains there. (The log p is that of all leaves still.)

    The less likely child is taken when a uniform number falls below its probability. One more
    number for each draw fills the gaps between the uniform numbers, so that a child of
    probability 1e-10 is not drawn as often as one of 1e-7.
    """
    depth = tree_depth(nodes)
    shape = (ops.shape(x)[0], num_sampled)
    uniform = random_uniform((depth + 1, *shape), seed.next())
    fine = uniform[depth] * UNIFORM_STEP

    # A loop and not its steps written out: XLA takes a second to compile each of these.
    def step(level: Tensor, state: tuple) -> tuple:
        node, log_p = state
        score = node_scores(nodes, x, node)
        odds = score if path is None else _without_label(score, node, path, level)
        unlikely = ops.take(uniform, level, axis=0) + fine < ops.sigmoid(-ops.abs(odds))
        right = ops.logical_xor(odds > 0, unlikely)
        log_p = log_p + ops.log_sigmoid(ops.where(right, score, -score))
        return 2 * node + ops.cast(right, "int32"), log_p

    start = ops.ones(shape, "int32"), ops.zeros(shape)
    node, log_p = ops.fori_loop(0, depth, step, start)
    return node - nodes.shape[0], log_p


def _without_label(score: Tensor, node: Tensor, path: LabelPath, level: Tensor) -> Tensor:
    """Log odds (B, m) of going right once the label is left out."""
    own, child = (ops.take(path.nodes, level + step, axis=0) for step in (0, 1))
    change = _signed(ops.take(path.log_rest, level + 1, axis=0), child)
    on_path = ops.equal(node, ops.expand_dims(own, -1))
    return ops.where(on_path, score + ops.expand_dims(change, -1), score)


def _signed(score: Tensor, child: Tensor) -> Tensor:
    """The score where `child` is a right child, else its negative."""
    return ops.where(ops.equal(child % 2, 1), score, -score)

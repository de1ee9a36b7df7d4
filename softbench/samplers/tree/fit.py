"""Greedy fit of a balanced probabilistic tree, all nodes of a level at once (NumPy and SciPy).

The tree has 2^D >= n leaves. At every node the classes are halved (an odd number to within one), so
the 2^D - n padding leaves lie one each beside a class in the last level. Nodes are in heap order:
the root is 1, the children of i are 2i (left) and 2i + 1 (right), and leaf j is 2^D + j.

Shape letters: N points, n classes, k features, P = 2^D, V nodes of a level.
"""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from softbench.samplers.tree.newton import LOOSE, TIGHT, Design, Segments, ascend, sigmoid_parts
from softbench.samplers.tree.projection import largest_positive

# The bias of a node that has padding on one side: exp(-NEVER) is 0, and NEVER - NEVER a number.
NEVER = 1e30
_CHUNK = 2**15  # points whose rows of nodes are held at once
_CACHED = 1024  # classes whose products of feature sums are held at once


class Tree(NamedTuple):
    """A fitted tree.

    Attributes:
        nodes: float64 (P, k + 1): weights and, last, bias of each node; row 0 is not used.
        leaf_of_label: int32 (n,).
        levels: one `Level` for each level, the root first.
    """

    nodes: np.ndarray
    leaf_of_label: np.ndarray
    levels: list["Level"]


class Level(NamedTuple):
    """How the fit of a level went.

    Attributes:
        alternations: the most that one of its nodes took.
        settled: whether every node's split stopped changing.
        newton_steps: of all alternations, nodes taken together.
        objective: the regularised log-likelihood of its nodes, eq. 8 with the ridge.
    """

    alternations: int
    settled: bool
    newton_steps: int
    objective: float


class FitOptions(NamedTuple):
    """See `AdversarialTree`."""

    regularization: float = 0.1
    max_alternations: int = 10
    max_points_per_node: int | None = None
    seed: int | None = None


def tree_depth(num_classes: int) -> int:
    """D, the levels of nodes above the leaves."""
    return max(num_classes - 1, 0).bit_length()


def fit_tree(
    features: np.ndarray,
    labels: np.ndarray,
    num_classes: int,
    options: FitOptions,
    on_level: Callable[[int, Level], None] | None = None,
) -> Tree:
    """Fits nodes and label order from the root down (Bamler & Mandt, section 3).

    Args:
        features: (N, k).
        labels: int (N,), in [0, n).
        num_classes: n.
        options: `FitOptions`.
        on_level: called after each level.
    """
    design = Design(features, labels, num_classes)
    depth = tree_depth(num_classes)
    nodes = np.zeros((2**depth, design.width))
    node_of_label = np.zeros(num_classes, np.int64)
    levels = []
    rng = np.random.default_rng(options.seed)
    for depth_above in range(depth):
        width = 2**depth_above
        split = LevelFit(design, node_of_label, width, options, rng)
        levels.append(split.run())
        nodes[width : 2 * width] = split.weights
        node_of_label = 2 * node_of_label + split.right
        if on_level is not None:
            on_level(depth_above, levels[-1])
    return Tree(nodes, node_of_label.astype(np.int32), levels)


class LevelFit:
    """The nodes of one level: Newton ascent and balanced split in turn, until no split changes.

    Attributes:
        weights: (V, k + 1).
        right: bool (n,), the side of each class.
    """

    def __init__(
        self,
        design: Design,
        node_of_label: np.ndarray,
        num_nodes: int,
        options: FitOptions,
        rng: np.random.Generator,
    ) -> None:
        self.design, self.node, self.options = design, node_of_label, options
        self.classes = np.bincount(node_of_label, minlength=num_nodes)
        self.order = np.argsort(node_of_label, kind="stable")
        self.points = design.segments(self.order, self.classes)
        self.sample = self.points.sample(options.max_points_per_node, rng)
        self.weights = np.zeros((num_nodes, design.width))
        self.right = np.zeros(len(node_of_label), bool)
        self.steps = 0

    def run(self) -> Level:
        free = self.classes > 1
        self.weights[:, :-1] = self._dominant_directions()
        self._split(free)
        active, alternations = free, 0
        while active.any() and alternations < self.options.max_alternations:
            self._newton(self.sample, active, LOOSE)
            alternations += 1
            active = self._split(active, last=alternations == self.options.max_alternations)
        self._newton(self.points, free, TIGHT)
        self.weights[~free] = 0.0
        self.weights[~free, -1] = -NEVER  # its one class is on the left
        self.right[~free[self.node]] = False
        return Level(alternations, not active.any(), self.steps, self._objective(free))

    def _dominant_directions(self) -> np.ndarray:
        """First eigenvector (V, k) of the covariance of the feature sums of each node's classes."""
        sums = self.design.class_sums[self.order, :-1]
        starts = np.concatenate([[0], np.cumsum(self.classes)])
        count = len(self.classes)
        means = np.add.reduceat(sums, starts[:-1], axis=0) / self.classes[:, None]
        centred = sums - np.repeat(means, self.classes, axis=0)
        if count <= 256:
            covariance = np.stack(
                [centred[a:b].T @ centred[a:b] for a, b in itertools.pairwise(starts)]
            )
        else:
            covariance = np.zeros((count, sums.shape[1], sums.shape[1]))
            for start in range(0, len(sums), _CACHED):
                part = centred[start : start + _CACHED]
                node, first = np.unique(
                    self.node[self.order[start : start + _CACHED]], return_index=True
                )
                products = part[:, :, None] * part[:, None, :]
                covariance[node] += np.add.reduceat(products, first, axis=0)
        return largest_positive(np.linalg.eigh(covariance)[1][:, :, -1])

    def _split(self, active: np.ndarray, last: bool = False) -> np.ndarray:
        """Puts the half of each active node's classes with the largest Delta_y right (eq. 9).

        Where the number of classes is odd, the middle one goes where its Delta_y points.

        Args:
            active: bool (V,), the nodes.
            last: only look whether a split would change.

        Returns:
            bool (V,): the nodes of which a class that has points changes its side.
        """
        labels = self.order[active[self.node[self.order]]]
        node = self.node[labels]
        delta = np.einsum("ij,ij->i", self.design.class_sums[labels], self.weights[node])
        by_delta = np.lexsort((-delta, node))
        sizes = self.classes[active]
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        half = sizes // 2
        middle = delta[by_delta[starts + half]]
        half = half + ((sizes % 2 == 1) & (middle > 0))
        rank = np.arange(len(labels)) - np.repeat(starts, sizes)
        right = np.empty(len(labels), bool)
        right[by_delta] = rank < np.repeat(half, sizes)
        moved = (right != self.right[labels]) & (self.design.counts[labels] > 0)
        if not last:
            self.right[labels] = right
        return np.bincount(node[moved], minlength=len(active)) > 0

    def _newton(self, points: Segments, active: np.ndarray, tolerance: float) -> None:
        ridge = self.options.regularization
        weights, steps = ascend(
            self.design, points, self.right, self.weights, active, ridge, tolerance
        )
        self.weights, self.steps = weights, self.steps + steps

    def _objective(self, free: np.ndarray) -> float:
        scores = self.points.scores(self.design.points, self.weights)
        signed = np.where(self.right[self.design.labels[self.points.rows]], scores, -scores)
        total = sigmoid_parts(signed)[1].sum()
        return float(total - self.options.regularization * np.square(self.weights[free]).sum())


def tree_log_prob(nodes: np.ndarray, features: np.ndarray, leaves: np.ndarray) -> np.ndarray:
    """log p_n of leaf (N,) given features (N, k), float64 (eq. 7)."""
    depth = len(nodes).bit_length() - 1
    result = np.zeros(len(leaves))
    for start in range(0, len(leaves), _CHUNK):
        part = slice(start, start + _CHUNK)
        leaf, x = leaves[part].astype(np.int64) + len(nodes), features[part]
        for level in range(depth):
            child = leaf >> (depth - level - 1)
            node = nodes[child >> 1]
            score = np.einsum("ij,ij->i", node[:, :-1], x) + node[:, -1]
            result[part] += sigmoid_parts(np.where(child & 1, score, -score))[1]
    return result

"""Ridge-regularised logistic regressions at many nodes at once, by damped Newton ascent.

Node i maximises sum_x log sigmoid(zeta_x (w_i.x + b_i)) - lambda (|w_i|^2 + b_i^2) over its own
points x. Sums over the points of a node are products with a sparse (V, N) matrix, so nodes of all
sizes go together. Objective, gradient and scores are float64; the Hessian, which only decides how
fast the ascent is, is added up from float32 products.

Shape letters: N points, n classes, k features, V nodes, T = (k + 1)(k + 2) / 2.
"""

from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp

# Of the objective per point, by half the Newton decrement: between two splits, and at the end.
# With 1e-7 between splits a fit takes 1.4 times as long and its trees are no more likely.
LOOSE, TIGHT = 1e-4, 1e-10
MAX_STEPS = 50
_HALVINGS = 40
_PIECE = 4096  # points whose float32 products are added up before they become float64
_CHUNK = 2**14


class Design:
    """The points, sorted by class, with a constant feature, and what is summed over them.

    Attributes:
        points: float64 (N, k + 1), the last feature 1.
        products: float32 (N, T), the products of two features, upper triangle by rows.
        labels: (N,), sorted.
        counts: (n,) points of each class.
        class_sums: float64 (n, k + 1).
        width: k + 1.
    """

    def __init__(self, features: np.ndarray, labels: np.ndarray, num_classes: int) -> None:
        order = np.argsort(labels, kind="stable")
        self.labels = labels[order]
        self.points = np.ones((len(labels), features.shape[1] + 1))
        self.points[:, :-1] = features[order]
        self.width = self.points.shape[1]
        self.counts = np.bincount(labels, minlength=num_classes)
        self.starts = np.concatenate([[0], np.cumsum(self.counts)])
        self.first, self.second = np.triu_indices(self.width)
        self.products = np.empty((len(labels), len(self.first)), np.float32)
        for start in range(0, len(labels), _CHUNK):
            part = self.points[start : start + _CHUNK].astype(np.float32)
            self.products[start : start + _CHUNK] = part[:, self.first] * part[:, self.second]
        self.class_sums = _sum_matrix(np.ones(len(labels)), None, self.starts, self.points)

    def segments(self, order: np.ndarray, classes: np.ndarray) -> "Segments":
        """The points of nodes of which node i has the next `classes[i]` classes of `order`."""
        counts = self.counts[order]
        starts = np.concatenate([[0], np.cumsum(counts)])
        rows = np.arange(starts[-1]) + np.repeat(self.starts[order] - starts[:-1], counts)
        bounds = starts[np.concatenate([[0], np.cumsum(classes)])]
        return Segments(rows, bounds, np.ones(len(classes)))


class Segments:
    """Points grouped by node.

    Attributes:
        rows: (M,) the points, those of the first node first.
        bounds: (V + 1,), where each node's begin.
        scale: (V,), how many points each of a node's stands for.
    """

    def __init__(self, rows: np.ndarray, bounds: np.ndarray, scale: np.ndarray) -> None:
        self.rows, self.bounds, self.scale = rows, bounds, scale
        self.sizes = np.diff(bounds)
        self.node = np.repeat(np.arange(len(scale)), self.sizes)

    def take(self, keep: np.ndarray) -> "Segments":
        """The nodes `keep` (bool (V,)) alone."""
        if keep.all():
            return self
        bounds = np.concatenate([[0], np.cumsum(self.sizes[keep])])
        return Segments(self.rows[keep[self.node]], bounds, self.scale[keep])

    def sample(self, most: int | None, rng: np.random.Generator) -> "Segments":
        """At most about `most` points of each node, taken independently."""
        if most is None or self.sizes.max(initial=0) <= most:
            return self
        share = np.minimum(most / np.maximum(self.sizes, 1), 1.0)
        keep = rng.random(len(self.rows)) < share[self.node]
        sizes = np.bincount(self.node[keep], minlength=len(self.sizes))
        bounds = np.concatenate([[0], np.cumsum(sizes)])
        return Segments(self.rows[keep], bounds, self.sizes / np.maximum(sizes, 1))

    def chunks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Parts of (rows, node)."""
        for start in range(0, len(self.rows), _CHUNK):
            part = slice(start, start + _CHUNK)
            yield self.rows[part], self.node[part]

    def scores(self, points: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """w_i.x of every point (M,), of points (N, k + 1) and weights (V, k + 1)."""
        parts = [np.einsum("ij,ij->i", points[rows], weights[node]) for rows, node in self.chunks()]
        return np.concatenate(parts) if parts else np.zeros(0)

    def totals(self, values: np.ndarray) -> np.ndarray:
        """Sums (V,) of values (M,), times the scale."""
        return np.bincount(self.node, values, minlength=len(self.scale)) * self.scale

    def sums(self, values: np.ndarray, matrix: np.ndarray) -> np.ndarray:
        """sum_x value_x matrix[x] of each node, times the scale: (V, ...)."""
        return _sum_matrix(values, self.rows, self.bounds, matrix) * self.scale[:, None]

    def hessians(self, values: np.ndarray, design: Design) -> np.ndarray:
        """sum_x value_x x x^T of each node, times the scale: (V, k + 1, k + 1)."""
        pieces = np.maximum(-(-self.sizes // _PIECE), 1)
        first = np.concatenate([[0], np.cumsum(pieces)[:-1]])
        offset = (np.arange(pieces.sum()) - np.repeat(first, pieces)) * _PIECE
        starts = np.repeat(self.bounds[:-1], pieces) + offset
        bounds = np.append(starts, self.bounds[-1])
        values = values.astype(np.float32)
        parts = _sum_matrix(values, self.rows, bounds, design.products).astype(np.float64)
        sums = np.add.reduceat(parts, first, axis=0) * self.scale[:, None]
        result = np.empty((len(sums), design.width, design.width))
        result[:, design.first, design.second] = sums
        result[:, design.second, design.first] = sums
        return result


def _sum_matrix(
    values: np.ndarray, rows: np.ndarray | None, bounds: np.ndarray, matrix: np.ndarray
) -> np.ndarray:
    """Row i: the sum of values[j] * matrix[rows[j]] over j in [bounds[i], bounds[i + 1])."""
    rows = np.arange(len(values)) if rows is None else rows
    shape = (len(bounds) - 1, len(matrix))
    return sp.csr_matrix((values, rows, bounds), shape=shape) @ matrix


def sigmoid_parts(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """sigmoid(z) and log sigmoid(z), without overflow."""
    small = np.exp(-np.abs(z))
    return np.where(z > 0, 1.0, small) / (1.0 + small), np.minimum(z, 0.0) - np.log1p(small)


def ascend(
    design: Design,
    points: Segments,
    right: np.ndarray,
    weights: np.ndarray,
    active: np.ndarray,
    regularization: float,
    tolerance: float,
) -> tuple[np.ndarray, int]:
    """Damped Newton ascent of the active nodes.

    A step is halved until the objective rises by 1e-4 of what the gradient promises: it never
    falls, and separable points stop where the ridge says.

    Args:
        design: the points.
        points: of the nodes.
        right: bool (n,), the side of each class.
        weights: (V, k + 1), where to start.
        active: bool (V,).
        regularization: lambda, above 0.
        tolerance: see `LOOSE`.

    Returns:
        The weights, and the number of steps (that of the slowest node).
    """
    weights = weights.copy()
    own, points = np.flatnonzero(active), points.take(active)
    w = weights[own]
    target = right[design.labels[points.rows]]
    scores = points.scores(design.points, w)
    for step in range(MAX_STEPS):
        direction, rise = _direction(design, points, w, target, scores, regularization)
        moving = rise > 2 * tolerance * np.maximum(points.sizes * points.scale, 1.0)
        if not moving.all():
            weights[own] = w
            if not moving.any():
                return weights, step
            keep = moving[points.node]
            target, scores = target[keep], scores[keep]
            own, w, direction, rise = own[moving], w[moving], direction[moving], rise[moving]
            points = points.take(moving)
        change = points.scores(design.points, direction)
        length = _step_length(points, w, direction, rise, target, scores, change, regularization)
        w = w + length[:, None] * direction
        scores = scores + length[points.node] * change
    weights[own] = w
    return weights, MAX_STEPS


def _direction(
    design: Design,
    points: Segments,
    w: np.ndarray,
    target: np.ndarray,
    scores: np.ndarray,
    regularization: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Newton direction (V, k + 1) and its product with the gradient (V,)."""
    p = sigmoid_parts(scores)[0]
    gradient = points.sums(target - p, design.points) - 2 * regularization * w
    hessian = points.hessians(p * (1.0 - p), design)
    diagonal = np.arange(design.width)
    # The float32 sums are off by less than 1e-6 of the trace: with it added they stay positive.
    added = 2 * regularization + 1e-6 * np.trace(hessian, axis1=1, axis2=2)
    hessian[:, diagonal, diagonal] += added[:, None]
    direction = np.linalg.solve(hessian, gradient[:, :, None])[:, :, 0]
    return direction, np.einsum("ij,ij->i", direction, gradient)


def _step_length(
    points: Segments,
    w: np.ndarray,
    direction: np.ndarray,
    rise: np.ndarray,
    target: np.ndarray,
    scores: np.ndarray,
    change: np.ndarray,
    regularization: float,
) -> np.ndarray:
    """Lengths (V,) in {1, 1/2, 1/4, ..., 0} at which each node's objective rises enough."""
    sign = np.where(target, 1.0, -1.0)
    own = np.arange(len(w))
    length = np.ones(len(w))
    base = None
    for _ in range(_HALVINGS):
        if base is None:
            base = points.totals(sigmoid_parts(sign * scores)[1])
            base = base - regularization * np.square(w).sum(axis=1)
        trial = scores + length[own][points.node] * change
        found = points.totals(sigmoid_parts(sign * trial)[1])
        moved = w + length[own][:, None] * direction
        found = found - regularization * np.square(moved).sum(axis=1)
        failed = found < base + 1e-4 * length[own] * rise
        if not failed.any():
            return length
        length[own[failed]] /= 2
        keep = failed[points.node]
        sign, scores, change = sign[keep], scores[keep], change[keep]
        own, w, direction, rise = own[failed], w[failed], direction[failed], rise[failed]
        base, points = base[failed], points.take(failed)
    length[own] = 0.0
    return length

"""Ridge-regularised logistic regressions at many nodes at once, by damped Newton ascent.

Node i maximises sum_x log sigmoid(zeta_x (w_i.x + b_i)) - lambda (|w_i|^2 + b_i^2) over its own
points x. Sums over the points of a node are products with a sparse (V, N) matrix, so nodes of all
sizes go together. Objective, gradient and scores are float64; the Hessian, which only decides how
fast the ascent is, is added up from float32 products.

Shape letters: N points, n classes, k features, V nodes, T = (k + 1)(k + 2) / 2.
"""

import numpy as np
import scipy.sparse as sp

Array = np.ndarray

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

    def __init__(self, features: Array, labels: Array, num_classes: int) -> None:
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

    def segments(self, order: Array, classes: Array) -> "Segments":
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

    def __init__(self, rows: Array, bounds: Array, scale: Array) -> None:
        self.rows, self.bounds, self.scale = rows, bounds, scale
        self.sizes = np.diff(bounds)
        self.node = np.repeat(np.arange(len(scale)), self.sizes)

    def take(self, keep: Array) -> "Segments":
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

    def scores(self, points: Array, weights: Array) -> Array:
        """w_i.x of every point (M,), of points (N, k + 1) and weights (V, k + 1)."""
        result = np.empty(len(self.rows))
        for start in range(0, len(self.rows), _CHUNK):
            part = slice(start, start + _CHUNK)
            own, of_node = points[self.rows[part]], weights[self.node[part]]
            result[part] = np.einsum("ij,ij->i", own, of_node)
        return result

    def totals(self, values: Array) -> Array:
        """Sums (V,) of values (M,), times the scale."""
        return np.bincount(self.node, values, minlength=len(self.scale)) * self.scale

    def sums(self, values: Array, matrix: Array) -> Array:
        """sum_x value_x matrix[x] of each node, times the scale: (V, ...)."""
        return _sum_matrix(values, self.rows, self.bounds, matrix) * self.scale[:, None]

    def hessians(self, values: Array, design: Design) -> Array:
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


def _sum_matrix(values: Array, rows: Array | None, bounds: Array, matrix: Array) -> Array:
    """Row i: the sum of values[j] * matrix[rows[j]] over j in [bounds[i], bounds[i + 1])."""
    rows = np.arange(len(values)) if rows is None else rows
    shape = (len(bounds) - 1, len(matrix))
    return sp.csr_matrix((values, rows, bounds), shape=shape) @ matrix


def sigmoid_parts(z: Array) -> tuple[Array, Array]:
    """sigmoid(z) and log sigmoid(z), without overflow."""
    small = np.exp(-np.abs(z))
    return np.where(z > 0, 1.0, small) / (1.0 + small), np.minimum(z, 0.0) - np.log1p(small)


def ascend(
    design: Design,
    points: Segments,
    right: Array,
    weights: Array,
    active: Array,
    ridge: float,
    tolerance: float,
) -> tuple[Array, int]:
    """Damped Newton ascent of the active nodes.

    A step is halved until the objective rises by 1e-4 of what the gradient promises: it never
    falls, and separable points stop where the ridge says.

    Args:
        design: the points.
        points: of the nodes.
        right: bool (n,), the side of each class.
        weights: (V, k + 1), where to start.
        active: bool (V,).
        ridge: lambda, above 0.
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
        direction, rise = _direction(design, points, w, target, scores, ridge)
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
        length = _step_length(points, w, direction, rise, target, scores, change, ridge)
        w = w + length[:, None] * direction
        scores = scores + length[points.node] * change
    weights[own] = w
    return weights, MAX_STEPS


def _direction(
    design: Design, points: Segments, w: Array, target: Array, scores: Array, ridge: float
) -> tuple[Array, Array]:
    """Newton direction (V, k + 1) and its product with the gradient (V,)."""
    p = sigmoid_parts(scores)[0]
    gradient = points.sums(target - p, design.points) - 2 * ridge * w
    hessian = points.hessians(p * (1.0 - p), design)
    diagonal = np.arange(design.width)
    # The float32 sums are off by less than 1e-6 of the trace: with it added they stay positive.
    added = 2 * ridge + 1e-6 * np.trace(hessian, axis1=1, axis2=2)
    hessian[:, diagonal, diagonal] += added[:, None]
    direction = np.linalg.solve(hessian, gradient[:, :, None])[:, :, 0]
    return direction, np.einsum("ij,ij->i", direction, gradient)


def _step_length(
    points: Segments,
    w: Array,
    direction: Array,
    rise: Array,
    target: Array,
    scores: Array,
    change: Array,
    ridge: float,
) -> Array:
    """Lengths (V,) in {1, 1/2, 1/4, ..., 0} at which each node's objective rises enough."""
    sign = np.where(target, 1.0, -1.0)
    own = np.arange(len(w))
    length = np.ones(len(w))
    base = _objectives(points, w, sign * scores, ridge)
    for _ in range(_HALVINGS):
        trial = scores + length[own][points.node] * change
        moved = w + length[own][:, None] * direction
        found = _objectives(points, moved, sign * trial, ridge)
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


def _objectives(points: Segments, w: Array, signed: Array, ridge: float) -> Array:
    """Log-likelihood less the ridge (V,), from scores (M,) with the sign of their side."""
    return points.totals(sigmoid_parts(signed)[1]) - ridge * np.square(w).sum(axis=1)

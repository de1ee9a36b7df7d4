"""The distribution of the kernel samplers: shares of nodes among their siblings, down to a class.

q(i) is a product of shares along the path to i: of its top node among all top nodes, of each node
among those below its parent, of the class within its leaf block. A share is
M+ / (sum of the siblings' M+), with M+ = max(M, floor * w * mean): M = <phi(h), sum of phi> the
estimated mass of the node, w its prior weight, mean = (sum of |M|) / (sum of w) over the siblings.
Where all M are positive and the floor does not bind, the product is phi(h).phi(c_i) / Z (Rawat et
al. 2019, section 3.1). Whatever it is, draws and probabilities are computed from the same shares.

A label that is left out is taken off the masses of its nodes. Where it was all but `ROUNDING` of
one, what is left is rounding, of which no two computations agree: such a node gets the mean of its
siblings, by weight.

Shape letters: R rows of queries (the batch, or 1 for its mixture), B batch, m samples, K nodes or
classes asked for, D length of a feature vector, b classes in a leaf block, n classes.
"""

from typing import Any, NamedTuple

from keras import ops

from softbench.common import Tensor
from softbench.ops import (
    gather_groups,
    gather_rows,
    matmul_transposed,
    on_cpu,
    random_uniform,
    read,
)
from softbench.samplers.kernel.block_sums import CHUNK
from softbench.samplers.kernel.class_weights import ClassWeights
from softbench.samplers.kernel.features import FeatureMap
from softbench.samplers.sum_tree import choose_with_share, draw, take_entries

# Numbers that the rows of a slice of a batch read on a step of their way down, by whether it is on
# a CPU: as many as a cache holds, or else as memory can spare.
SLICE = {True: 2**20, False: 2**28}
ROUNDING = 2.0**-18


class Query(NamedTuple):
    """What the distribution is asked about.

    Attributes:
        features: (R, D), of single hidden vectors or of the batch's mixture.
        vectors: (R, d) that `features` are of, normalised if the table is; None for a mixture.
        hidden: (B, d) as the head got it.
        members: (B, D) of a mixture: the features of each example over its total mass; else None.
        labels: int32 (R, 1) of classes to leave out, or None.
        label_mass: (R, 1) mass of those classes, or None.
    """

    features: Tensor
    vectors: Tensor | None
    hidden: Tensor
    members: Tensor | None = None
    labels: Tensor | None = None
    label_mass: Tensor | None = None


def clamped(mass: Tensor, weight: Tensor, available: Tensor, floor: float) -> Tensor:
    """M+ of siblings (..., K): never negative, zero where not `available`, and not all zero."""
    mass = ops.where(available, mass, 0.0)
    weight = ops.where(available, weight, 0.0)
    if floor == 0:
        positive = ops.maximum(mass, 0.0)
    else:
        positive = ops.maximum(mass, (floor * _mean_mass(mass, weight)) * weight)
    return ops.where(ops.sum(positive, axis=-1, keepdims=True) > 0, positive, weight)


def _mean_mass(mass: Tensor, weight: Tensor, where: Tensor | None = None) -> Tensor:
    """(sum of |mass|) / (sum of weight) (..., 1) over siblings (..., K), of those in `where`."""
    mass = ops.abs(mass)
    if where is not None:
        mass, weight = ops.where(where, mass, 0.0), ops.where(where, weight, 0.0)
    total = ops.sum(weight, axis=-1, keepdims=True)
    return ops.sum(mass, axis=-1, keepdims=True) / ops.where(total > 0, total, 1.0)


def largest_divisor(number: int, limit: int) -> int:
    """The largest divisor of `number` that is at most `limit`, or 1."""
    sizes = range(1, min(number, max(limit, 1)) + 1)
    return max(size for size in sizes if number % size == 0)


def log_shares(masses: Tensor) -> Tensor:
    """log(M+ / sum of M+) along the last axis; -inf where M+ is 0."""
    total = ops.sum(masses, axis=-1, keepdims=True)
    shares = ops.log(masses) - ops.log(ops.where(total > 0, total, 1.0))
    return ops.where(masses > 0, shares, -float("inf"))


class KernelDistribution(NamedTuple):
    """Shares, draws and log-probabilities for one table.

    Attributes:
        table: the `ClassTable`.
        features: the `FeatureMap`.
        weights: the `ClassWeights`.
        blocks: the `BlockSums`, or None when one leaf holds all classes.
        block_size: b.
        floor: as in the formula above.
        exact: whether the share within a leaf is the softmax of the scores, not the kernel's.
    """

    table: Any
    features: FeatureMap
    weights: ClassWeights
    blocks: Any
    block_size: int
    floor: float
    exact: bool

    def node_masses(self, query: Query, level: int, nodes: Tensor, mass: Tensor) -> Tensor:
        """M+ of `nodes` (K,) or (R, ..., K) of a level from their `mass`, siblings on the last."""
        weight, count = self.blocks.size(level, nodes)
        if query.labels is not None:
            label = ops.reshape(query.labels, (-1,) + (1,) * (len(mass.shape) - 1))
            label_mass = ops.reshape(query.label_mass, ops.shape(label))
            inside = ops.equal(nodes, label // self.blocks.spans[level])
            prior = ops.where(inside, self.weights.prior(label), 0.0)
            weight, count = weight - prior, count - ops.cast(prior > 0, "float32")
            mass = mass - ops.where(inside, label_mass, 0.0)
            lost = ops.logical_and(inside, ops.abs(mass) < ROUNDING * ops.abs(label_mass))
            mass = ops.where(lost, weight * _mean_mass(mass, weight, ops.logical_not(lost)), mass)
        return clamped(mass, weight, count > 0.5, self.floor)

    def top(self, query: Query) -> Tensor:
        """M+ of all top nodes (R, T)."""
        sums = read(self.blocks.sums[-1])
        mass = matmul_transposed(query.features, sums)
        nodes = ops.arange(sums.shape[0], dtype="int32")
        return self.node_masses(query, len(self.blocks.sums) - 1, nodes, mass)

    def children(self, query: Query, level: int, parents: Tensor) -> Tensor:
        """M+ (R, K, branching) of the nodes of `level` under `parents` (R, K)."""
        branching = self.blocks.branching
        # A row without any mass goes to the last of the padding, which has no children.
        parents = ops.minimum(parents, self.blocks.nodes[level] // branching - 1)
        nodes = self.blocks.children(parents)
        shape = ops.shape(nodes)
        sums = gather_groups(self.blocks.sums[level], parents, branching)
        sums = ops.reshape(sums, (shape[0], -1, sums.shape[-1]))
        mass = ops.squeeze(ops.matmul(sums, ops.expand_dims(query.features, -1)), -1)
        return self.node_masses(query, level, nodes, ops.reshape(mass, shape))

    def leaf(self, query: Query, leaves: Tensor) -> Tensor:
        """M+ (R, K, b) of the classes in `leaves`: (K,) that all rows ask for, or (R, K)."""
        ids = ops.expand_dims(leaves, -1) * self.block_size
        ids = ids + ops.arange(self.block_size, dtype="int32")
        prior = self.weights.prior(ids)
        available = prior > 0
        if query.labels is not None:
            label = ops.expand_dims(query.labels, -1)
            available = ops.logical_and(available, ops.not_equal(ids, label))
        if self.block_size == 1:
            shape = (ops.shape(query.features)[0], *ops.shape(available)[-2:])
            return ops.broadcast_to(ops.cast(available, "float32"), shape)
        flat = ops.reshape(ids, (*ops.shape(leaves)[:-1], -1))
        safe = ops.minimum(flat, self.table.units - 1)
        every = self.blocks is None  # read as they are, a divided table stays where it is
        if not self.exact:
            rows = self.table.all_rows()[0] if every else self.table.rows(safe)
            rows = self.table.normalized(rows)
            mass = self.features.products(query.features, rows, query.vectors)
            mass = mass * self.weights.stored(flat)
            mass = ops.reshape(mass, (ops.shape(mass)[0], -1, self.block_size))
            return clamped(mass, prior, available, self.floor)
        rows = None if every else ops.reshape(safe, (-1, safe.shape[-1]))
        scores = ops.stop_gradient(self.table.scores(query.hidden, rows))
        scores = ops.reshape(scores, (ops.shape(scores)[0], -1, self.block_size))
        softmax = masked_softmax(scores, available)
        return softmax if query.members is None else self._mixed(query, leaves, softmax)

    def _mixed(self, query: Query, leaves: Tensor, softmax: Tensor) -> Tensor:
        """The mixture (1, K, b) of the members' softmax (B, K, b), by their mass on each leaf."""
        if self.blocks is None:
            return ops.mean(softmax, axis=0, keepdims=True)
        sums = gather_rows(self.blocks.sums[0], leaves)
        mass = ops.maximum(ops.matmul(query.members, ops.transpose(sums)), 0.0)
        total = ops.sum(mass, axis=0, keepdims=True)
        share = ops.where(total > 0, mass / ops.where(total > 0, total, 1.0), 1.0)
        return ops.sum(ops.expand_dims(share, -1) * softmax, axis=0, keepdims=True)

    def draw(self, query: Query, num_sampled: int, seed: Any) -> tuple[Tensor, Tensor]:
        """Classes (R, m), and log q of each."""
        if self.blocks is None:
            log_q = self.log_prob_all(query)
            ids = draw(ops.exp(log_q), num_sampled, seed)
            return ids, ops.take_along_axis(log_q, ids, axis=-1)
        top = self.top(query)
        node = draw(top, num_sampled, seed)
        total = ops.sum(top, axis=-1, keepdims=True)
        share = take_entries(top, node) / ops.where(total > 0, total, 1.0)
        levels = len(self.blocks.sums)
        uniform = random_uniform((ops.shape(node)[0], levels, num_sampled), seed.next())
        ids, log_shares_below = self._descend_by_slices(query, node, uniform)
        return ops.minimum(ids, self.table.units - 1), ops.log(share) + log_shares_below

    def _descend_by_slices(
        self, query: Query, node: Tensor, uniform: Tensor
    ) -> tuple[Tensor, Tensor]:
        """As `_descend`, a slice of the batch at a time.

        Where the number of rows is not fixed, all go at once.
        """
        rows, num_sampled = node.shape
        width = query.hidden.shape[-1] if self.exact else self.features.dim
        most = max(self.blocks.branching * self.features.dim, self.block_size * width)
        size = largest_divisor(rows, SLICE[on_cpu()] // (num_sampled * most)) if rows else rows
        if size == rows:
            return self._descend(query, node, uniform)
        given = query._asdict() | {"node": node, "uniform": uniform}
        pieces = {
            name: ops.reshape(value, (rows // size, size, *value.shape[1:]))
            for name, value in given.items()
            if value is not None
        }

        def descend(piece: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
            fields = (piece.get(name) for name in Query._fields)
            return self._descend(Query(*fields), piece["node"], piece["uniform"])

        ids, log_share = ops.map(descend, pieces)
        return ops.reshape(ids, (rows, num_sampled)), ops.reshape(log_share, (rows, num_sampled))

    def _descend(self, query: Query, node: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
        """From top nodes (R, m) to classes (R, m), and the log of their shares of these nodes.

        `uniform` (R, levels, m) holds a number for every step.
        """
        log_share = ops.zeros(ops.shape(node), "float32")
        for level in reversed(range(len(self.blocks.sums) - 1)):
            child, share = choose_with_share(self.children(query, level, node), uniform[:, level])
            node = node * self.blocks.branching + child
            log_share = log_share + ops.log(share)
        if self.block_size > 1:
            leaves = node[0] if query.vectors is None else node
            child, share = choose_with_share(self.leaf(query, leaves), uniform[:, -1])
            node = node * self.block_size + child
            log_share = log_share + ops.log(share)
        return node, log_share

    def log_prob(self, query: Query, ids: Tensor) -> Tensor:
        """log q of classes (R, K)."""
        if self.blocks is None:
            return ops.take_along_axis(self.log_prob_all(query), ids, axis=-1)
        spans = self.blocks.spans
        log_q = ops.take_along_axis(log_shares(self.top(query)), ids // spans[-1], axis=-1)
        for level in reversed(range(len(spans) - 1)):
            masses = self.children(query, level, ids // spans[level + 1])
            log_q = log_q + _share_of(masses, (ids // spans[level]) % self.blocks.branching)
        leaves = ids // self.block_size
        if query.vectors is None:
            leaves = leaves[0]
        return log_q + _share_of(self.leaf(query, leaves), ids % self.block_size)

    def log_prob_all(self, query: Query) -> Tensor:
        """log q of all classes (R, n)."""
        if self.blocks is None:
            masses = self.leaf(query, ops.zeros((1,), "int32"))
            return log_shares(masses)[:, 0, : self.table.units]
        log_q = log_shares(self.top(query))
        for level in reversed(range(len(self.blocks.sums) - 1)):
            sums = read(self.blocks.sums[level])
            mass = ops.matmul(query.features, ops.transpose(sums))
            nodes = ops.arange(sums.shape[0], dtype="int32")
            groups = ops.reshape(nodes, (-1, self.blocks.branching))
            mass = ops.reshape(mass, (-1, *groups.shape))
            masses = self.node_masses(query, level, ops.expand_dims(groups, 0), mass)
            log_q = ops.expand_dims(log_q[:, : groups.shape[0]], -1) + log_shares(masses)
            log_q = ops.reshape(log_q, (-1, sums.shape[0]))
        leaves = -(-self.table.units // self.block_size)
        log_q = ops.expand_dims(log_q[:, :leaves], -1) + log_shares(self._all_leaves(query, leaves))
        return ops.reshape(log_q, (-1, leaves * self.block_size))[:, : self.table.units]

    def _all_leaves(self, query: Query, leaves: int) -> Tensor:
        """M+ (R, leaves, b), never holding features or scores of more than `CHUNK` numbers."""
        width = (query.hidden.shape[0] or 1) if self.exact else self.features.dim
        size = max(1, CHUNK // (self.block_size * width))
        chunks = -(-leaves // size)
        if (self.features.exact and not self.exact) or self.block_size == 1 or chunks == 1:
            return self.leaf(query, ops.arange(leaves, dtype="int32"))
        steps = ops.arange(size, dtype="int32")
        starts = ops.arange(chunks, dtype="int32") * size
        masses = ops.map(lambda s: self.leaf(query, ops.minimum(s + steps, leaves - 1)), starts)
        masses = ops.transpose(masses, (1, 0, 2, 3))
        return ops.reshape(masses, (-1, chunks * size, self.block_size))[:, :leaves]


def _share_of(masses: Tensor, child: Tensor) -> Tensor:
    """log share (R, K) of the `child` (R, K) among masses (R, K, siblings)."""
    share = ops.take_along_axis(log_shares(masses), ops.expand_dims(child, -1), axis=-1)
    return ops.squeeze(share, -1)


def masked_softmax(scores: Tensor, available: Tensor) -> Tensor:
    """Softmax over the last axis of what is available; zero elsewhere."""
    scores = ops.where(available, scores, -float("inf"))
    peak = ops.max(scores, axis=-1, keepdims=True)
    masses = ops.exp(scores - ops.where(ops.isfinite(peak), peak, 0.0))
    total = ops.sum(masses, axis=-1, keepdims=True)
    return masses / ops.where(total > 0, total, 1.0)

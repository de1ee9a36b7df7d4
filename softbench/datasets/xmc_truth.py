"""The distribution that generated extreme classification is drawn from: p(y | x), exact.

Of examples with one label. Shape letters: B batch, n classes, v features, U nodes of the lowest
level that emits features.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

_ENTRIES = 1 << 21  # of the probabilities that are held at a time


class Source(NamedTuple):
    """How an example is drawn.

    Attributes:
        prior: `(n,)`, probabilities of the label.
        leaves: `(n,)`, the leaf of each class.
        widths: leaves under a node, of each level that emits features, the lowest first.
        tables: int `(nodes, slots)` of each such level, the features that its nodes emit.
        emitted: features that each node on the path emits.
        background: `(v,)`, probabilities of the noise.
        noise: features drawn from it.
    """

    prior: np.ndarray
    leaves: np.ndarray
    widths: list[int]
    tables: list[np.ndarray]
    emitted: int
    background: np.ndarray
    noise: int

    def examples(
        self, counts: sp.csr_matrix, labels: sp.csr_matrix
    ) -> Iterator[tuple[np.ndarray, sp.csr_matrix]]:
        """Probabilities (B, n) float64 and labels csr (B, n), for all rows a batch at a time.

        Args:
            counts: csr `(N, v)`, how often each feature was emitted.
            labels: csr `(N, n)`.
        """
        size = max(1, _ENTRIES // len(self.prior))
        for start in range(0, counts.shape[0], size):
            chunk = slice(start, start + size)
            yield self._probabilities(counts[chunk]), labels[chunk]

    def _probabilities(self, counts: sp.csr_matrix) -> np.ndarray:
        joint = self.prior * self._likelihoods(counts)[:, self.leaves // self.widths[0]]
        return joint / joint.sum(axis=1, keepdims=True)

    def _likelihoods(self, counts: sp.csr_matrix) -> np.ndarray:
        """`(B, U)`: p(counts | node), up to a factor of each row; 1 for the only node possible."""
        nodes = np.arange(len(self.tables[0])) * self.widths[0]
        possible = np.ones((counts.shape[0], len(nodes)), bool)
        for width, table in zip(self.widths, self.tables, strict=True):
            pair = (np.repeat(np.arange(len(table)), table.shape[1]), table.ravel())
            shape = (len(table), counts.shape[1])
            emits = sp.csr_matrix((np.ones(table.size), pair), shape=shape)
            emits.data[:] = 1.0  # a feature that is twice in a table
            possible &= ((counts @ emits.T).toarray() >= self.emitted)[:, nodes // width]
        result = possible.astype(np.float64)
        for row in np.flatnonzero(possible.sum(axis=1) > 1):
            row_counts = counts[row]
            for node in np.flatnonzero(possible[row]):
                path = [t[nodes[node] // w] for w, t in zip(self.widths, self.tables, strict=True)]
                result[row, node] = self._ways(
                    row_counts.indices, row_counts.data.astype(int), path
                )
        return result

    def _ways(self, ids: np.ndarray, counts: np.ndarray, path: list[np.ndarray]) -> float:
        """p(counts | path) but for factorials that all paths share: a sum over all origins.

        Args:
            ids, counts: of the features of an example.
            path: the tables of the nodes.
        """
        draws = self.emitted
        ways = {(draws,) * len(path): 1.0}  # {draws left to each node: sum so far}
        done = 0
        for feature, count in zip(ids, counts, strict=True):
            shares = [np.mean(table == feature) for table in path]
            done += count
            after: dict[tuple, float] = defaultdict(float)
            for left, weight in ways.items():
                most = [min(count, n) if p else 0 for n, p in zip(left, shares, strict=True)]
                for taken in itertools.product(*(range(n + 1) for n in most)):
                    noise = count - sum(taken)
                    rest = tuple(n - k for n, k in zip(left, taken, strict=True))
                    if noise < 0 or done - (draws * len(path) - sum(rest)) > self.noise:
                        continue
                    terms = [p**k / math.factorial(k) for p, k in zip(shares, taken, strict=True)]
                    background = self.background[feature] ** noise / math.factorial(noise)
                    after[rest] += weight * background * math.prod(terms)
            ways = after
        return ways.get((0,) * len(path), 0.0)

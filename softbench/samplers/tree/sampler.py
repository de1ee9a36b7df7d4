"""Draws from a probabilistic tree over the classes, kept in fixed weights."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from keras import ops

from softbench.common import Tensor
from softbench.ops import gather_rows, random_integers
from softbench.samplers.base import Sampler, Samples, log_mean
from softbench.samplers.tree import walk as tree_walk
from softbench.samplers.tree.fit import Tree, tree_depth
from softbench.samplers.tree.projection import Projection
from softbench.state import add_state

LOWER_LEVELS = 4  # walked for each class in a pass over all of them


class TreeSampler(Sampler):
    """p_n(y | x) = prod over y's path of sigmoid(+-(w.x + b)), at O(k log n) for a draw.

    A subclass finds the tree. Shape letters: B batch, v raw features, k components, n classes,
    m samples, P leaves.

    Args:
        num_components: k, at most v; None takes the features as they are.
        num_classes, num_features: n and v, None until they are known.
    """

    kind = "tree"
    arguments = ("num_components", "num_classes", "num_features")

    def __init__(
        self,
        num_components: int | None = 16,
        num_classes: int | None = None,
        num_features: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_components = num_components
        self.num_classes: Any = num_classes
        self.num_features: Any = num_features
        self.fitted = False
        self.found: dict[str, np.ndarray] | None = None  # until the variables are built

    @property
    def width(self) -> int:
        """k, the number of features that the nodes look at."""
        return min(self.num_components or self.num_features, self.num_features)

    def build(self, table_shape: tuple, num_sampled: int | None = None, table: Any = None) -> None:
        if self.num_classes is None or self.num_features is None:
            raise ValueError(
                "`sampler` 'adversarial' must be fitted before it is used: "
                "`AdversarialTree(...).fit(features, labels, num_classes)`. Received: not fitted"
            )
        self._check_units(table_shape[0])
        super().build(table_shape, num_sampled, table)
        leaves = 2 ** tree_depth(self.num_classes)
        if self.num_components is not None:
            self.mean = add_state(self, "mean", (self.num_features,))
            self.components = add_state(self, "components", (self.num_features, self.width))
        self.nodes = add_state(self, "nodes", (leaves, self.width + 1))
        self.leaf_of_label = add_state(self, "leaf_of_label", (self.num_classes,), dtype="int32")
        self.label_of_leaf = add_state(self, "label_of_leaf", (leaves,), dtype="int32")
        if self.found is not None:
            self._assign(self.found)

    def keep(self, projection: Projection | None, tree: Tree) -> None:
        """Takes a fitted tree: into the variables, or, before these are built, for them."""
        leaf = np.arange(len(tree.nodes))
        label = np.full(len(leaf), -1)
        label[tree.leaf_of_label] = np.arange(len(tree.leaf_of_label))
        # A padding leaf, which has probability 0, is given the class beside it.
        label = np.where(label < 0, label[leaf ^ (len(leaf) > 1)], label)
        arrays = {"nodes": tree.nodes, "leaf_of_label": tree.leaf_of_label, "label_of_leaf": label}
        if projection is not None:
            arrays |= projection._asdict()
        self.fitted = True
        if self.built:
            self._assign(arrays)
        else:
            self.found = arrays

    def _assign(self, arrays: dict[str, np.ndarray]) -> None:
        for name, array in arrays.items():
            getattr(self, name).assign(array)
        self.found = None

    def kept(self, name: str) -> np.ndarray:
        """An array of the fitted tree, float64 if it is not of integers."""
        self._check_fitted()
        array = self.found[name] if self.found else ops.convert_to_numpy(getattr(self, name))
        return array if np.issubdtype(array.dtype, np.integer) else array.astype(np.float64)

    def save_own_variables(self, store: dict) -> None:
        super().save_own_variables(store)
        store["fitted"] = np.array(self.fitted)

    def load_own_variables(self, store: dict) -> None:
        arrays = {key: store[key] for key in list(store.keys())}
        self.fitted = bool(np.asarray(arrays.pop("fitted")))
        super().load_own_variables(arrays)

    def _check_units(self, units: int) -> None:
        if units != self.num_classes:
            raise ValueError(
                f"`units` must be the {self.num_classes} classes that the tree was fitted to. "
                f"Received: {units}"
            )

    def _check_fitted(self) -> None:
        if not self.fitted:
            raise ValueError(
                "The tree must be fitted (`fit`) or loaded before it is used. Received: not fitted"
            )

    def _is_raw(self, width: int) -> bool:
        """Whether features of this width are to be projected."""
        if width not in (self.num_features, self.width):
            raise ValueError(
                f"The tree's features must have the {self.num_features} columns that it was fitted "
                f"to, or its {self.width} components. Received: {width} columns"
            )
        return self.num_components is not None and width == self.num_features

    def _inputs(self, table: Any, hidden: Tensor) -> Tensor:
        """(B, k + 1) of hidden (B, v) or (B, k)."""
        self._check_fitted()
        self._check_built(table)
        self._check_units(getattr(table, "units", self.num_classes))
        x = ops.cast(ops.stop_gradient(hidden), "float32")
        if self._is_raw(x.shape[-1]):
            x = ops.matmul(x - self.mean, self.components)
        return ops.concatenate([x, ops.ones_like(x[:, :1])], axis=-1)

    def _label_path(self, x: Tensor, labels: Tensor) -> tree_walk.LabelPath:
        return tree_walk.label_path(self.nodes, x, gather_rows(self.leaf_of_label, labels))

    def _log_prob_of(self, x: Tensor, ids: Tensor) -> Tensor:
        """log p_n (B, m) of ids (B, m), or (m,) for every example."""
        return tree_walk.path_log_prob(self.nodes, x, gather_rows(self.leaf_of_label, ids))

    def _all_log_prob(self, x: Tensor) -> Tensor:
        return ops.take(tree_walk.all_log_prob(self.nodes, x), self.leaf_of_label, axis=-1)

    def _draw(self, table, hidden, num_sampled, excluded, labels):
        x = self._inputs(table, hidden)
        log_size = math.log(num_sampled)
        if self.share_draws:
            return self._sample_shared(x, num_sampled, labels)
        path = None if excluded is None else self._label_path(x, excluded)
        leaves, log_p = tree_walk.descend(self.nodes, x, num_sampled, self.seed_generator, path)
        ids = gather_rows(self.label_of_leaf, leaves)
        if path is not None:
            log_p = _renormalized(log_p, ids, excluded, path)
        true = None
        if labels is not None:
            true = self._log_prob_of(x, labels[:, None])[:, 0] + log_size
        return Samples(ids, log_p + log_size, true)

    def _sample_shared(self, x: Tensor, num_sampled: int, labels: Tensor | None) -> Samples:
        """Each draw from the distribution of an example taken at random."""
        rows = random_integers((num_sampled,), ops.shape(x)[0], self.seed_generator.next())
        x_drawn = ops.take(x, rows, axis=0)
        leaves, _ = tree_walk.descend(self.nodes, x_drawn, 1, self.seed_generator)
        ids = gather_rows(self.label_of_leaf, leaves[:, 0])
        log_size, true = math.log(num_sampled), None
        if labels is not None:
            true = self._log_mixture(x, labels) + log_size
        return Samples(ids, self._log_mixture(x, ids) + log_size, true)

    def _log_mixture(self, x: Tensor, ids: Tensor) -> Tensor:
        """log q_bar (K,) of ids (K,)."""
        return log_mean(self._log_prob_of(x, ids))

    def log_prob_pass(self, table: Any, hidden: Tensor) -> Callable[[Tensor], Tensor]:
        """As `Sampler.log_prob_pass`; keeps log p (B, P / 16) of what is above the last levels."""
        if self.share_draws:
            return super().log_prob_pass(table, hidden)
        x = self._inputs(table, hidden)
        below = min(LOWER_LEVELS, tree_walk.tree_depth(self.nodes))
        above = tree_walk.tree_depth(self.nodes) - below
        upper = tree_walk.all_log_prob(self.nodes, x, above)

        def part(ids: Tensor) -> Tensor:
            leaves = gather_rows(self.leaf_of_label, ids)
            log_p = ops.take(upper, leaves // 2**below, axis=-1)
            return log_p + tree_walk.path_log_prob(self.nodes, x, leaves, below)

        return part

    def shared_log_prob(self, table: Any, hidden: Tensor) -> Tensor:
        """log q_bar (n,)."""
        return log_mean(self._all_log_prob(self._inputs(table, hidden)))

    def _log_prob(self, table, hidden, ids, excluded):
        x = self._inputs(table, hidden)
        if self.share_draws:
            if ids is not None:
                flat = self._log_mixture(x, ops.reshape(ids, (-1,)))
                return ops.reshape(flat, ops.shape(ids))
            log_q = log_mean(self._all_log_prob(x))
            return ops.broadcast_to(log_q[None], (ops.shape(x)[0], self.num_classes))
        log_p = self._all_log_prob(x) if ids is None else self._log_prob_of(x, ids)
        if excluded is None:
            return log_p
        ids = ops.arange(self.num_classes, dtype="int32")[None] if ids is None else ids
        return _renormalized(log_p, ids, excluded, self._label_path(x, excluded))


def _renormalized(log_p: Tensor, ids: Tensor, labels: Tensor, path: tree_walk.LabelPath) -> Tensor:
    """log p over the classes other than the label, -inf for the label."""
    hits = ops.equal(ids, ops.expand_dims(labels, -1))
    rest = ops.expand_dims(path.log_rest[0], -1)
    return ops.where(hits, -float("inf"), log_p - rest)

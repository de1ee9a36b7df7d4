"""Draws from a probabilistic tree over the classes, kept in fixed weights."""

from collections.abc import Callable
from typing import Any

import numpy as np
from keras import ops

from softbench.common import Tensor
from softbench.ops import gather_rows, random_integers, read
from softbench.samplers.base import Sampler, log_mean
from softbench.samplers.proposal import Independent
from softbench.samplers.tree import walk as tree_walk
from softbench.samplers.tree.fit import Tree, tree_depth
from softbench.samplers.tree.projection import Projection
from softbench.state import add_state

LOWER_LEVELS = 4  # walked for each class in a pass over all of them


class TreeProposal(Independent):
    """p_n(y | x) of every example, without its label where that is excluded.

    Args:
        tree: a `TreeSampler` with its variables.
        x: (B, k + 1), the features and 1.
        exclude: int32 (B,), or None.
    """

    def __init__(self, tree: Any, x: Tensor, exclude: Tensor | None) -> None:
        super().__init__(tree.num_classes, None, ops.shape(x)[0])
        self.tree, self.x, self.path, self.exclude = tree, x, None, None
        if exclude is not None:
            self.exclude = ops.expand_dims(exclude, -1)
            leaves = gather_rows(tree.leaf_of_label, exclude)
            self.path = tree_walk.label_path(tree.nodes, x, leaves)

    def draw_with_log_q(self, num_sampled: int, seed: Any) -> tuple[Tensor, Tensor]:
        leaves, log_p = tree_walk.descend(self.tree.nodes, self.x, num_sampled, seed, self.path)
        ids = gather_rows(self.tree.label_of_leaf, leaves)
        return ids, self._of_others(log_p, ids)

    def log_q(self, ids: Tensor) -> Tensor:
        leaves = gather_rows(self.tree.leaf_of_label, ids)
        return self._of_others(tree_walk.path_log_prob(self.tree.nodes, self.x, leaves), ids)

    def log_q_all(self) -> Tensor:
        log_p = tree_walk.all_log_prob(self.tree.nodes, self.x)
        log_p = ops.take(log_p, read(self.tree.leaf_of_label), axis=-1)
        return self._of_others(log_p, ops.arange(self.units, dtype="int32"))

    def class_pass(self, num_sampled: int) -> Callable[[Tensor], Tensor]:
        """It keeps log p (B, P / 16) of what is above the last levels."""
        nodes, depth = self.tree.nodes, tree_walk.tree_depth(self.tree.nodes)
        below = min(LOWER_LEVELS, depth)
        upper = tree_walk.all_log_prob(nodes, self.x, depth - below)

        def log_count(ids: Tensor) -> Tensor:
            leaves = gather_rows(self.tree.leaf_of_label, ids)
            log_p = ops.take(upper, leaves // 2**below, axis=-1)
            log_p = log_p + tree_walk.path_log_prob(nodes, self.x, leaves[None], below)
            return ops.stop_gradient(self._of_others(log_p, ids)) + self.log_total(num_sampled)

        return log_count

    def _of_others(self, log_p: Tensor, ids: Tensor) -> Tensor:
        """log p over the classes other than the label, -inf for the label."""
        if self.path is None:
            return log_p
        rest = ops.expand_dims(self.path.log_rest[0], -1)
        return ops.where(ops.equal(ids, self.exclude), -float("inf"), log_p - rest)


class TreeMixtureProposal(Independent):
    """The mean of p_n(y | x) over the examples; each draw is of an example taken at random."""

    def __init__(self, tree: Any, x: Tensor) -> None:
        super().__init__(tree.num_classes, 1, ops.shape(x)[0])
        self.members = TreeProposal(tree, x, None)

    def draw_with_log_q(self, num_sampled: int, seed: Any) -> tuple[Tensor, Tensor]:
        tree, x = self.members.tree, self.members.x
        rows = random_integers((num_sampled,), self.batch, seed.next())
        leaves, _ = tree_walk.descend(tree.nodes, ops.take(x, rows, axis=0), 1, seed)
        ids = gather_rows(tree.label_of_leaf, ops.transpose(leaves))
        return ids, self.log_q(ids)

    def log_q(self, ids: Tensor) -> Tensor:
        leaves = gather_rows(self.members.tree.leaf_of_label, ids)
        log_p = tree_walk.path_log_prob(self.members.tree.nodes, self.members.x, leaves)
        return log_mean(log_p)[None]

    def log_q_all(self) -> Tensor:
        return log_mean(self.members.log_q_all())[None]


class TreeSampler(Sampler):
    """p_n(y | x) = prod over y's path of sigmoid(+-(w.x + b)), at O(k log n) for a draw.

    A subclass finds the tree. Shape letters: B batch, v raw features, k components, n classes,
    m samples, P leaves.

    Args:
        num_components: k, at most v; None takes the features as they are.
        num_classes, num_features: n and v, None until they are known.
    """

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

    @property
    def input_width(self) -> int | None:
        return self.num_features

    def propose(self, table, hidden, exclude=None, targets=None):
        x = self._inputs(table, hidden)
        return TreeMixtureProposal(self, x) if self.rows == 1 else TreeProposal(self, x, exclude)

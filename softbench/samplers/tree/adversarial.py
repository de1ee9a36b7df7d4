"""The adversarial proposal: a probabilistic decision tree fitted to the data (Bamler & Mandt)."""

from typing import Any

import keras
import numpy as np
import scipy.sparse as sp

from softbench.common import PACKAGE, check_number, check_positive
from softbench.samplers.tree import fit as tree_fit
from softbench.samplers.tree.projection import (
    Features,
    Projection,
    principal_components,
    project,
)
from softbench.samplers.tree.sampler import TreeSampler


@keras.saving.register_keras_serializable(PACKAGE)
class AdversarialTree(TreeSampler):
    """p_n(y | x) = prod over y's path of sigmoid(+-(w.x + b)), a balanced tree over the classes.

    `fit` it before a head is built on it (Bamler & Mandt 2020, section 3). A draw costs O(k log n),
    `log_prob` of one class too, of all classes O(k n). Its input is the raw features (B, v) of
    `fit`, which it projects to k principal components, or (B, k), taken to be projected already
    (see `project`): `hidden`, or the head's `sampler_inputs` if these are given.

    Every class of [0, n) has a leaf and a positive probability. One that no label of `fit` names
    has Delta_y = 0 (eq. 9): it goes to whichever side of a split has room, and keeps what
    the ridge leaves it. With `share_draws` the batch shares m draws from the mixture
    q_bar(y) = 1/B sum_b p_n(y | x_b), corrected with log q_bar.

    Shape letters: B batch, v raw features, k components, n classes, m samples, N points.

    Args:
        num_components: k, at most v are kept; None takes the features as they are.
        regularization: lambda_n, of the ridge lambda_n (|w|^2 + b^2) on each node's
            log-likelihood, above 0. See `cross_validate`.
        max_alternations: of Newton ascent and balanced split at a node; the splits stop changing
            before that as a rule.
        max_points_per_node: where a node has more, the alternation looks at about as many of them
            taken at random; its last ascent looks at all. None: always all.
        share_draws: see above.
        seed: of the draws and of what `fit` draws.
        num_classes, num_features: n and v of a fitted tree, as a saved config has them.

    Raises:
        ValueError: for a bad argument, or, when it is built, if the tree was not fitted.
    """

    arguments = ("regularization", "max_alternations", "max_points_per_node")

    def __init__(
        self,
        num_components: int | None = 16,
        regularization: float = 0.1,
        max_alternations: int = 30,
        max_points_per_node: int | None = None,
        share_draws: bool = False,
        seed: int | None = None,
        num_classes: int | None = None,
        num_features: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            num_components, num_classes, num_features, share_draws=share_draws, seed=seed, **kwargs
        )
        check_number(0, exclusive=True, regularization=regularization)
        given = {"max_points_per_node": max_points_per_node, "num_components": num_components}
        given |= {"num_classes": num_classes, "num_features": num_features}
        check_positive(
            max_alternations=max_alternations,
            **{name: value for name, value in given.items() if value is not None},
        )
        self.regularization = regularization
        self.max_alternations = max_alternations
        self.max_points_per_node = max_points_per_node
        self.levels: list[tree_fit.Level] = []

    def fit(
        self, features: Features, labels: np.ndarray, num_classes: int, verbose: int = 1
    ) -> "AdversarialTree":
        """Fit the tree, or fit it again to other points; returns itself.

        Args:
            features: (N, v), NumPy or SciPy-sparse.
            labels: int (N,). A point with several labels is given once with each of them.
            num_classes: n.
            verbose: 0 shows no progress bar.

        Raises:
            ValueError: for bad points, or other sizes n or v than the tree was built with.
        """
        features, labels = check_points(features, labels, num_classes)
        found, expected = (num_classes, features.shape[1]), (self.num_classes, self.num_features)
        if self.built and found != expected:
            raise ValueError(
                f"`num_classes` and the width of `features` must stay {expected}: the tree has "
                f"been built. Received: {found}"
            )
        projection = self._find_projection(features)
        points = features if projection is None else project(features, projection)
        bar = None
        if verbose:
            bar = keras.utils.Progbar(tree_fit.tree_depth(num_classes), unit_name="level")
        tree = self._fit_tree(_dense(points), labels, num_classes, self.regularization, bar)
        self.num_classes, self.num_features = found
        self.keep(projection, tree)
        self.levels = tree.levels
        return self

    def cross_validate(
        self,
        features: Features,
        labels: np.ndarray,
        num_classes: int,
        regularizations: tuple[float, ...] = (0.01, 0.03, 0.1, 0.3, 1.0),
        folds: int = 3,
    ) -> dict[float, float]:
        """Set `regularization` to the one of the largest held-out mean log p_n(y | x).

        It fits `folds` trees for each and keeps none: call `fit` next.

        Returns:
            {regularization: held-out mean log p_n(y | x)}.
        """
        features, labels = check_points(features, labels, num_classes)
        if not regularizations:
            raise ValueError(f"`regularizations` must not be empty. Received: {regularizations}")
        check_number(0, exclusive=True, regularizations=min(regularizations))
        check_positive(folds=folds)
        if not 2 <= folds <= len(labels):
            raise ValueError(
                f"`folds` must be from 2 to the number of points, {len(labels)}. Received: {folds}"
            )
        order = np.random.default_rng(self.seed).permutation(len(labels))
        totals = dict.fromkeys(regularizations, 0.0)
        for held_out in np.array_split(order, folds):
            fitted = order[~np.isin(order, held_out)]
            projection = self._find_projection(features[fitted])
            points = _dense(features if projection is None else project(features, projection))
            for strength in totals:
                tree = self._fit_tree(points[fitted], labels[fitted], num_classes, strength)
                leaves = tree.leaf_of_label[labels[held_out]]
                log_p = tree_fit.tree_log_prob(tree.nodes, points[held_out], leaves)
                totals[strength] += len(held_out) * float(log_p.mean())
        scores = {strength: total / len(labels) for strength, total in totals.items()}
        self.regularization = max(scores, key=scores.__getitem__)
        return scores

    def log_likelihood(self, features: Features, labels: np.ndarray) -> float:
        """Mean log p_n(y | x) of features (N, v), or projected (N, k), and labels (N,)."""
        self._check_fitted()
        features, labels = check_points(features, labels, self.num_classes)
        leaves = self.kept("leaf_of_label")[labels]
        points = self.project(features)
        return float(tree_fit.tree_log_prob(self.kept("nodes"), points, leaves).mean())

    def project(self, features: Features) -> np.ndarray:
        """The k components (N, k) of features (N, v), to be given in their place."""
        self._check_fitted()
        features = check_features(features)
        if not self._is_raw(features.shape[1]):
            return _dense(features)
        return project(features, Projection(self.kept("mean"), self.kept("components")))

    def _find_projection(self, features: Features) -> Projection | None:
        if self.num_components is None:
            return None
        return principal_components(features, self.num_components, self.seed)

    def _fit_tree(
        self, points: np.ndarray, labels: np.ndarray, num_classes: int, strength: float, bar=None
    ) -> tree_fit.Tree:
        options = tree_fit.FitOptions(
            strength, self.max_alternations, self.max_points_per_node, self.seed
        )
        on_level = bar and (lambda level, _: bar.update(level + 1))
        return tree_fit.fit_tree(points, labels, num_classes, options, on_level)


def _dense(points: Features) -> np.ndarray:
    dense = points.toarray() if sp.issparse(points) else points
    return np.asarray(dense, np.float64)


def check_points(
    features: Features, labels: Any, num_classes: int | None
) -> tuple[Features, np.ndarray]:
    """Features (N, v), NumPy or csr, and int64 labels (N,), or a ValueError."""
    check_positive(num_classes=num_classes)
    features = check_features(features)
    labels = np.asarray(labels)
    if labels.shape != features.shape[:1] or not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(
            f"`labels` must be integers, one for each of the {features.shape[0]} rows of "
            f"`features`. Received: shape {labels.shape}, dtype {labels.dtype}"
        )
    if labels.min() < 0 or labels.max() >= num_classes:
        raise ValueError(
            f"`labels` must be in [0, {num_classes}). "
            f"Received values from {labels.min()} to {labels.max()}"
        )
    return features, labels.astype(np.int64)


def check_features(features: Features) -> Features:
    """Features (N, v), NumPy or csr, of N, v >= 1 and without infinities."""
    features = sp.csr_matrix(features) if sp.issparse(features) else np.asarray(features)
    if features.ndim != 2 or 0 in features.shape:
        raise ValueError(
            "`features` must have one row for each point and one column or more. "
            f"Received shape: {features.shape}"
        )
    values = features.data if sp.issparse(features) else features
    if not np.isfinite(values.sum()) and not np.all(np.isfinite(values)):
        raise ValueError(
            "`features` must be finite. Received "
            f"{int((~np.isfinite(values)).sum())} values that are not"
        )
    return features

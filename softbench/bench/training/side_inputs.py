"""What some heads get besides the hidden vector: a fitted tree's features, the examples' numbers.

Shape letters: B batch, N training points, v raw features, k components, n classes.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
import scipy.sparse as sp

from softbench import datasets
from softbench.common import Tensor
from softbench.models import WeightedBag
from softbench.samplers import AdversarialTree

TREE = "adversarial"
NUMBERED = "AugmentReduce"


class TreeInputs(NamedTuple):
    """How a problem's tree is fitted and fed.

    Attributes:
        points: split -> features (N, v), NumPy or SciPy-sparse, and labels (N,), one for each
            point.
        features: (fitted tree, inputs of the encoder) -> the tree's inputs, symbolic
            (B, v) or (B, k).
    """

    points: Callable[[str], tuple[Any, np.ndarray]]
    features: Callable[[AdversarialTree, list[Tensor]], Tensor]


def bag_inputs(data: datasets.MultiLabelData, dense: bool) -> TreeInputs:
    """Of rows of features; a row with several labels is a point for each of them."""

    def points(split: str) -> tuple[Any, np.ndarray]:
        features, targets = data.split(split)
        sizes, labels = np.diff(targets.indptr), np.asarray(targets.indices)
        if np.all(sizes == 1):  # no copy of the features, which may be all that memory holds
            return features, labels
        return features[np.repeat(np.arange(len(sizes)), sizes)], labels

    def features(tree: AdversarialTree, inputs: list[Tensor]) -> Tensor:
        return inputs[0] if dense else _projected(tree, inputs)

    return TreeInputs(points, features)


def triple_inputs(data: datasets.TripleData) -> TreeInputs:
    """Of pairs (head, relation) as two ones among the entities and the relations."""

    def points(split: str) -> tuple[sp.csr_matrix, np.ndarray]:
        heads, relations, tails = np.asarray(data.split(split)).T
        columns = np.stack([heads, data.num_classes + relations], axis=-1).ravel()
        ends = np.arange(0, len(columns) + 1, 2)
        shape = (len(tails), data.num_classes + data.num_relations)
        return sp.csr_matrix((np.ones(len(columns), np.float32), columns, ends), shape), tails

    def features(tree: AdversarialTree, inputs: list[Tensor]) -> Tensor:
        heads, relations = (keras.ops.expand_dims(ids, -1) for ids in inputs)
        ids = keras.ops.concatenate([heads, relations + data.num_classes], axis=-1)
        return _projected(tree, [ids, keras.ops.ones_like(ids, "float32")])

    return TreeInputs(points, features)


def _projected(tree: AdversarialTree, bag: list[Tensor]) -> Tensor:
    """The k components (B, k) of bags: ids (B, L) and weights (B, L)."""
    components, mean = tree.kept("components"), tree.kept("mean")
    table = keras.initializers.Constant(components.astype("float32"))
    layer = WeightedBag(*components.shape, embeddings_initializer=table, trainable=False)
    return keras.layers.Rescaling(1.0, (-mean @ components).tolist())(layer(bag))


def is_numbered(methods: dict) -> bool:
    """Whether a head takes the numbers of a batch's examples."""
    return any(method.get("head") == NUMBERED for method in methods.values())


def fit_tree(
    method: dict, inputs: TreeInputs | None, num_classes: int, seed: int
) -> tuple[AdversarialTree | None, float]:
    """The method's tree and the seconds that it took to fit; (None, 0.0) if it has none.

    Raises:
        ValueError: if the problem has no fixed features.
    """
    sampler = method.get("kwargs", {}).get("sampler")
    if not isinstance(sampler, dict) or sampler["class_name"] != TREE:
        return None, 0.0
    if inputs is None:
        raise ValueError(
            "`sampler` 'adversarial' needs a data set in memory whose inputs are fixed features. "
            "Received: a language, or rows that are streamed"
        )
    start = time.perf_counter()
    tree = AdversarialTree(seed=seed, **sampler.get("config", {}))
    tree.fit(*inputs.points("train"), num_classes, verbose=0)
    return tree, time.perf_counter() - start


def tree_scores(tree: AdversarialTree, inputs: TreeInputs, counts: np.ndarray) -> dict[str, float]:
    """Mean log p_n(y | x) of training and validation points, and of the labels' frequencies.

    One is added to each count for the validation points, whose labels may be new.
    """
    scores = {}
    for prefix, split, class_counts in (("", "train", counts), ("valid_", "valid", counts + 1)):
        features, labels = inputs.points(split)
        scores[f"{prefix}log_likelihood"] = tree.log_likelihood(features, labels)
        frequency = class_counts[labels] / class_counts.sum()
        scores[f"{prefix}frequency_log_likelihood"] = float(np.log(frequency).mean())
    return scores


def with_tree(encoder: keras.Model, tree: AdversarialTree, inputs: TreeInputs) -> keras.Model:
    """The encoder with the tree's features as the head's `sampler_inputs`."""
    outputs = _outputs(encoder) | {"sampler_inputs": inputs.features(tree, encoder.inputs)}
    return keras.Model(encoder.inputs, outputs)


def numbered(encoder: keras.Model) -> keras.Model:
    """The encoder with one more input, the numbers (B,) of the examples, which it passes on."""
    ids = keras.Input((), batch_size=encoder.inputs[0].shape[0], dtype="int32", name="example_ids")
    outputs = _outputs(encoder) | {"example_ids": keras.layers.Identity()(ids)}
    return keras.Model([*encoder.inputs, ids], outputs)


def _outputs(encoder: keras.Model) -> dict[str, Tensor]:
    output = encoder.output
    return dict(output) if isinstance(output, dict) else {"hidden": output}

"""The heads that the conformance tests run over, and their scores in NumPy."""

import keras
import numpy as np
import reference
from conftest import ConditionalNoise, on_table, to_numpy

from softbench import (
    AdaptiveSoftmax,
    AugmentReduce,
    FullSoftmax,
    HierarchicalSoftmax,
    NegativeSampling,
    NoiseContrastive,
    OneVsEach,
    RowAdagrad,
    SampledHinge,
    SampledSoftmax,
)

N, D, WIDTH = 11, 4, 6
NUM_EXAMPLES = 100
COUNTS = list(range(1, N + 1))
UNIQUE = {"class_name": "unigram", "config": {"counts": COUNTS, "unique": True}}
UNIGRAM = {"class_name": "unigram", "config": {"counts": COUNTS, "share_draws": True}}
PER_EXAMPLE = {"class_name": "unigram", "config": {"counts": COUNTS}}
NOISE = np.random.default_rng(8).normal(0, 0.2, (WIDTH, N))
LEAVES = [15, 0, 3, 4, 6, 7, 8, 11, 12, 13, 1]


def rows(rate=0.3):
    return {"row_optimizer": RowAdagrad(rate)}


TABLE_HEADS = {
    "full": lambda **o: on_table(FullSoftmax, N, **o),
    "full chunked": lambda **o: on_table(FullSoftmax, N, class_chunk=4, regularization=0.01, **o),
    "sampled": lambda **o: on_table(SampledSoftmax, N, "uniform", 6, **o),
    "sampled rows": lambda **o: on_table(SampledSoftmax, N, UNIQUE, 6, **rows(), **o),
    "nce binary": lambda **o: on_table(
        NoiseContrastive, N, UNIGRAM, 6, objective="binary", learn_log_partition=True, **o
    ),
    "nce ranking rows": lambda **o: on_table(
        NoiseContrastive,
        N,
        UNIGRAM,
        6,
        **rows(),
        objective="ranking",
        regularization=0.01,
        regularization_samples=4,
        **o,
    ),
    "nce conditional": lambda **o: on_table(NoiseContrastive, N, ConditionalNoise(NOISE), 6, **o),
    "negative": lambda **o: on_table(NegativeSampling, N, PER_EXAMPLE, 6, regularization=1e-3, **o),
    "negative rows": lambda **o: on_table(NegativeSampling, N, UNIQUE, 6, **rows(), **o),
    "negative conditional": lambda **o: on_table(
        NegativeSampling, N, ConditionalNoise(NOISE), 6, regularization=1e-3, **rows(), **o
    ),
    "one vs each": lambda **o: on_table(OneVsEach, N, "uniform", 6, **o),
    "one vs each rows": lambda **o: on_table(OneVsEach, N, UNIGRAM, 6, **rows(), **o),
    "augment reduce": lambda **o: on_table(
        AugmentReduce, N, "uniform", 6, num_examples=NUM_EXAMPLES, **o
    ),
    "augment reduce rows": lambda **o: on_table(
        AugmentReduce, N, UNIQUE, 6, num_examples=NUM_EXAMPLES, **rows(), **o
    ),
    "hinge": lambda **o: on_table(SampledHinge, N, "uniform", 6, **o),
    "hinge rows": lambda **o: on_table(SampledHinge, N, UNIQUE, 6, margin=0.5, **rows(), **o),
}
OTHER_HEADS = {
    "hierarchical": lambda **o: HierarchicalSoftmax(N, **o),
    "hierarchical rows": lambda **o: HierarchicalSoftmax(N, LEAVES, **rows(), **o),
    "adaptive": lambda **o: AdaptiveSoftmax(N, [3, 7], div_value=2.0, **o),
    "adaptive counts": lambda **o: AdaptiveSoftmax(
        N, [4], div_value=2.0, counts=COUNTS, tail_capacity=0.3, **o
    ),
}
HEADS = {**TABLE_HEADS, **OTHER_HEADS}


def tables(head):
    if isinstance(head, HierarchicalSoftmax):
        return [head.nodes]
    return [head.shortlist, *head.tails] if isinstance(head, AdaptiveSoftmax) else [head.table]


def randomize(head, scale=1.0):
    rng = np.random.default_rng(5)
    for table in tables(head):
        table.kernel.assign(rng.normal(0, scale, table.kernel.shape))
        if table.bias is not None:
            table.bias.assign(rng.normal(0, scale, table.bias.shape))
    for projection in getattr(head, "projections", []):
        projection.assign(rng.normal(0, scale, projection.shape))
    return head


def built(head, scale=1.0, width=D):
    head.build((None, width))
    return randomize(head, scale)


def arrays(table):
    bias = np.zeros(table.units) if table.bias is None else to_numpy(table.bias)
    return to_numpy(table.kernel).astype(float), bias.astype(float)


def numpy_scores(head, hidden, features=None):
    """Scores (B, n) in float64; features (B, v) are the sampler's inputs."""
    hidden = np.asarray(hidden, float)
    if isinstance(head, HierarchicalSoftmax):
        order = np.arange(head.units) if head.leaf_order is None else head.leaf_order
        leaf = reference.leaves(order)
        return reference.hierarchical_log_probs(hidden, *arrays(head.nodes), leaf)
    if isinstance(head, AdaptiveSoftmax):
        rank = np.arange(head.units)
        if head.counts is not None:
            rank[np.argsort(-head.counts, kind="stable")] = np.arange(head.units)
        pairs = [arrays(table) for table in tables(head)]
        projections = [to_numpy(p).astype(float) for p in head.projections]
        arguments = (hidden, pairs[0], projections, pairs[1:], head.cutoffs, rank)
        return reference.adaptive_log_probs(*arguments)
    table = head.table
    options = (table.normalize, table.temperature, table.absolute)
    return reference.scores(hidden, *arrays(table), *options) + log_noise(head, features)


def log_noise(head, features):
    """What prediction adds to the table's scores: log p_n up to a constant of each row."""
    if not isinstance(head, NegativeSampling):
        return 0.0
    if isinstance(head.sampler, ConditionalNoise):
        return np.log(reference.softmax(np.asarray(features, float) @ head.sampler.matrix))
    if head.sampler.unique:
        return np.log(reference.inclusion_probabilities(COUNTS, head.num_sampled))
    return np.log(reference.unigram_distribution(COUNTS, 1.0))


def numpy_nll(head, hidden, labels, features=None):
    scores = numpy_scores(head, hidden, features)
    return reference.negative_log_likelihood(scores, labels)


def data(size=20, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, N, size).astype("int32")
    x = np.random.default_rng(9).normal(size=(N, WIDTH))[y] + rng.normal(0, 0.1, (size, WIDTH))
    return x.astype("float32"), y


def takes_inputs(head):
    return isinstance(getattr(head, "sampler", None), ConditionalNoise)


def inputs(head, x, y):
    """The arrays that the training model of a head takes."""
    ids = [np.arange(len(y), dtype="int32")] if isinstance(head, AugmentReduce) else []
    return [x, y, *ids]


def models(head):
    """A model that trains and one that predicts with the same weights, and its hidden layer."""
    x, y = keras.Input((WIDTH,)), keras.Input((), dtype="int32")
    hidden = keras.layers.Dense(D, name="hidden")(x)
    side = {"sampler_inputs": x} if takes_inputs(head) else {}
    if isinstance(head, AugmentReduce):
        ids = keras.Input((), dtype="int32")
        training = keras.Model([x, y, ids], head(hidden, y, example_ids=ids, **side))
    else:
        training = keras.Model([x, y], head(hidden, y, **side))
    return training, keras.Model(x, head(hidden, **side)), keras.Model(x, hidden)

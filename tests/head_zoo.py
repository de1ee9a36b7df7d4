"""The heads that the conformance tests run over, and their scores in NumPy."""

from functools import partial

import keras
import numpy as np
import reference
import small
from conftest import ConditionalNoise, on_table, to_numpy
from small import spec, vectors

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
UNIQUE = spec("unigram", counts=COUNTS, unique=True)
UNIGRAM = spec("unigram", counts=COUNTS, share_draws=True)
PER_EXAMPLE = spec("unigram", counts=COUNTS)
NOISE = np.random.default_rng(8).normal(0, 0.2, (WIDTH, N))
LEAVES = [15, 0, 3, 4, 6, 7, 8, 11, 12, 13, 1]


def rows(rate=0.3):
    """Row updates, by an optimizer that each head makes for itself."""
    return {"row_optimizer": keras.saving.serialize_keras_object(RowAdagrad(rate))}


EXAMPLES = {"num_examples": NUM_EXAMPLES}
PENALTY = {"regularization": 0.01, "regularization_samples": 4}


def of(cls, *arguments, **options):
    """Makes a head of N classes, with further options."""
    return partial(on_table, cls, N, *arguments, **options)


TABLE_HEADS = {
    "full": of(FullSoftmax),
    "full chunked": of(FullSoftmax, class_chunk=4, regularization=0.01),
    "sampled": of(SampledSoftmax, "uniform", 6),
    "sampled rows": of(SampledSoftmax, UNIQUE, 6, **rows()),
    "nce binary": of(NoiseContrastive, UNIGRAM, 6, learn_log_partition=True),
    "nce ranking rows": of(NoiseContrastive, UNIGRAM, 6, objective="ranking", **PENALTY, **rows()),
    "nce conditional": lambda **o: on_table(NoiseContrastive, N, ConditionalNoise(NOISE), 6, **o),
    "negative": of(NegativeSampling, PER_EXAMPLE, 6, regularization=1e-3),
    "negative rows": of(NegativeSampling, UNIQUE, 6, **rows()),
    "negative conditional": lambda **o: on_table(
        NegativeSampling, N, ConditionalNoise(NOISE), 6, regularization=1e-3, **rows(), **o
    ),
    "one vs each": of(OneVsEach, "uniform", 6),
    "one vs each rows": of(OneVsEach, UNIGRAM, 6, **rows()),
    "augment reduce": of(AugmentReduce, "uniform", 6, **EXAMPLES),
    "augment reduce rows": of(AugmentReduce, UNIQUE, 6, **EXAMPLES, **rows()),
    "hinge": of(SampledHinge, "uniform", 6),
    "hinge rows": of(SampledHinge, UNIQUE, 6, margin=0.5, **rows()),
}
OTHER_HEADS = {
    "hierarchical": partial(HierarchicalSoftmax, N),
    "hierarchical rows": partial(HierarchicalSoftmax, N, LEAVES, **rows()),
    "adaptive": partial(AdaptiveSoftmax, N, [3, 7], div_value=2.0),
    "adaptive counts": partial(
        AdaptiveSoftmax, N, [4], div_value=2.0, counts=COUNTS, tail_capacity=0.3
    ),
}
HEADS = {**TABLE_HEADS, **OTHER_HEADS}


def tables(head):
    if isinstance(head, HierarchicalSoftmax):
        return [head.nodes]
    return [head.shortlist, *head.tails] if isinstance(head, AdaptiveSoftmax) else [head.table]


def randomize(head, scale=1.0):
    for i, table in enumerate(tables(head)):
        small.randomize(table, scale, seed=5 + i)
    for projection in getattr(head, "projections", []):
        projection.assign(vectors(*projection.shape, seed=4, scale=scale))
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

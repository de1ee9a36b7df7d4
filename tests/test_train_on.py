"""A model that is saved and loaded trains on as the one in memory does: losses equal to the bit."""

from functools import partial

import keras
import numpy as np
import pytest
from conftest import on_table, slow_but
from head_zoo import COUNTS, HEADS, PER_EXAMPLE, UNIGRAM, WIDTH, D, N, data, inputs, models, rows
from small import saved_and_loaded, spec

from softbench import (
    BucketedSoftmax,
    FullSoftmax,
    NegativeSampling,
    NoiseContrastive,
    OneVsEach,
    RowAdagrad,
    RowAdam,
    SampledHinge,
    SampledSoftmax,
    TiedEmbedding,
)

RFF = spec("rff", num_features=8, block_size=2, redraw=True)
# Of a seed that is not given, which decides the degrees of its features.
MACLAURIN = spec("maclaurin", num_features=16, block_size=4, prior=COUNTS)
KERNEL = spec("rff", num_features=8, block_size=4)
MIXED = spec("mixed", first=UNIGRAM, second=KERNEL, share_draws=True)
GROUPS = spec("unigram", counts=COUNTS, share_draws=3)
TOP = {"num_top": 3, "counts": COUNTS, "top": spec("codebook", num_codewords=6)}
DECAY = keras.optimizers.schedules.ExponentialDecay(0.2, 1, 0.5)
CODEBOOK = spec("codebook", num_codewords=2, refresh_every=1)
ONE_LABEL = HEADS | {
    "bucketed": partial(BucketedSoftmax, N, num_buckets=4, bucket_examples=4, bucket_classes=3),
    "bucketed rows": partial(
        BucketedSoftmax, N, num_buckets=4, bucket_examples=4, bucket_classes=3, **rows()
    ),
    "rff": partial(SampledSoftmax, N, RFF, 6),
    "codebook rows": partial(SampledSoftmax, N, CODEBOOK, 6, **rows()),
    "in batch rows": partial(SampledSoftmax, N, "in_batch", 6, **rows()),
    "bfloat16 rows": partial(
        on_table,
        SampledSoftmax,
        N,
        "uniform",
        6,
        table_dtype="bfloat16",
        row_optimizer=RowAdagrad(0.2, per_row=True),
    ),
    "lazy adam": partial(SampledSoftmax, N, "uniform", 6, row_optimizer=RowAdam(DECAY)),
    "maclaurin rows": partial(SampledSoftmax, N, MACLAURIN, 6, **rows()),
    "mixed rows": partial(SampledSoftmax, N, MIXED, 6, **rows()),
    "groups": partial(SampledSoftmax, N, GROUPS, 6),
    "top groups": partial(SampledSoftmax, N, spec("top_and_tail", **TOP, share_draws=2), 6),
    "top examples": partial(SampledSoftmax, N, spec("top_and_tail", **TOP, share_draws=False), 6),
}
SEVERAL_LABELS = {
    "full, several": partial(FullSoftmax, N),
    "sampled rows, several": partial(SampledSoftmax, N, "uniform", 6, **rows()),
    "nce rows, several": partial(NoiseContrastive, N, UNIGRAM, num_sampled=6, **rows()),
    "negative, several": partial(NegativeSampling, N, PER_EXAMPLE, num_sampled=6),
    "one vs each, several": partial(OneVsEach, N, "uniform", 6),
    "hinge, several": partial(SampledHinge, N, "uniform", 6),
}


def one_label(name):
    head = ONE_LABEL[name]()
    return models(head)[0], inputs(head, *data())


def several_labels(name):
    x, y = keras.Input((WIDTH,)), keras.Input((3,), dtype="int32")
    head = SEVERAL_LABELS[name](multi_label="mean")
    labels = data()[1]
    labels = np.stack([labels, (labels + 1) % N, np.full_like(labels, -1)], axis=-1)
    return keras.Model([x, y], head(keras.layers.Dense(D)(x), y)), [data()[0], labels]


def tied(name):
    head = SampledSoftmax(N, "uniform", 6, **rows())
    ids, y = keras.Input(batch_shape=(10, 1), dtype="int32"), keras.Input((), dtype="int32")
    hidden = keras.layers.Flatten()(TiedEmbedding(head, dim=D)(ids))
    labels = data()[1]
    return keras.Model([ids, y], head(hidden, y)), [labels[:, None], labels]


CASES = (
    [(name, one_label) for name in ONE_LABEL]
    + [(name, several_labels) for name in SEVERAL_LABELS]
    + [("tied", tied)]
)
QUICK = ("augment reduce rows", "bucketed", "sampled rows, several", "mixed rows", "tied")
MORE = ("bfloat16 rows", "maclaurin rows", "top groups")


@pytest.mark.parametrize(
    ("name", "make"),
    slow_but(
        CASES,
        *(case for case in CASES if case[0] in QUICK),
        thorough=[case for case in CASES if case[0] in MORE],
    ),
)
def test_a_loaded_model_trains_on_as_the_one_in_memory(name, make, tmp_path):
    model, arrays = make(name)
    model.compile(keras.optimizers.Adam(0.05))
    fit = {"batch_size": 10, "shuffle": False, "verbose": 0}
    model.fit(arrays, **fit)
    loaded = saved_and_loaded(model, tmp_path)
    first, second = (own.fit(arrays, epochs=3, **fit).history["loss"] for own in (model, loaded))
    assert first == second

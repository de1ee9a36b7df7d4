"""A model that is saved and loaded trains on as the one in memory does: losses equal to the bit."""

from functools import partial

import keras
import numpy as np
import pytest
from conftest import on_table, slow_but
from head_zoo import HEADS, PER_EXAMPLE, UNIGRAM, WIDTH, D, N, data, inputs, models, rows

from softbench import (
    BucketedSoftmax,
    FullSoftmax,
    NegativeSampling,
    NoiseContrastive,
    OneVsEach,
    SampledHinge,
    SampledSoftmax,
    TiedEmbedding,
)

RFF = {"class_name": "rff", "config": {"num_features": 8, "block_size": 2, "redraw": True}}
CODEBOOK = {"class_name": "codebook", "config": {"num_codewords": 2, "refresh_every": 1}}
ONE_LABEL = HEADS | {
    "bucketed": partial(BucketedSoftmax, N, num_buckets=4, bucket_examples=4, bucket_classes=3),
    "bucketed rows": partial(
        BucketedSoftmax, N, num_buckets=4, bucket_examples=4, bucket_classes=3, **rows()
    ),
    "rff": partial(SampledSoftmax, N, RFF, 6),
    "codebook rows": partial(SampledSoftmax, N, CODEBOOK, 6, **rows()),
    "in batch rows": partial(SampledSoftmax, N, "in_batch", 6, **rows()),
    "bfloat16 rows": partial(
        on_table, SampledSoftmax, N, "uniform", 6, table_dtype="bfloat16", **rows()
    ),
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
QUICK = ("augment reduce rows", "adaptive counts", "bucketed", "bfloat16 rows", "tied")
QUICK += ("sampled rows, several",)


@pytest.mark.parametrize(
    ("name", "make"), slow_but(CASES, *(case for case in CASES if case[0] in QUICK))
)
def test_a_loaded_model_trains_on_as_the_one_in_memory(name, make, tmp_path):
    model, arrays = make(name)
    model.compile(keras.optimizers.Adam(0.05))
    fit = {"batch_size": 10, "shuffle": False, "verbose": 0}
    model.fit(arrays, **fit)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    first, second = (own.fit(arrays, epochs=3, **fit).history["loss"] for own in (model, loaded))
    assert first == second

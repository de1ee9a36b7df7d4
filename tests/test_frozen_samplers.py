"""A frozen head keeps its table and all that its sampler has learned; its draws stay new."""

import keras
import numpy as np
import pytest
from conftest import thorough_but, to_numpy

from softbench import RowAdagrad, SampledSoftmax

N, D, M = 40, 6, 6
COUNTS = np.arange(1.0, N + 1).tolist()
BOOK = {"class_name": "codebook", "config": {"num_codewords": 4, "refresh_every": 2}}
SHARED_BOOK = {**BOOK, "config": {**BOOK["config"], "share_draws": True}}
RFF = {"class_name": "rff", "config": {"num_features": 8, "refresh_every": 2, "block_size": 4}}
SAMPLERS = {
    "codebook": BOOK,
    "in_batch": "in_batch",
    "kernel": RFF,
    "mixed": {"class_name": "mixed", "config": {"first": "in_batch", "second": SHARED_BOOK}},
    "redraw": {"class_name": "rff", "config": {**RFF["config"], "redraw": True}},
    "top_and_tail": {
        "class_name": "top_and_tail",
        "config": {"num_top": 4, "share_draws": 2, "top": BOOK, "counts": COUNTS},
    },
}
CASES = [
    (name, rows) for name in SAMPLERS for rows in (False, True) if (name, rows) != ("redraw", True)
]


def state(head):
    return {v.path: to_numpy(v).copy() for v in head.variables if "seed" not in v.path}


@pytest.mark.parametrize(
    "name, rows", thorough_but(CASES, ("codebook", False), ("mixed", True), ("top_and_tail", False))
)
def test_a_frozen_head_learns_nothing(name, rows):
    """With and without a row optimizer, until it is trained again."""
    rng = np.random.default_rng(0)
    data = [rng.normal(size=(24, D)).astype("float32"), rng.integers(0, N, 24).astype("int32")]
    options = {"row_optimizer": RowAdagrad(0.1)} if rows else {}
    head = SampledSoftmax(N, SAMPLERS[name], M, seed=1, **options)
    head.trainable = False
    x, y = keras.Input((D,)), keras.Input((), dtype="int32")
    model = keras.Model([x, y], head(keras.layers.Dense(D)(x), y))
    model.compile("sgd")
    before, seed = state(head), to_numpy(head.sampler.seed_generator.state).copy()
    model.fit(data, batch_size=8, epochs=2, verbose=0)
    for path, value in state(head).items():
        np.testing.assert_array_equal(value, before[path], err_msg=path)
    assert not np.array_equal(to_numpy(head.sampler.seed_generator.state), seed)
    head.trainable = True
    model.compile("sgd")
    model.fit(data, batch_size=8, epochs=2, verbose=0)
    after = state(head)
    changed = [path for path in before if not np.array_equal(after[path], before[path])]
    assert any("/table/" not in path for path in changed), "the sampler learns again"


@pytest.mark.parametrize("name", thorough_but(["codebook", "kernel"], "codebook"))
def test_a_frozen_sampler_of_a_head_that_trains(name):
    """The rows move, what the sampler keeps of them does not."""
    rng = np.random.default_rng(0)
    head = SampledSoftmax(N, SAMPLERS[name], M, seed=1, row_optimizer=RowAdagrad(0.1))
    hidden, labels = keras.Input((D,)), keras.Input((), dtype="int32")
    model = keras.Model([hidden, labels], head(hidden, labels))
    head.sampler.trainable = False
    model.compile("sgd")
    before, kernel = state(head.sampler), to_numpy(head.table.kernel).copy()
    model.train_on_batch([rng.normal(size=(8, D)).astype("float32"), np.arange(8, dtype="int32")])
    assert not np.array_equal(to_numpy(head.table.kernel), kernel)
    for path, value in state(head.sampler).items():
        np.testing.assert_array_equal(value, before[path], err_msg=path)

"""What is frozen stays as it is, table and all that its sampler has learned; its draws stay new."""

import warnings

import keras
import numpy as np
import pytest
from conftest import thorough_but, to_numpy
from small import functional, labels_below, spec, state, vectors

from softbench import (
    AugmentReduce,
    Classifier,
    HierarchicalSoftmax,
    RowAdagrad,
    RowAdam,
    RowSGD,
    SampledSoftmax,
)
from softbench.models import RowEmbedding

N, D, WIDTH, M = 40, 6, 5, 6
BOOK = {"num_codewords": 4, "refresh_every": 2}
RFF = {"num_features": 8, "refresh_every": 2, "block_size": 4}
TOP = {"num_top": 4, "share_draws": 2, "counts": np.arange(1.0, N + 1).tolist()}
SAMPLERS = {
    "uniform": "uniform",
    "codebook": spec("codebook", **BOOK),
    "in_batch": "in_batch",
    "memory": spec("in_batch", memory=5),
    "kernel": spec("rff", **RFF),
    "mixed": spec("mixed", first="in_batch", second=spec("codebook", **BOOK, share_draws=True)),
    "redraw": spec("rff", **RFF, redraw=True),
    "top_and_tail": spec("top_and_tail", **TOP, top=spec("codebook", **BOOK)),
}


def sampled(name, rows, **options):
    row_optimizer = RowAdam(0.5) if rows else None
    return SampledSoftmax(N, SAMPLERS[name], M, seed=1, row_optimizer=row_optimizer, **options)


HEADS = {
    "examples": lambda: AugmentReduce(N, num_examples=N, row_optimizer=RowAdam(0.5), seed=1),
    "hierarchical": lambda: HierarchicalSoftmax(N, row_optimizer=RowAdam(0.5)),
}
CASES = [("codebook", False), ("mixed", True), ("memory", True), ("kernel", True)]
CASES += [("redraw", False), ("top_and_tail", False), *((name, True) for name in HEADS)]
DATA = [vectors(24, WIDTH), labels_below(N, 24)]


def fitted(model):
    model.compile(keras.optimizers.SGD(0.1))
    return model.fit(DATA, batch_size=8, epochs=2, verbose=0).history["loss"]


def assert_frozen(model, head):
    """Nothing of it moves in two epochs; the hidden vectors get their gradient."""
    before, encoder = state(head), to_numpy(model.get_layer("encoder").kernel).copy()
    losses = fitted(model)
    for path, value in state(head).items():
        np.testing.assert_array_equal(value, before[path], err_msg=path)
    assert np.all(np.isfinite(losses)) and losses[0] != losses[1]
    assert np.abs(to_numpy(model.get_layer("encoder").kernel) - encoder).max() > 1e-3


@pytest.mark.parametrize("name, rows", thorough_but(CASES, CASES[0]))
def test_a_frozen_head_stays_as_it_is(name, rows):
    """Before it has been trained, and again after; rows, slots, counters, what a sampler keeps."""
    head = HEADS[name]() if name in HEADS else sampled(name, rows)
    head.trainable = False
    model = functional(head, WIDTH, encoder=keras.layers.Dense(D, name="encoder"))
    seed = head.sampler.seed_generator.state if hasattr(head, "sampler") else None
    draws = None if seed is None else to_numpy(seed).copy()
    assert_frozen(model, head)
    assert seed is None or not np.array_equal(to_numpy(seed), draws)
    head.trainable = True
    before = state(head)
    fitted(model)
    changed = [path for path, value in state(head).items() if np.any(value != before[path])]
    assert any("/table/" in path or "/nodes/" in path for path in changed)
    if name not in ("uniform", "hierarchical"):
        assert any("/table/" not in path for path in changed), "the sampler learns again"
    head.trainable = False
    assert_frozen(model, head)


@pytest.mark.parametrize("how", ["constructor", "table"])
def test_ways_to_freeze(how):
    head = sampled("in_batch", True, trainable=how != "constructor")
    model = functional(head, WIDTH, encoder=keras.layers.Dense(D, name="encoder"))
    if how == "table":
        head.table.trainable = False
    assert_frozen(model, head)


@pytest.mark.parametrize("how", ["constructor", "attribute"])
def test_a_frozen_model_stays_as_it_is(how):
    encoder = keras.Sequential([RowEmbedding(N, D, RowSGD(0.5)), keras.layers.Flatten()])
    model = Classifier(encoder, sampled("uniform", True), trainable=how != "constructor")
    model.compile("sgd")
    if how == "attribute":
        model.trainable = False
    ids, labels = np.zeros((8, 1), "int32"), np.zeros(8, "int32")
    model.build((8, 1))
    before = state(model)
    with warnings.catch_warnings(action="ignore"):  # of Keras, which has nothing to train
        model.fit(ids, labels, batch_size=8, verbose=0)
    for path, value in state(model).items():
        if "perplexity" not in path and "precision" not in path:
            np.testing.assert_array_equal(value, before[path], err_msg=path)


def test_a_frozen_head_trains_the_rest_as_a_frozen_weight_does():
    """Keras' own frozen table, same draws: the encoders agree."""
    encoders = []
    for rows in (True, False):
        keras.utils.set_random_seed(3)
        head = sampled("uniform", rows, trainable=False)
        model = functional(head, WIDTH, encoder=keras.layers.Dense(D, name="encoder"))
        head.table.kernel.assign(vectors(N, D, seed=4))
        model.fit(DATA, batch_size=8, shuffle=False, epochs=2, verbose=0)
        encoders.append(to_numpy(model.get_layer("encoder").kernel))
    np.testing.assert_allclose(*encoders, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("table", [False, True])
def test_a_frozen_row_embedding_stays_as_it_is(table):
    """To freeze it makes the last batch's update, and nothing moves from then on."""
    ids = keras.Input(batch_shape=(4, 2), dtype="int32")
    layer = RowEmbedding(N, D, RowAdam(0.1))
    outputs = keras.layers.Dense(1, name="encoder")(keras.layers.Flatten()(layer(ids)))
    model = keras.Model(ids, outputs)
    x, y = np.arange(8, dtype="int32").reshape(4, 2), np.ones((4, 1), "float32")
    model.compile(keras.optimizers.SGD(0.1), loss="mse")
    start = to_numpy(layer.table.kernel).copy()
    model.train_on_batch(x, y)
    if table:
        model.predict(x, verbose=0)
        layer.table.trainable = False
    else:
        layer.trainable = False
    model.compile(keras.optimizers.SGD(0.1), loss="mse")
    before = state(layer.table)
    assert np.any(before[layer.table.kernel.path] != start)
    losses = [float(model.train_on_batch(x, y)) for _ in range(3)]
    assert losses[2] < losses[0]
    for path, value in state(layer.table).items():
        np.testing.assert_array_equal(value, before[path], err_msg=path)


@pytest.mark.parametrize("name", thorough_but(["codebook", "kernel"], "codebook"))
def test_a_frozen_sampler_of_a_head_that_trains(name):
    """The rows move, what the sampler keeps of them does not."""
    head = SampledSoftmax(N, SAMPLERS[name], M, seed=1, row_optimizer=RowAdagrad(0.1))
    model = functional(head, WIDTH)
    head.sampler.trainable = False
    model.compile("sgd")
    before, kernel = state(head.sampler), to_numpy(head.table.kernel).copy()
    model.train_on_batch([a[:8] for a in DATA])
    assert not np.array_equal(to_numpy(head.table.kernel), kernel)
    for path, value in state(head.sampler).items():
        np.testing.assert_array_equal(value, before[path], err_msg=path)

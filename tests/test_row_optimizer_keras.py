"""Row optimizers as Keras users expect: frozen parts, and learning rates that can be set."""

import warnings

import keras
import numpy as np
import pytest
import reference
from conftest import compiled, rejects, slow_but, to_numpy
from keras.optimizers import schedules
from test_rows import D, N, data, decay, gradient_steps, make_model, make_table

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

# Frozen.

RFF = {"class_name": "rff", "config": {"num_features": 8, "block_size": 2}}
CODEBOOK = {"class_name": "codebook", "config": {"num_codewords": 2}}


def sampled(sampler="uniform", row_optimizer=RowAdam, **options):
    return SampledSoftmax(N, sampler, 6, row_optimizer=row_optimizer(0.5), seed=1, **options)


HEADS = {
    "uniform": sampled,
    "rff": lambda: sampled(RFF),
    "codebook": lambda: sampled(CODEBOOK),
    "in_batch": lambda: sampled("in_batch"),
    "examples": lambda: AugmentReduce(
        N, "uniform", 6, num_examples=24, row_optimizer=RowAdam(0.5), seed=1
    ),
    "hierarchical": lambda: HierarchicalSoftmax(N, row_optimizer=RowAdam(0.5)),
}


def training_model(head):
    x, y = keras.Input((5,)), keras.Input((), dtype="int32")
    extra = {"example_ids": y} if isinstance(head, AugmentReduce) else {}
    hidden = keras.layers.Dense(D, name="encoder")(x)
    return keras.Model([x, y], head(hidden, y, **extra))


def state(layer):
    """All that the layer keeps but the states of its random streams."""
    return {v.path: to_numpy(v).copy() for v in layer.variables if "seed" not in v.path}


def assert_frozen(model, head, **fit):
    head_state = state(head)
    encoder = to_numpy(model.get_layer("encoder").kernel).copy()
    losses = model.fit(data(), batch_size=8, epochs=2, verbose=0, **fit).history["loss"]
    for path, value in state(head).items():
        np.testing.assert_array_equal(value, head_state[path], err_msg=path)
    assert np.all(np.isfinite(losses)) and losses[0] != losses[1]
    return np.abs(to_numpy(model.get_layer("encoder").kernel) - encoder).max()


@pytest.mark.parametrize("name", slow_but(HEADS, "rff", thorough=["in_batch", "examples"]))
def test_a_frozen_head_stays_as_it_is(name):
    """Rows, slots, counters, and what the sampler keeps; hidden gets its gradient."""
    head = HEADS[name]()
    model = training_model(head)
    model.compile(keras.optimizers.SGD(0.1))
    model.fit(data(), batch_size=8, verbose=0)
    head.trainable = False
    model.compile(keras.optimizers.SGD(0.1))
    assert assert_frozen(model, head) > 1e-3
    head.trainable = True
    model.compile(keras.optimizers.SGD(0.1))
    before = state(head)
    model.fit(data(), batch_size=8, verbose=0)
    assert any(np.any(value != before[path]) for path, value in state(head).items())


@pytest.mark.parametrize("how", ["constructor", "table", "unbuilt", "compiled"])
def test_ways_to_freeze(how):
    head = sampled("in_batch", trainable=how != "constructor")
    if how == "unbuilt":
        head.trainable = False
    model = training_model(head)
    model.compile(keras.optimizers.SGD(0.1))
    if how == "table":
        head.table.trainable = False
    elif how == "compiled":
        head.trainable = False
    assert assert_frozen(model, head) > 1e-3


@pytest.mark.parametrize("how", ["constructor", "attribute"])
def test_a_frozen_model_stays_as_it_is(how):
    head = sampled()
    encoder = keras.Sequential([RowEmbedding(N, D, RowSGD(0.5)), keras.layers.Flatten()])
    model = Classifier(encoder, head, trainable=how != "constructor")
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
    for optimizer in (RowAdagrad(0.2), None):
        head = SampledSoftmax(N, "uniform", 6, row_optimizer=optimizer, seed=1, trainable=False)
        model = make_model(head)
        model.fit(data(), batch_size=8, shuffle=False, epochs=2, verbose=0)
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
    before = {v.path: to_numpy(v).copy() for v in layer.table.variables}
    assert np.any(before[layer.table.kernel.path] != start)
    losses = [float(model.train_on_batch(x, y)) for _ in range(3)]
    assert losses[2] < losses[0]
    for variable in layer.table.variables:
        np.testing.assert_array_equal(to_numpy(variable), before[variable.path])


# Learning rates.


def test_the_rate_is_set_without_compiling_again():
    table = make_table(RowSGD(0.3))
    value, rates = to_numpy(table.kernel).astype(float), [0.3, 0.05, 0.0, 0.2]
    step = compiled(lambda ids, *g: table.apply_row_gradients(ids, list(g)), table)
    for rate, (ids, *gradients) in zip(rates, gradient_steps(), strict=True):
        if rate == 0.2:
            table.row_optimizer.learning_rate.assign(rate)
        else:
            table.row_optimizer.learning_rate = rate
        assert float(table.row_optimizer.learning_rate) == pytest.approx(rate)
        step(ids, *gradients)
        value -= rate * reference.sum_rows((N, D), ids, gradients[0])
    assert len(step.traces) == 1
    np.testing.assert_allclose(to_numpy(table.kernel), value, rtol=1e-5, atol=1e-5)


class SetRate(keras.callbacks.Callback):
    """A rate of the rows for each epoch."""

    def __init__(self, head, rates):
        super().__init__()
        self.head, self.rates = head, rates

    def on_epoch_begin(self, epoch, logs=None):
        self.head.table.row_optimizer.learning_rate = self.rates[epoch]


def test_a_callback_sets_the_rate_in_fit():
    """As a dense optimizer whose rate Keras sets."""
    rates, kernels = [0.4, 0.1, 0.0], []
    for optimizer in (RowSGD(0.01), None):
        head = SampledSoftmax(N, "uniform", 6, row_optimizer=optimizer, seed=1)
        model = make_model(head)
        if optimizer is None:
            model.get_layer("encoder").trainable = False
            callback = keras.callbacks.LearningRateScheduler(lambda epoch: rates[epoch])
        else:  # Keras wants something to train
            callback = SetRate(head, rates)
        model.compile(keras.optimizers.SGD(1e-20))
        options = {"batch_size": 8, "shuffle": False, "epochs": 3, "verbose": 0}
        model.fit(data(), callbacks=[callback], **options)
        kernels.append(to_numpy(head.table.kernel))
    np.testing.assert_allclose(*kernels, rtol=1e-5, atol=1e-6)


def plateau():
    """Halves the rate at the end of each epoch but the first."""
    options = {"monitor": "loss", "factor": 0.5, "patience": 0, "min_delta": 1e6}
    return keras.callbacks.ReduceLROnPlateau(**options)


RATES = {
    "constant": (lambda: 0.2, None),
    "schedule": (lambda: decay(0.2), None),
    "scheduler": (
        lambda: 0.2,
        lambda: keras.callbacks.LearningRateScheduler(lambda epoch: 0.2 / (1 + epoch)),
    ),
    "plateau": (lambda: 0.2, plateau),
}


FOLLOWED = [
    pytest.param(name, kind, marks=() if i in (2, 7) else pytest.mark.slow)
    for i, (name, kind) in enumerate((n, k) for n in RATES for k in ("classifier", "plain"))
]


@pytest.mark.parametrize(("name", "kind"), FOLLOWED)
def test_rows_take_the_rate_of_the_models_optimizer(name, kind):
    """The same model with an ordinary table, which that optimizer trains: all agrees.

    A schedule is given to both; where a callback sets the rate, another one hands it on.
    """
    rate, callback = RATES[name]
    x, y = data()
    found = []
    for optimizer in (RowAdagrad(rate()), None):
        head = SampledSoftmax(N, "uniform", 6, row_optimizer=optimizer, seed=1)
        plain = make_model(head)
        model = plain
        callbacks = [] if callback is None else [callback()]
        if kind == "classifier":
            model = Classifier(keras.Sequential([plain.get_layer("encoder")]), head, top_k=())
        model.compile(keras.optimizers.Adagrad(rate()))
        if optimizer is not None and callback is not None:
            callbacks.append(handed_on(model.optimizer, head.table.row_optimizer))
        arrays = (x, y) if kind == "classifier" else ([x, y],)
        options = {"batch_size": 8, "shuffle": False, "epochs": 3, "verbose": 0}
        model.fit(*arrays, callbacks=callbacks, **options)
        if optimizer is not None and callback is not None:
            assert float(head.table.row_optimizer.learning_rate) < 0.11
        found.append([head.table.kernel, head.table.bias, plain.get_layer("encoder").kernel])
    for own, other in zip(*found, strict=True):
        np.testing.assert_allclose(to_numpy(own), to_numpy(other), rtol=1e-5, atol=1e-5)


def handed_on(optimizer, rows):
    """A callback that gives the rows the rate of an optimizer at the start of each epoch."""

    def begin(epoch, logs=None):
        rows.learning_rate = float(optimizer.learning_rate)

    return keras.callbacks.LambdaCallback(on_epoch_begin=begin)


def test_one_row_optimizer_of_two_tables_has_one_rate():
    optimizer = RowSGD(0.5)
    tables = [make_table(optimizer) for _ in range(2)]
    optimizer.learning_rate = 0.0
    for table in tables:
        before = to_numpy(table.kernel).copy()
        table.apply_row_gradients(np.zeros(1, "int32"), [np.ones((1, D), "f"), np.ones(1, "f")])
        np.testing.assert_array_equal(before, to_numpy(table.kernel))


def test_the_rate_is_saved(tmp_path):
    head = sampled(row_optimizer=RowSGD)
    model = make_model(head)
    head.table.row_optimizer.learning_rate = 0.03
    assert head.table.row_optimizer.get_config()["learning_rate"] == 0.03
    model.save(tmp_path / "model.keras")
    head.table.row_optimizer.learning_rate = 0.07  # in the weights, not in the config of the file
    model.save_weights(tmp_path / "model.weights.h5")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    rows = loaded.layers[-1].table.row_optimizer
    assert float(rows.learning_rate) == pytest.approx(0.03)
    loaded.load_weights(tmp_path / "model.weights.h5")
    assert float(rows.learning_rate) == pytest.approx(0.07)
    assert rows.get_config()["learning_rate"] == pytest.approx(0.07)


def test_bad_rates():
    scheduled = RowSGD(decay(0.1))
    assert isinstance(scheduled.learning_rate, schedules.ExponentialDecay)
    rejects("learning_rate", setattr, scheduled, "learning_rate", 0.1)
    for value in (-0.1, float("nan"), "model", decay(0.1)):
        rejects("learning_rate", setattr, RowSGD(0.1), "learning_rate", value)
    for value in (0.0, "model", None):
        rejects("learning_rate", RowSGD, value)

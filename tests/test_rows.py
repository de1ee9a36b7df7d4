"""Row optimizers against dense ones: Keras' own, and NumPy float64."""

import keras
import numpy as np
import pytest
import reference
from conftest import compiled, on_table, thorough_but, to_numpy

from softbench import ClassTable, NoiseContrastive, RowAdagrad, RowAdam, RowSGD, SampledSoftmax

N, D, STEPS = 12, 3, 4
SHARED = {"class_name": "uniform", "config": {"share_draws": True}}


def decay(rate):
    return keras.optimizers.schedules.ExponentialDecay(rate, 1, 0.5)


def make_table(row_optimizer, n=N, **options):
    table = ClassTable(n, row_optimizer=row_optimizer, **options)
    table.build((None, D))
    rng = np.random.default_rng(0)
    table.kernel.assign(rng.normal(size=(n, D)))
    if table.bias is not None:
        table.bias.assign(rng.normal(size=n))
    return table


def gradient_steps(n=N, touched=7, steps=STEPS, seed=1):
    """Ids with duplicates, and the gradients of their kernel rows and biases, for every step."""
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        ids = rng.integers(0, touched, 15).astype("int32")
        yield ids, rng.normal(size=(15, D)).astype("float32"), rng.normal(size=15).astype("float32")


def apply_all(table, steps):
    step = compiled(lambda ids, *g: table.apply_row_gradients(ids, list(g)), table)
    for ids, to_kernel, to_bias in steps:
        step(ids, to_kernel, to_bias)


OPTIMIZERS = {
    "sgd": (lambda: RowSGD(0.3), lambda: keras.optimizers.SGD(0.3)),
    "adagrad": (lambda: RowAdagrad(0.3), lambda: keras.optimizers.Adagrad(0.3)),
    "adagrad options": (
        lambda: RowAdagrad(0.3, initial_accumulator_value=0.5),
        lambda: keras.optimizers.Adagrad(0.3, initial_accumulator_value=0.5),
    ),
    "sgd schedule": (lambda: RowSGD(decay(0.3)), lambda: keras.optimizers.SGD(decay(0.3))),
    "adagrad schedule": (
        lambda: RowAdagrad(decay(0.3)),
        lambda: keras.optimizers.Adagrad(decay(0.3)),
    ),
    "defaults of sgd": (RowSGD, keras.optimizers.SGD),
    "defaults of adagrad": (RowAdagrad, keras.optimizers.Adagrad),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_equal_to_keras_on_the_summed_gradient(name):
    row_optimizer, optimizer = (make() for make in OPTIMIZERS[name])
    table = make_table(row_optimizer)
    dense = [keras.Variable(to_numpy(v)) for v in (table.kernel, table.bias)]
    optimizer.build(dense)
    apply_all(table, gradient_steps())
    for ids, *gradients in gradient_steps():
        assert len(set(ids)) < len(ids)
        summed = [
            reference.sum_rows(v.shape, ids, g) for v, g in zip(dense, gradients, strict=True)
        ]
        optimizer.apply([keras.ops.convert_to_tensor(g, "float32") for g in summed], dense)
    for own, other in zip((table.kernel, table.bias), dense, strict=True):
        np.testing.assert_allclose(to_numpy(own), to_numpy(other), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("schedule", [False, True])
@pytest.mark.parametrize("name", ["sgd", "adagrad", "lazy_adam"])
def test_equal_to_numpy(name, schedule):
    """Also what lazy Adam means: the moments of a row move only at the steps that touch it."""
    rate = decay(0.2) if schedule else 0.2
    row_optimizer = {"sgd": RowSGD, "adagrad": RowAdagrad, "lazy_adam": RowAdam}[name](rate)
    table = make_table(row_optimizer)
    values = [to_numpy(table.kernel).astype(float), to_numpy(table.bias).astype(float)]
    apply_all(table, gradient_steps())
    states = [{}, {}]
    for t, (ids, *gradients) in enumerate(gradient_steps()):
        now = 0.2 * 0.5**t if schedule else 0.2
        extra = {"touched": np.isin(np.arange(N), ids)} if name == "lazy_adam" else {}
        for i, gradient in enumerate(gradients):
            summed = reference.sum_rows(values[i].shape, ids, gradient)
            step = getattr(reference, name)
            values[i] = step(values[i], summed, states[i], now, **extra)
    np.testing.assert_allclose(to_numpy(table.kernel), values[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(to_numpy(table.bias), values[1], rtol=1e-5, atol=1e-5)


def test_adagrad_epsilon_is_outside_the_root():
    """Not as in Keras: c -= rate * g / (sqrt(a) + epsilon), which its docstring says."""
    table = make_table(RowAdagrad(0.3, epsilon=0.5))
    value, accumulator = to_numpy(table.kernel).astype(float), np.full((N, D), 0.1)
    apply_all(table, gradient_steps())
    for ids, to_kernel, _ in gradient_steps():
        gradient = reference.sum_rows((N, D), ids, to_kernel)
        accumulator += gradient**2
        value -= 0.3 * gradient / (np.sqrt(accumulator) + 0.5)
    np.testing.assert_allclose(to_numpy(table.kernel), value, rtol=1e-5, atol=1e-5)


def test_adam_is_keras_adam_when_every_row_is_touched():
    table = make_table(RowAdam(0.1))
    dense = keras.Variable(to_numpy(table.kernel))
    optimizer = keras.optimizers.Adam(0.1)
    optimizer.build([dense])
    rng = np.random.default_rng(5)
    ids = np.concatenate([np.arange(N), [3, 3, 8]]).astype("int32")
    steps = [(ids, rng.normal(size=(N + 3, D)), rng.normal(size=N + 3)) for _ in range(STEPS)]
    steps = [(i, k.astype("float32"), b.astype("float32")) for i, k, b in steps]
    apply_all(table, steps)
    for ids, to_kernel, _ in steps:
        summed = reference.sum_rows((N, D), ids, to_kernel)
        optimizer.apply([keras.ops.convert_to_tensor(summed, "float32")], [dense])
    np.testing.assert_allclose(to_numpy(table.kernel), to_numpy(dense), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("optimizer", [RowSGD, RowAdagrad, RowAdam])
def test_untouched_rows_stay_as_they_are_to_the_bit(optimizer):
    table = make_table(optimizer(0.5))
    variables = [table.kernel, table.bias, *(s for slots in table.row_slots for s in slots)]
    before = [to_numpy(v).copy() for v in variables]
    steps = list(gradient_steps())
    apply_all(table, steps)
    touched = np.unique(np.concatenate([ids for ids, *_ in steps]))
    untouched = np.setdiff1d(np.arange(N), touched)
    assert N - 1 in untouched  # where JAX' padding ids would be clipped to
    for variable, old in zip(variables, before, strict=True):
        np.testing.assert_array_equal(to_numpy(variable)[untouched], old[untouched])
        assert np.all(to_numpy(variable)[touched] != old[touched])


class Tracker:
    """A sampler that keeps what it is told."""

    trainable = True

    def __init__(self, tracked_ids=lambda ids: (ids, {})):
        self.seen, self.tracked_ids = [], tracked_ids

    def rows_changed(self, table, ids, old_rows, new_rows, **further):
        self.seen = [to_numpy(x) for x in (ids, old_rows, new_rows)]
        self.further = further


def test_trackers_get_the_distinct_rows_before_and_after():
    """Each of them of the rows that it asks for."""
    table = make_table(RowSGD(1.0))
    before = to_numpy(table.kernel).copy()
    every, some = Tracker(), Tracker(lambda ids: (ids[:1], {"weight": 2.0}))
    for tracker in (every, some, every):
        table.add_tracker(tracker)
    ids, to_kernel, to_bias = next(gradient_steps())
    tensors = [keras.ops.convert_to_tensor(x) for x in (ids, to_kernel, to_bias)]
    table.apply_row_gradients(tensors[0], tensors[1:])
    for tracker in (every, some):
        distinct, old, new = tracker.seen
        kept = distinct < N
        assert set(distinct[kept]) <= set(ids)
        np.testing.assert_array_equal(old[kept], before[distinct[kept]])
        np.testing.assert_array_equal(new[kept], to_numpy(table.kernel)[distinct[kept]])
    assert sorted(every.seen[0][every.seen[0] < N]) == sorted(set(ids))
    assert len(some.seen[0]) == 1 and some.further == {"weight": 2.0}


# In a model.


def make_model(head):
    """An encoder with given weights and the head, compiled with Adagrad."""
    x, y = keras.Input((5,)), keras.Input((), dtype="int32")
    encoder = keras.layers.Dense(D, activation="tanh", name="encoder")
    model = keras.Model([x, y], head(encoder(x), y))
    rng = np.random.default_rng(2)
    encoder.set_weights([rng.normal(size=(5, D)), rng.normal(size=D)])
    head.table.kernel.assign(rng.normal(size=head.table.kernel.shape))
    model.compile(keras.optimizers.Adagrad(0.2))
    return model


def data(n=N, size=24):
    rng = np.random.default_rng(3)
    return [rng.normal(size=(size, 5)).astype("float32"), rng.integers(0, n, size).astype("int32")]


HEADS = {
    "per example": lambda o: SampledSoftmax(N, "uniform", 6, row_optimizer=o, seed=1),
    "shared": lambda o: SampledSoftmax(N, SHARED, 6, row_optimizer=o, seed=1),
    "scores": lambda o: on_table(
        SampledSoftmax,
        N,
        SHARED,
        6,
        row_optimizer=o,
        seed=1,
        normalize=True,
        absolute=True,
        temperature=0.3,
    ),
    "no bias": lambda o: SampledSoftmax(
        N, "uniform", 6, row_optimizer=o, seed=1, use_bias=False, correct_true_logit=True
    ),
    "nce": lambda o: NoiseContrastive(
        N,
        "uniform",
        num_sampled=6,
        row_optimizer=o,
        seed=1,
        learn_log_partition=True,
        regularization=0.1,
        regularization_samples=4,
    ),
}


@pytest.mark.parametrize("name", thorough_but(HEADS, "per example", "scores"))
def test_fit_with_row_adagrad_is_fit_with_keras_adagrad(name):
    """Same seed, same draws: encoder, table and gamma agree after six steps."""
    models = []
    for optimizer in (RowAdagrad(0.2), None):
        head = HEADS[name](optimizer)
        model = make_model(head)
        model.fit(data(), batch_size=8, shuffle=False, epochs=2, verbose=0)
        models.append((model, head))
    (ours, head), (theirs, other) = models
    own_ids = {id(v) for v in ours.trainable_weights}
    assert id(head.table.kernel) not in own_ids and id(other.table.kernel) not in own_ids
    assert len(theirs.trainable_weights) - len(own_ids) == (1 if name == "no bias" else 2)
    pairs = [(head.table.kernel, other.table.kernel), (head.table.bias, other.table.bias)]
    pairs += list(zip(ours.layers[1].weights, theirs.layers[1].weights, strict=True))
    if name == "nce":
        pairs.append((head.log_partition, other.log_partition))
        assert abs(float(to_numpy(head.log_partition))) > 1e-3
    for a, b in pairs:
        if a is not None:
            np.testing.assert_allclose(to_numpy(a), to_numpy(b), rtol=1e-5, atol=1e-5)


def test_sample_weights_reach_the_rows():
    """Weights 0 and 1 are the loss of the examples with weight 1: their mean, and their update."""
    x, y = data(size=8)
    weight = np.array([1, 0, 1, 1, 0, 0, 1, 0], "float32")
    kernels = []
    for keep in (np.arange(8), np.flatnonzero(weight)):
        head = SampledSoftmax(N, SHARED, 6, row_optimizer=RowSGD(0.5), seed=1)
        head.build((None, 5))
        head.table.kernel.assign(np.random.default_rng(4).normal(size=(N, 5)))
        own = weight[keep]
        step = compiled(lambda h, t, w, head=head: head(h, t, sample_weight=w, training=True), head)
        step(x[keep], y[keep], own)
        kernels.append(to_numpy(head.table.kernel))
    np.testing.assert_allclose(*kernels, rtol=1e-5, atol=1e-6)


def test_dense_adagrad_sees_the_sum_of_duplicates():
    """row_optimizer=None: Keras' Adagrad must square the summed gradient of a row, in NumPy too."""
    head = SampledSoftmax(N, SHARED, 6, seed=1, use_bias=False)
    x, y = keras.Input((D,)), keras.Input((), dtype="int32")
    model = keras.Model([x, y], head(x, y))
    rng = np.random.default_rng(6)
    kernel, hidden = rng.normal(size=(N, D)), rng.normal(size=(8, D)).astype("float32")
    labels = np.array([0, 0, 0, 1, 1, 5, 5, 5], "int32")
    head.table.kernel.assign(kernel)
    state = to_numpy(head.sampler.seed_generator.state)
    tensors = [keras.ops.convert_to_tensor(v) for v in (hidden, labels)]
    ids = to_numpy(head.sampler.sample(head.table, tensors[0], 6, tensors[1]).ids)[0]
    head.sampler.seed_generator.state.assign(state)
    assert len(set(ids)) < 6 or set(ids) & set(labels)
    model.compile(keras.optimizers.Adagrad(0.2))
    model.train_on_batch([hidden, labels])
    # The softmax over {label, draws} with logits corrected by -log(6 / 12); hits masked.
    scores = hidden.astype(float) @ kernel.T
    logits = np.concatenate(
        [scores[np.arange(8), labels][:, None], scores[:, ids] - np.log(0.5)], 1
    )
    logits[:, 1:][ids == labels[:, None]] = -np.inf
    p = reference.softmax(logits)
    p[:, 0] -= 1
    rows = np.concatenate([labels[:, None], np.broadcast_to(ids, (8, 6))], 1)
    gradient = (p[..., None] * hidden[:, None] / 8).reshape(-1, D)
    summed = reference.sum_rows((N, D), rows.ravel(), gradient)
    expected = reference.adagrad(kernel, summed, {}, 0.2)
    np.testing.assert_allclose(to_numpy(head.table.kernel), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("optimizer", [RowAdagrad, RowAdam])
def test_training_continues_the_same_after_loading(optimizer, tmp_path):
    """Slots and step counts are saved: exp draws nothing new into the loss, so any draw will do."""
    head = SampledSoftmax(N, "exp", 6, row_optimizer=optimizer(decay(0.2)), seed=1)
    model = make_model(head)
    model.fit(data(), batch_size=8, shuffle=False, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    other = loaded.layers[-1]
    assert int(to_numpy(other.table.iterations)) == 3
    for a, b in zip(head.table.row_slots, other.table.row_slots, strict=True):
        for slot, restored in zip(a, b, strict=True):
            np.testing.assert_array_equal(to_numpy(slot), to_numpy(restored))
    other.sampler.seed_generator.state.assign(to_numpy(head.sampler.seed_generator.state))
    for each in (model, loaded):
        each.fit(data(), batch_size=8, shuffle=False, verbose=0)
    np.testing.assert_allclose(
        to_numpy(head.table.kernel), to_numpy(other.table.kernel), rtol=1e-6, atol=1e-6
    )


def test_evaluation_and_prediction_leave_the_table_alone():
    head = SampledSoftmax(N, SHARED, 6, row_optimizer=RowAdam(0.5), seed=1)
    model = make_model(head)
    before = [to_numpy(v).copy() for v in head.table.variables]
    model.evaluate(data(), verbose=0)
    model.predict(data(), verbose=0)
    for old, variable in zip(before, head.table.variables, strict=True):
        np.testing.assert_array_equal(old, to_numpy(variable))


@pytest.mark.parametrize("optimizer", [RowSGD, RowAdagrad, RowAdam])
@pytest.mark.parametrize("rate", [0.25, "schedule"])
def test_config_round_trip(optimizer, rate):
    own = optimizer(decay(0.1) if rate == "schedule" else rate)
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(own))
    assert type(again) is optimizer and again.get_config() == own.get_config()


@pytest.mark.parametrize("rate", [0, -0.1, "fast", None, float("nan")])
def test_bad_learning_rates(rate):
    with pytest.raises(ValueError, match=r"`learning_rate`.*Received"):
        RowSGD(rate)


def test_bad_row_optimizer():
    with pytest.raises(ValueError, match=r"`row_optimizer`.*Received"):
        SampledSoftmax(N, "uniform", 6, row_optimizer=keras.optimizers.SGD(0.1))
    with pytest.raises(ValueError, match=r"`row_optimizer`.*Received"):
        SampledSoftmax(N, "uniform", 6, row_optimizer="adagrad")

"""Row optimizers against dense ones: Keras' own, and NumPy float64."""

import keras
import numpy as np
import pytest
import reference
import small
from conftest import compiled, on_table, rejects, thorough_but, to_numpy
from keras.optimizers import schedules
from small import (
    assert_all_close,
    assert_all_equal,
    classifier,
    functional,
    labels_below,
    saved_and_loaded,
    spec,
    values,
    vectors,
)

from softbench import (
    AugmentReduce,
    Classifier,
    NoiseContrastive,
    RowAdagrad,
    RowAdam,
    RowSGD,
    SampledSoftmax,
)
from softbench.models import RowEmbedding

N, D, WIDTH = 12, 3, 5
SHARED = spec("uniform", share_draws=True)
RFF = spec("rff", num_features=8, block_size=2)
COUNTS = list(range(N, 0, -1))
# Names of tests/reference.py.
OPTIMIZERS = {"sgd": RowSGD, "adagrad": RowAdagrad, "lazy_adam": RowAdam}
SLOTS = {"sgd": "", "adagrad": "a", "lazy_adam": "mv"}
KERAS = {"sgd": keras.optimizers.SGD, "adagrad": keras.optimizers.Adagrad}
HALF_STEP = {"bfloat16": 2.0**-8, "float16": 2.0**-11}  # of rounding, relative


def decay(rate):
    return schedules.ExponentialDecay(rate, 1, 0.5)


def make_table(row_optimizer, n=N, **options):
    return small.make_table(n, D, row_optimizer=row_optimizer, **options)


def gradient_steps(steps=4):
    """Ids of rows 0 to 6 with duplicates, and the gradients of rows and biases, for every step."""
    rng = np.random.default_rng(1)
    for _ in range(steps):
        ids = rng.integers(0, 7, 15).astype("int32")
        yield ids, rng.normal(size=(15, D)).astype("float32"), rng.normal(size=15).astype("float32")


def apply_all(table, steps):
    step = compiled(lambda ids, *g: table.apply_row_gradients(ids, list(g)), table)
    for step_arrays in steps:
        step(*step_arrays)
    return step


def summed(variables, ids, gradients):
    """The dense gradients that a Keras optimizer would see."""
    pairs = zip(variables, gradients, strict=True)
    return [reference.sum_rows(v.shape, ids, g) for v, g in pairs]


SAME_OPTIONS = {
    "rate": (0.3, {}),
    "schedule": ("schedule", {}),
    "defaults": (None, {}),
    "norm of each": (0.3, {"clipnorm": 2.0}),  # of the summed gradients: from 1.6 to 6.7
    "value": (0.3, {"clipvalue": 0.7}),
    "large norm": (0.3, {"clipnorm": 1e3}),
    "norm of all": (0.3, {"global_clipnorm": 2.0}),
    "accumulator": (0.3, {"initial_accumulator_value": 0.5}),
}


# What is clipped is the gradient, before any rule.
SAME = [("adagrad", options) for options in SAME_OPTIONS]
SAME += [("sgd", options) for options in ("rate", "schedule", "defaults", "norm of each")]


@pytest.mark.parametrize("name, options", SAME)
def test_equal_to_keras_on_the_summed_gradient(name, options):
    """Clipping too is of the gradient that is summed over duplicated ids."""
    rate, given = SAME_OPTIONS[options]
    ours, theirs = (
        cls(**given) if rate is None else cls(decay(0.3) if rate == "schedule" else rate, **given)
        for cls in (OPTIMIZERS[name], KERAS[name])
    )
    table = make_table(ours)
    variables = [table.kernel, table.bias]
    dense = [keras.Variable(v) for v in values(variables)]
    theirs.build(dense)
    apply_all(table, gradient_steps())
    for ids, *gradients in gradient_steps():
        assert len(set(ids)) < len(ids)
        sums = summed(dense, ids, gradients)
        assert options != "norm of all" or np.sqrt(sum((g**2).sum() for g in sums)) > 2.0
        theirs.apply([keras.ops.convert_to_tensor(g, "float32") for g in sums], dense)
    assert_all_close(variables, dense)


@pytest.mark.parametrize(
    ("schedule", "policy"), [(True, "float32"), *((False, p) for p in ("float32", *HALF_STEP))]
)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_equal_to_numpy(name, schedule, policy):
    """Also what lazy Adam means: the moments of a row move only at the steps that touch it.

    A table of half precision has float32 slots; its rows differ by the rounding of what is stored.
    """
    table = make_table(OPTIMIZERS[name](decay(0.2) if schedule else 0.2), dtype=policy)
    variables, states = [table.kernel, table.bias], [{}, {}]
    expected = [v.astype(float) for v in values(variables)]
    apply_all(table, gradient_steps())
    for t, (ids, *gradients) in enumerate(gradient_steps()):
        rate = 0.2 * 0.5**t if schedule else 0.2
        extra = {"touched": np.isin(np.arange(N), ids)} if name == "lazy_adam" else {}
        for i, gradient in enumerate(summed(expected, ids, gradients)):
            step = getattr(reference, name)
            expected[i] = step(expected[i], gradient, states[i], rate, **extra)
    for i, variable in enumerate(variables):
        assert keras.backend.standardize_dtype(variable.dtype) == policy
        # A step rounds the change and the sum.
        largest = np.abs(expected[i]).max() + 1
        atol = 1e-5 if policy == "float32" else 8 * largest * HALF_STEP[policy]
        found = to_numpy(variable).astype(float)
        np.testing.assert_allclose(found, expected[i], rtol=1e-5, atol=atol)
        for slot, own in zip(table.row_slots[i], SLOTS[name], strict=True):
            assert keras.backend.standardize_dtype(slot.dtype) == "float32"
            np.testing.assert_allclose(to_numpy(slot), states[i][own], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("policy", HALF_STEP)
def test_half_precision_gradients_add_up_in_float32(policy):
    """1000 times 1/8 in bfloat16 stops growing at 32."""
    table = make_table(RowSGD(1.0), dtype=policy, use_bias=False)
    table.kernel.assign(np.zeros((N, D)))
    gradient = keras.ops.full((1000, D), 0.125, policy)
    table.apply_row_gradients(keras.ops.zeros((1000,), "int32"), [gradient])
    np.testing.assert_array_equal(to_numpy(table.kernel)[0].astype(float), np.full(D, -125.0))


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
    table = make_table(RowAdam(0.1), use_bias=False)
    dense = keras.Variable(to_numpy(table.kernel))
    optimizer = keras.optimizers.Adam(0.1)
    optimizer.build([dense])
    ids = np.concatenate([np.arange(N), [3, 3, 8]]).astype("int32")
    steps = [(ids, vectors(N + 3, D, seed=i)) for i in range(4)]
    apply_all(table, steps)
    for _, to_kernel in steps:
        gradient = reference.sum_rows((N, D), ids, to_kernel)
        optimizer.apply([keras.ops.convert_to_tensor(gradient, "float32")], [dense])
    assert_all_close([table.kernel], [dense])


@pytest.mark.parametrize("optimizer", OPTIMIZERS.values())
def test_untouched_rows_stay_as_they_are_to_the_bit(optimizer):
    table = make_table(optimizer(0.5))
    variables = [table.kernel, table.bias, *(s for slots in table.row_slots for s in slots)]
    before, steps = values(variables), list(gradient_steps())
    apply_all(table, steps)
    touched = np.unique(np.concatenate([ids for ids, *_ in steps]))
    untouched = np.setdiff1d(np.arange(N), touched)
    assert N - 1 in untouched  # where JAX' padding ids would be clipped to
    for variable, old in zip(variables, before, strict=True):
        np.testing.assert_array_equal(to_numpy(variable)[untouched], old[untouched])
        assert np.all(to_numpy(variable)[touched] != old[touched])


@pytest.mark.parametrize(
    ("where", "bad"), [("kernel", np.nan), ("kernel", -np.inf), ("bias", np.inf)]
)
def test_a_gradient_that_is_not_finite_updates_nothing(where, bad):
    table, other = (make_table(RowAdam(0.1)) for _ in range(2))
    steps = list(gradient_steps(3))
    steps[1][1 if where == "kernel" else 2][4] = bad
    apply_all(table, steps)
    apply_all(other, [steps[0], steps[2]])
    assert_all_equal(table.variables, other.variables)


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
    ids, *gradients = (keras.ops.convert_to_tensor(x) for x in next(gradient_steps()))
    table.apply_row_gradients(ids, gradients)
    ids = to_numpy(ids)
    for tracker in (every, some):
        distinct, old, new = tracker.seen
        kept = distinct < N
        assert set(distinct[kept]) <= set(ids)
        np.testing.assert_array_equal(old[kept], before[distinct[kept]])
        np.testing.assert_array_equal(new[kept], to_numpy(table.kernel)[distinct[kept]])
    assert sorted(every.seen[0][every.seen[0] < N]) == sorted(set(ids))
    assert len(some.seen[0]) == 1 and some.further == {"weight": 2.0}


# In a model.


def make_model(head, optimizer=None, dtype=None):
    """An encoder with given weights and the head, compiled with Adagrad."""
    activation = "tanh" if dtype is None else None
    encoder = keras.layers.Dense(D, activation=activation, name="encoder", dtype=dtype)
    model = functional(head, WIDTH, optimizer or keras.optimizers.Adagrad(0.2), encoder)
    encoder.set_weights([vectors(WIDTH, D, seed=2), vectors(D, seed=3)])
    head.table.kernel.assign(vectors(*head.table.kernel.shape, seed=4))
    if hasattr(head, "sampler"):
        head.sampler.refresh(head.table)
    return model


def data(size=24):
    return [vectors(size, WIDTH, seed=3), labels_below(N, size, seed=3)]


EPOCHS = {"batch_size": 8, "shuffle": False, "epochs": 2, "verbose": 0}


def sampled(o, sampler="uniform", **options):
    return on_table(SampledSoftmax, N, sampler, 6, row_optimizer=o, seed=1, **options)


GROUPS = {"share_draws": 3, "seed": 4}  # of 3, 3 and 2 examples
MIXED = {"first": "uniform", "second": "log_uniform", **GROUPS}
HEADS = {
    "per example": sampled,
    "scores": lambda o: sampled(o, SHARED, normalize=True, absolute=True, temperature=0.3),
    "unique groups": lambda o: sampled(o, spec("unigram", counts=COUNTS, unique=True, **GROUPS)),
    "mixed groups": lambda o: sampled(o, spec("mixed", **MIXED)),
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


@pytest.mark.parametrize(
    "name",
    thorough_but(HEADS, "scores", "unique groups"),
)
def test_fit_with_row_adagrad_is_fit_with_keras_adagrad(name):
    """Same seed, same draws: encoder, table and gamma agree after six steps."""
    models = []
    for optimizer in (RowAdagrad(0.2), None):
        head = HEADS[name](optimizer)
        model = make_model(head)
        model.fit(data(), **EPOCHS)
        models.append((model, head))
    (ours, head), (theirs, other) = models
    own_ids = {id(v) for v in ours.trainable_weights}
    assert id(head.table.kernel) not in own_ids and id(other.table.kernel) not in own_ids
    assert len(theirs.trainable_weights) - len(own_ids) == 2
    assert_all_close(head.table.class_variables, other.table.class_variables)
    assert_all_close(ours.layers[1].weights, theirs.layers[1].weights)
    if name == "nce":
        assert_all_close([head.log_partition], [other.log_partition])
        assert abs(float(to_numpy(head.log_partition))) > 1e-3


def test_evaluation_and_prediction_leave_the_table_alone():
    head = sampled(RowAdam(0.5), SHARED)
    model = make_model(head)
    before = values(head.table.variables)
    model.evaluate(data(), verbose=0)
    model.predict(data(), verbose=0)
    assert_all_equal(head.table.variables, before)


def test_a_batch_in_which_nobody_counts_moves_nothing():
    """Lazy Adam would move the row that stands for the rest by its momentum."""
    head = sampled(RowAdam(0.1))
    model = classifier(head, WIDTH)
    x, y = data(8)
    model.train_on_batch(x, y)
    before = values(head.table.variables)
    model.train_on_batch(x, y, sample_weight=np.zeros(8, "float32"))
    assert_all_equal(head.table.variables, before)


# Half precision and scales of the loss.


def mixed_model(head, scale):
    """Encoder and head in mixed_float16, and an optimizer that scales the loss."""
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), scale)
    return make_model(head, optimizer, "mixed_float16")


def mixed_head(name, sampler="uniform"):
    return sampled(OPTIMIZERS[name](0.2), sampler, dtype="mixed_float16")


def state_of(model):
    """All weights but the place where a kernel sampler, at every step, sums some leaves anew."""
    return {v.path: to_numpy(v).copy() for v in model.weights if v.name != "cursor"}


def test_an_overflow_in_float16_skips_the_step():
    """Table, slots, step count, encoder and sampler stay as they are; the next step trains."""
    head = mixed_head("lazy_adam", RFF)
    model = mixed_model(head, 4.0)
    x, y = data(8)
    model.train_on_batch([x, y])
    before = state_of(model)
    bad = x.copy()
    bad[3] = 1e5  # past the largest float16
    model.train_on_batch([bad, y])
    for path, value in state_of(model).items():
        rounding = 1e-5 if "block_sums" in path else 0.0
        np.testing.assert_allclose(value, before[path], rounding, rounding, err_msg=path)
    assert int(to_numpy(head.table.iterations)) == 1
    model.train_on_batch([x, y])
    assert all(np.isfinite(v).all() for v in values(head.table.weights))
    assert np.any(to_numpy(head.table.kernel) != before[head.table.kernel.path])
    assert int(to_numpy(head.table.iterations)) == 2


@pytest.mark.parametrize("name", thorough_but(OPTIMIZERS, "adagrad"))
def test_rows_do_not_see_the_loss_scale(name):
    tables = []
    for scale in (1.0, 1024.0):
        head = mixed_head(name)
        mixed_model(head, scale).train_on_batch(data(8))
        tables.append(values(head.table.weights))
    assert_all_equal(*tables)


def test_an_overflow_does_not_stay_in_the_state_of_an_example():
    head = AugmentReduce(N, "uniform", 6, num_examples=N, seed=1, dtype="mixed_float16")
    model = mixed_model(head, 4.0)
    x, ids = data(8)[0], np.arange(8, dtype="int32")
    bad = x.copy()
    bad[3] = 1e5
    model.train_on_batch([bad, ids])
    visits = np.where(np.arange(N) < 8, 1, 0)
    visits[3] = 0
    np.testing.assert_array_equal(to_numpy(head.visits), visits)
    assert np.isfinite(model.train_on_batch([x, ids]))


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


def plateau():
    """Halves the rate at the end of each epoch but the first."""
    options = {"monitor": "loss", "factor": 0.5, "patience": 0, "min_delta": 1e6}
    return keras.callbacks.ReduceLROnPlateau(**options)


RATES = {"schedule": (lambda: decay(0.2), None), "plateau": (lambda: 0.2, plateau)}


@pytest.mark.parametrize(("name", "kind"), [("schedule", "classifier"), ("plateau", "plain")])
def test_rows_take_the_rate_of_the_models_optimizer(name, kind):
    """The same model with an ordinary table, which that optimizer trains: all agrees.

    A schedule is given to both; where a callback sets the rate, another one hands it on.
    """
    rate, callback = RATES[name]
    arrays = data() if kind == "classifier" else [data()]
    found = []
    for optimizer in (RowAdagrad(rate()), None):
        head = sampled(optimizer)
        plain = model = make_model(head)
        callbacks = [] if callback is None else [callback()]
        if kind == "classifier":
            model = Classifier(keras.Sequential([plain.get_layer("encoder")]), head, top_k=())
        model.compile(keras.optimizers.Adagrad(rate()))
        if optimizer is not None and callback is not None:
            callbacks.append(handed_on(model.optimizer, head.table.row_optimizer))
        model.fit(*arrays, callbacks=callbacks, **{**EPOCHS, "epochs": 3})
        if optimizer is not None and callback is not None:
            assert float(head.table.row_optimizer.learning_rate) < 0.11
        found.append([*head.table.class_variables, plain.get_layer("encoder").kernel])
    assert_all_close(*found)


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
    head = sampled(RowSGD(0.5))
    model = make_model(head)
    head.table.row_optimizer.learning_rate = 0.03
    assert head.table.row_optimizer.get_config()["learning_rate"] == 0.03
    loaded = saved_and_loaded(model, tmp_path)
    head.table.row_optimizer.learning_rate = 0.07  # in the weights, not in the config of the file
    model.save_weights(tmp_path / "model.weights.h5")
    rows = loaded.layers[-1].table.row_optimizer
    assert float(rows.learning_rate) == pytest.approx(0.03)
    loaded.load_weights(tmp_path / "model.weights.h5")
    assert float(rows.learning_rate) == pytest.approx(0.07)
    assert rows.get_config()["learning_rate"] == pytest.approx(0.07)


@pytest.mark.parametrize(("rate", "options"), [(0.25, {"clipnorm": 0.5}), ("schedule", {})])
@pytest.mark.parametrize("optimizer", OPTIMIZERS.values())
def test_config_round_trip(optimizer, rate, options):
    own = optimizer(decay(0.1) if rate == "schedule" else rate, **options)
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(own))
    assert type(again) is optimizer and again.get_config() == own.get_config()
    assert (again.clipnorm, again.clipvalue) == (options.get("clipnorm"), None)


# What cannot be.

NAN = float("nan")
BAD = [
    *(("learning_rate", RowSGD, rate, {}) for rate in (0, -0.1, "fast", None, NAN, "model")),
    *(("clipnorm", RowSGD, 0.1, {"clipnorm": x}) for x in (0, -1.0, NAN, "big")),
    *(("clipvalue", RowAdam, 0.1, {"clipvalue": x}) for x in (0, -1.0, NAN, "big")),
    ("clipvalue", RowAdagrad, 0.1, {"clipnorm": 1.0, "clipvalue": 1.0}),
    ("row_optimizer", sampled, keras.optimizers.SGD(0.1), {}),
    ("row_optimizer", sampled, "adagrad", {}),
]


@pytest.mark.parametrize("argument, function, value, options", BAD)
def test_bad_arguments(argument, function, value, options):
    rejects(argument, function, value, **options)


def test_bad_rates_that_are_set():
    scheduled = RowSGD(decay(0.1))
    assert isinstance(scheduled.learning_rate, schedules.ExponentialDecay)
    rejects("learning_rate", setattr, scheduled, "learning_rate", 0.1)
    for value in (-0.1, NAN, "model", decay(0.1)):
        rejects("learning_rate", setattr, RowSGD(0.1), "learning_rate", value)


def test_a_classifier_refuses_what_does_not_reach_the_rows():
    """Of an ordinary table it is the model's optimizer's own affair."""
    options = {"gradient_accumulation_steps": 2, "use_ema": True}
    for name, value in options.items():
        optimizer = keras.optimizers.SGD(0.1, **{name: value})
        model = classifier(sampled(RowSGD(0.1)), WIDTH, D, optimizer)
        rejects(name, model.fit, *data(8), verbose=0)
    model = classifier(sampled(None), WIDTH, D, keras.optimizers.SGD(0.1, **options))
    model.fit(*data(8), verbose=0)


def test_a_row_embedding_is_not_trained_under_a_loss_scale():
    """Its gradient comes through the model's optimizer, which would leave the scale in it."""
    layer = RowEmbedding(N, D, RowSGD(0.1), dtype="mixed_float16")
    ids = keras.ops.arange(4)
    assert layer(ids).shape == (4, D)
    rejects("dtype", layer, ids, training=True)
    encoder = keras.Sequential([RowEmbedding(N, D, RowSGD(0.1)), keras.layers.Flatten()])
    model = Classifier(encoder, sampled(None))
    model.compile(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1)))
    ids, labels = np.zeros((8, 1), "int32"), np.zeros(8, "int32")
    rejects("optimizer", model.fit, ids, labels, batch_size=8, verbose=0)

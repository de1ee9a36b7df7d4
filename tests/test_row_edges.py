"""Row updates where a Keras optimizer has help: replicas, half precision, loss scales, clipping."""

import json
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import reference
from conftest import BACKEND, rejects, thorough_but, to_numpy
from test_rows import D, N, apply_all, data, gradient_steps, make_model, make_table

from softbench import AugmentReduce, Classifier, RowAdagrad, RowAdam, RowSGD, SampledSoftmax
from softbench.models import RowEmbedding

OPTIMIZERS = {"sgd": RowSGD, "adagrad": RowAdagrad, "lazy_adam": RowAdam}
SLOTS = {"sgd": "", "adagrad": "a", "lazy_adam": "mv"}  # their names in tests/reference.py
HALF_STEP = {"bfloat16": 2.0**-8, "float16": 2.0**-11}  # of rounding, relative

REPLICAS = """
import json, numpy as np, tensorflow as tf
cpu, split = tf.config.list_physical_devices("CPU")[0], tf.config.LogicalDeviceConfiguration()
tf.config.set_logical_device_configuration(cpu, [split, split])
import keras, softbench
from softbench import models

def trained(make, strategy):
    with strategy.scope():
        x, y = keras.Input((4,)), keras.Input((), dtype="int32")
        head = make()
        extra = {"example_ids": y} if "num_examples" in head.get_config() else {}
        hidden = keras.layers.Dense(4)(x)
        model = keras.Model([x, y], head(hidden, y, **extra))
        model.compile("sgd")
    data = [np.ones((8, 4), "float32"), np.arange(8, dtype="int32")]
    before = model.get_weights()
    try:
        model.fit(data, batch_size=8, verbose=0)
    except ValueError as error:
        same = all(np.array_equal(a, b) for a, b in zip(before, model.get_weights()))
        model.evaluate(data, batch_size=8, verbose=0)
        return [str(error), same]
    return None

def hierarchical():
    return softbench.HierarchicalSoftmax(8, row_optimizer=softbench.RowSGD(0.1))

def sampled(sampler, **options):
    return softbench.SampledSoftmax(8, sampler, 5, seed=0, **options)

counted = {"class_name": "in_batch", "config": {"counts": [1.0] * 8}}
CASES = {
    "rows": lambda: sampled("uniform", row_optimizer=softbench.RowAdam(0.1)),
    "nodes": hierarchical,
    "in_batch": lambda: sampled("in_batch"),
    "examples": lambda: softbench.AugmentReduce(8, "uniform", 5, num_examples=8),
    "counted": lambda: sampled(counted),
    "ordinary": lambda: sampled("uniform"),
}
one = tf.distribute.OneDeviceStrategy("CPU:0")
two = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
found = {name: trained(make, two) for name, make in CASES.items()}
found["one"] = trained(CASES["rows"], one)
print(json.dumps(found))
"""


@pytest.mark.thorough
@pytest.mark.skipif(BACKEND == "jax", reason="tf.distribute is TensorFlow's; JAX shards one model")
def test_replicas_raise_before_the_first_step():
    """Each would change a table, or counts, of its own; what keeps no such state still trains."""
    environ = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}
    run = subprocess.run(
        [sys.executable, "-c", REPLICAS], capture_output=True, text=True, env=environ, check=False
    )
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout.strip().splitlines()[-1])
    named = {"rows": "row_optimizer", "nodes": "row_optimizer", "in_batch": "counts"}
    named["examples"] = "example_ids"
    for name, argument in named.items():
        message, unchanged = found.pop(name)
        assert f"`{argument}`" in message and "Received: 2 replicas" in message and unchanged
    assert found == {"counted": None, "ordinary": None, "one": None}


@pytest.mark.parametrize("policy", HALF_STEP)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_half_precision_table_has_float32_slots(name, policy):
    """Slots are those of NumPy; a row differs by the rounding of what is stored."""
    table = make_table(OPTIMIZERS[name](0.2), dtype=policy)
    values = [to_numpy(v).astype(float) for v in (table.kernel, table.bias)]
    apply_all(table, gradient_steps())
    states = [{}, {}]
    for ids, *gradients in gradient_steps():
        extra = {"touched": np.isin(np.arange(N), ids)} if name == "lazy_adam" else {}
        for i, gradient in enumerate(gradients):
            summed = reference.sum_rows(values[i].shape, ids, gradient)
            values[i] = getattr(reference, name)(values[i], summed, states[i], 0.2, **extra)
    for i, variable in enumerate((table.kernel, table.bias)):
        assert keras.backend.standardize_dtype(variable.dtype) == policy
        largest = np.abs(values[i]).max() + 1
        found = to_numpy(variable).astype(float)
        # A step rounds the change and the sum.
        np.testing.assert_allclose(found, values[i], rtol=0, atol=8 * largest * HALF_STEP[policy])
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


@pytest.mark.parametrize("policy", HALF_STEP)
@pytest.mark.parametrize("name", thorough_but(OPTIMIZERS, "lazy_adam"))
def test_fit_under_a_half_precision_policy(name, policy):
    optimizer = OPTIMIZERS[name](0.05)
    head = SampledSoftmax(N, "uniform", 6, row_optimizer=optimizer, seed=1, dtype=policy)
    model = make_model(head)
    before = model.evaluate(data(), verbose=0)
    model.fit(data(), batch_size=8, epochs=6, verbose=0)
    assert model.evaluate(data(), verbose=0) < before


def mixed_model(head, scale):
    """Encoder and head in mixed_float16, and an optimizer that scales the loss."""
    x, y = keras.Input((5,)), keras.Input((), dtype="int32")
    encoder = keras.layers.Dense(D, name="encoder", dtype="mixed_float16")
    extra = {"example_ids": y} if isinstance(head, AugmentReduce) else {}
    model = keras.Model([x, y], head(encoder(x), y, **extra))
    rng = np.random.default_rng(2)
    encoder.set_weights([rng.normal(size=(5, D)), rng.normal(size=D)])
    head.table.kernel.assign(rng.normal(size=head.table.kernel.shape))
    head.sampler.refresh(head.table)
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), scale)
    model.compile(optimizer)
    return model


def mixed_head(name, sampler="uniform"):
    options = {"row_optimizer": OPTIMIZERS[name](0.2), "seed": 1, "dtype": "mixed_float16"}
    return SampledSoftmax(N, sampler, 6, **options)


def state_of(model):
    """All weights but the place where a kernel sampler, at every step, sums some leaves anew."""
    return {v.path: to_numpy(v).copy() for v in model.weights if v.name != "cursor"}


RFF = {"class_name": "rff", "config": {"num_features": 8, "block_size": 2}}


@pytest.mark.parametrize("sampler", ["uniform", RFF, "exp"], ids=["uniform", "rff", "exp"])
@pytest.mark.parametrize("name", thorough_but(OPTIMIZERS, "lazy_adam"))
def test_an_overflow_in_float16_skips_the_step(name, sampler):
    """Table, slots, step count, encoder and sampler stay as they are; the next step trains."""
    head = mixed_head(name, sampler)
    model = mixed_model(head, 4.0)
    x, y = data(size=8)
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
    after = [to_numpy(v) for v in head.table.weights]
    assert all(np.isfinite(v).all() for v in after)
    assert np.any(to_numpy(head.table.kernel) != before[head.table.kernel.path])
    assert int(to_numpy(head.table.iterations)) == 2


@pytest.mark.parametrize("name", thorough_but(OPTIMIZERS, "adagrad"))
def test_rows_do_not_see_the_loss_scale(name):
    tables = []
    for scale in (1.0, 1024.0):
        head = mixed_head(name)
        mixed_model(head, scale).train_on_batch(data(size=8))
        tables.append([to_numpy(v) for v in head.table.weights])
    for a, b in zip(*tables, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_row_embedding_is_not_trained_under_a_loss_scale():
    """Its gradient comes through the model's optimizer, which would leave the scale in it."""
    layer = RowEmbedding(N, D, RowSGD(0.1), dtype="mixed_float16")
    ids = keras.ops.arange(4)
    assert layer(ids).shape == (4, D)
    rejects("dtype", layer, ids, training=True)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["kernel", "bias"])
def test_a_gradient_that_is_not_finite_updates_nothing(where, bad):
    table = make_table(RowAdam(0.1))
    steps = list(gradient_steps(steps=3))
    steps[1][1 if where == "kernel" else 2][4] = bad
    apply_all(table, steps)
    other = make_table(RowAdam(0.1))
    apply_all(other, [steps[0], steps[2]])
    for a, b in zip(table.variables, other.variables, strict=True):
        np.testing.assert_array_equal(to_numpy(a), to_numpy(b))


def test_an_overflow_does_not_stay_in_the_state_of_an_example():
    head = AugmentReduce(N, "uniform", 6, num_examples=N, seed=1, dtype="mixed_float16")
    model = mixed_model(head, 4.0)
    x, _ = data(size=8)
    ids = np.arange(8, dtype="int32")
    bad = x.copy()
    bad[3] = 1e5
    model.train_on_batch([bad, ids])
    visits = np.where(np.arange(N) < 8, 1, 0)
    visits[3] = 0
    np.testing.assert_array_equal(to_numpy(head.visits), visits)
    assert np.isfinite(model.train_on_batch([x, ids]))


KERAS = {"sgd": keras.optimizers.SGD, "adagrad": keras.optimizers.Adagrad}


@pytest.mark.parametrize("clip", [{"clipnorm": 2.0}, {"clipvalue": 0.7}, {"clipnorm": 1e3}])
@pytest.mark.parametrize("name", KERAS)
def test_clipping_is_that_of_keras_for_each_variable(name, clip):
    """Of the gradient summed over duplicated ids: the norms of these are from 1.6 to 6.7."""
    table = make_table(OPTIMIZERS[name](0.3, **clip))
    dense = [keras.Variable(to_numpy(v)) for v in (table.kernel, table.bias)]
    optimizer = KERAS[name](0.3, **clip)
    optimizer.build(dense)
    apply_all(table, gradient_steps())
    for ids, *gradients in gradient_steps():
        pairs = zip(dense, gradients, strict=True)
        summed = [reference.sum_rows(v.shape, ids, g) for v, g in pairs]
        optimizer.apply([keras.ops.convert_to_tensor(g, "float32") for g in summed], dense)
    for own, other in zip((table.kernel, table.bias), dense, strict=True):
        np.testing.assert_allclose(to_numpy(own), to_numpy(other), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("optimizer", OPTIMIZERS.values())
def test_clipping_is_saved(optimizer):
    own = optimizer(0.1, clipnorm=0.5)
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(own))
    assert (again.clipnorm, again.clipvalue) == (0.5, None)
    config = own.get_config()
    del config["clipnorm"], config["clipvalue"]  # as it was saved before there was clipping
    assert optimizer.from_config(config).clipnorm is None


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), "big"])
def test_bad_clipping(value):
    rejects("clipnorm", RowSGD, 0.1, clipnorm=value)
    rejects("clipvalue", RowAdam, 0.1, clipvalue=value)
    rejects("clipvalue", RowAdagrad, 0.1, clipnorm=1.0, clipvalue=1.0)


@pytest.mark.parametrize("row_optimizer", [None, RowSGD(0.1)], ids=["ordinary", "rows"])
@pytest.mark.parametrize("option", [{"gradient_accumulation_steps": 2}, {"use_ema": True}])
def test_a_classifier_refuses_what_does_not_reach_the_rows(option, row_optimizer):
    head = SampledSoftmax(N, "uniform", 6, row_optimizer=row_optimizer, seed=1)
    model = Classifier(keras.layers.Dense(D), head)
    model.compile(keras.optimizers.SGD(0.1, **option))
    if row_optimizer is None:
        model.fit(*data(size=8), verbose=0)
    else:
        rejects(*option, model.fit, *data(size=8), verbose=0)


def test_a_classifier_refuses_a_loss_scale_beside_row_embeddings():
    encoder = keras.Sequential([RowEmbedding(N, D, RowSGD(0.1)), keras.layers.Flatten()])
    model = Classifier(encoder, SampledSoftmax(N, "uniform", 6, seed=1))
    model.compile(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1)))
    ids, labels = np.zeros((8, 1), "int32"), np.zeros(8, "int32")
    rejects("optimizer", model.fit, ids, labels, batch_size=8, verbose=0)


@pytest.mark.parametrize("name", KERAS)
def test_one_norm_over_kernel_and_bias_is_that_of_keras(name):
    table = make_table(OPTIMIZERS[name](0.3, global_clipnorm=2.0))
    dense = [keras.Variable(to_numpy(v)) for v in (table.kernel, table.bias)]
    optimizer = KERAS[name](0.3, global_clipnorm=2.0)
    optimizer.build(dense)
    apply_all(table, gradient_steps())
    for ids, *gradients in gradient_steps():
        pairs = zip(dense, gradients, strict=True)
        summed = [reference.sum_rows(v.shape, ids, g) for v, g in pairs]
        assert np.sqrt(sum((g**2).sum() for g in summed)) > 2.0
        optimizer.apply([keras.ops.convert_to_tensor(g, "float32") for g in summed], dense)
    for own, other in zip((table.kernel, table.bias), dense, strict=True):
        np.testing.assert_allclose(to_numpy(own), to_numpy(other), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("optimizer", OPTIMIZERS.values())
def test_a_batch_in_which_nobody_counts_moves_nothing(optimizer):
    """Lazy Adam would move the row that stands for the rest by its momentum."""
    head = SampledSoftmax(N, "uniform", 6, row_optimizer=optimizer(0.1), seed=1)
    model = Classifier(keras.layers.Identity(), head)
    model.compile("sgd")
    x, y = data(size=8)
    model.train_on_batch(x, y)
    before = [to_numpy(v) for v in head.table.variables]
    model.train_on_batch(x, y, sample_weight=np.zeros(8, "float32"))
    for old, new in zip(before, head.table.variables, strict=True):
        np.testing.assert_array_equal(old, to_numpy(new))

"""The one way in which tests build small things: samplers, tables, models, vectors and labels."""

import keras
import numpy as np
from conftest import compiled, to_numpy

from softbench import AugmentReduce, Classifier, ClassTable, samplers


def spec(name, **config):
    """What a head takes as `sampler`."""
    return {"class_name": name, "config": config}


def make_sampler(name, **config):
    return samplers.get(spec(name, **config))


def built_sampler(name, table, num_sampled=5, **config):
    """A sampler that is built for a table."""
    sampler = make_sampler(name, **config)
    sampler.build((table.units, table.width), num_sampled, table)
    return sampler


def randomize(table, scale=1.0, seed=5):
    """The table, with normal rows and biases."""
    rng = np.random.default_rng(seed)
    table.kernel.assign(rng.normal(0, scale, table.kernel.shape))
    if table.bias is not None:
        table.bias.assign(rng.normal(0, scale, table.bias.shape))
    return table


def make_table(units, dim, scale=1.0, seed=5, **options):
    """A class table of normal rows and biases."""
    table = ClassTable(units, **options)
    table.build((None, dim))
    return randomize(table, scale, seed)


def vectors(*shape, seed=0, scale=1.0):
    return np.random.default_rng(seed).normal(0, scale, shape).astype("float32")


def labels_below(units, *shape, seed=0):
    return np.random.default_rng(seed).integers(0, units, shape).astype("int32")


def functional(head, width, optimizer="sgd", encoder=None, labels=(), **options):
    """A compiled model [x (width,), labels] -> losses, on a layer `encoder` if there is one."""
    x, y = keras.Input((width,)), keras.Input(labels, dtype="int32")
    hidden = x if encoder is None else encoder(x)
    extra = {"example_ids": y} if isinstance(head, AugmentReduce) else {}
    model = keras.Model([x, y], head(hidden, y, **extra))
    model.compile(optimizer, **options)
    return model


def classifier(head, width, dim=None, optimizer="sgd", **options):
    """A compiled classifier with a dense layer to `dim` features, or with none."""
    layer = keras.layers.Identity() if dim is None else keras.layers.Dense(dim)
    shape = (width,) if isinstance(width, int) else width
    model = Classifier(keras.Sequential([keras.Input(shape), layer]), head, **options)
    model.compile(optimizer)
    return model


def training(head):
    """`head(hidden, labels, ..., training=True)`, compiled."""
    return compiled(lambda *arrays: head(*arrays, training=True), head)


def saved_and_loaded(model, folder):
    model.save(folder / "model.keras")
    return keras.models.load_model(folder / "model.keras")


def state(layer):
    """All that a layer keeps, by path, but the states of its random streams."""
    return {v.path: to_numpy(v).copy() for v in layer.variables if "seed" not in v.path}


def values(arrays):
    """Arrays, tensors or variables as NumPy."""
    return [to_numpy(a).copy() for a in arrays]


def assert_all_close(found, expected, rtol=1e-5, atol=1e-5):
    """Of arrays, tensors or variables in pairs."""
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(to_numpy(a), to_numpy(b), rtol=rtol, atol=atol)


def assert_all_equal(found, expected):
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(to_numpy(a), to_numpy(b))

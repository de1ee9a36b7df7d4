"""How kernel samplers cut classes into blocks, by arithmetic; and small parts of their q."""

import types

import keras
import numpy as np
import pytest
import reference
from conftest import compiled, reference_features, to_numpy

from softbench import ClassTable, RowAdagrad, samplers
from softbench.samplers.kernel import distribution, shape

D = 6


def features(dim, exact=False):
    return types.SimpleNamespace(dim=dim, exact=exact)


@pytest.mark.parametrize(
    ("units", "width", "map_", "share", "draws", "exact", "expected"),
    [
        # 128 classes a draw are compared directly, if the map is exact and draws are not shared.
        (640, 8, features(37, True), False, 5, False, 640),
        (641, 8, features(37, True), False, 5, False, 1),
        (640, 8, features(37, True), True, 5, False, 1),
        (640, 8, features(37), False, 5, False, 1),
        (640, 8, features(37), False, 5, True, 32),
        # Up to 2^27 numbers of sums (2^25 of an exact map), or 4 n d (n d).
        (2**17, 8, features(1024), False, 5, False, 1),
        (2**17 + 2, 8, features(1024), False, 5, False, 2),
        (2**20, 8, features(1024), False, 5, False, 8),
        (2**20, 128, features(1024), False, 5, False, 2),
        (2**20, 256, features(1024), False, 5, False, 1),
        (2**20, 8, features(64, True), True, 5, False, 2),
        (2**20, 64, features(64, True), True, 5, False, 1),
    ],
)
def test_default_block_size(units, width, map_, share, draws, exact, expected):
    assert shape.default_block_size(units, width, map_, share, draws, exact) == expected


@pytest.mark.parametrize(
    ("leaves", "dim", "share", "draws", "expected"),
    [
        (10**6, 512, False, 4, (1024, 16)),
        (10**6, 512, False, 5, (1280, 16)),
        (10**6, 512, True, 32, (1024, 16)),
        (10**6, 512, True, 33, (1056, 16)),
        (10**6, 513, False, 100, (1024, 4)),
        (10**6, 513, True, 129, (1032, 4)),
        (12_800, 513, False, 100, (12_800, 4)),
        (12_801, 513, False, 100, (1024, 4)),
        (1_600, 513, True, 100, (1_600, 4)),
        (1_601, 513, True, 100, (1024, 4)),
    ],
)
def test_shape_of_levels(leaves, dim, share, draws, expected):
    assert shape.shape_of_levels(leaves, dim, share, draws) == expected


@pytest.mark.parametrize("floor", [0.0, 0.1, 0.5])
def test_shares_of_siblings_by_themselves(floor):
    """Rows of their own: with no positive mass, with none in a column, with none to have."""
    mass = np.array([[-1, -2, 0, 0], [0.3, 0, 0.1, 9], [0, 0, 0, 0], [-1, 4, 0, 2]], "float32")
    weight = np.array([[1, 2, 3, 4], [1, 2, 0, 1], [1, 2, 3, 4], [0.5, 1, 2, 0]], "float32")
    available = np.array([[1, 1, 1, 0], [1, 1, 0, 0], [0, 0, 0, 0], [1, 1, 1, 0]], bool)
    arrays = map(keras.ops.convert_to_tensor, (mass, weight, available))
    found = to_numpy(distribution.clamped(*arrays, floor))
    shares = np.exp(to_numpy(distribution.log_shares(keras.ops.convert_to_tensor(found))))
    for row, *own in zip(shares, mass, weight, available, strict=True):
        expected = reference.clamped_shares(*(np.asarray(x, float) for x in own[:2]), own[2], floor)
        np.testing.assert_allclose(row, expected, rtol=1e-5)


def test_softmax_of_what_is_available():
    scores = np.array([[1.0, 2.0, 900.0], [1.0, 2.0, 3.0]], "float32")
    available = np.array([[True, True, False], [False] * 3])
    found = to_numpy(
        distribution.masked_softmax(*map(keras.ops.convert_to_tensor, (scores, available)))
    )
    share = 1 / (1 + np.exp(1.0))
    np.testing.assert_allclose(found, [[share, 1 - share, 0], [0, 0, 0]], rtol=1e-6)


@pytest.mark.parametrize("block_size", [1, 2, 8, 50])
def test_sums_after_one_change_of_rows(block_size):
    """Of weights with bias and prior, for ids in any order; JAX fills up with n."""
    n, rng = 41, np.random.default_rng(4)
    config = {"num_features": 5, "block_size": block_size, "seed": 1, "refresh_every": 1}
    config["prior"] = np.append(0.0, rng.integers(1, 9, n - 1))
    sampler = samplers.get({"class_name": "positive", "config": config})
    table = ClassTable(n, row_optimizer=RowAdagrad(0.1))
    table.build((None, D))
    sampler.build((n, D), 5, table)
    table.add_tracker(sampler)

    def change(ids, gradients):
        table.apply_row_gradients(ids, [gradients, gradients[:, 0]])
        return sampler._computed(table)

    ids = np.array([40, 3, 0, 3, 17], "int32")
    gradients = rng.normal(size=(5, D)).astype("float32")
    before = [to_numpy(v).copy() for v in sampler._sums_and_weights()]
    fresh = compiled(change, sampler, table)(ids, gradients)
    assert len(before) == (1 if block_size == 50 else 2)
    for old, variable, value in zip(before, sampler._sums_and_weights(), fresh, strict=True):
        np.testing.assert_allclose(to_numpy(variable), to_numpy(value), rtol=1e-4, atol=1e-5)
        assert np.abs(old - to_numpy(value)).max() > 1e-2


@pytest.mark.parametrize("block_size", [1, 2, 50])
def test_total_mass_with_one_leaf_and_with_many(block_size):
    """<phi(h), sum of w phi(c)>, w the counts over their largest times e^bias."""
    n, rng = 41, np.random.default_rng(7)
    counts = rng.integers(0, 9, n)
    config = {"num_features": 5, "block_size": block_size, "prior": counts, "share_draws": True}
    sampler = samplers.get({"class_name": "positive", "config": {**config, "seed": 1}})
    table = ClassTable(n)
    table.build((None, D))
    table.bias.assign(rng.normal(size=n))
    sampler.build((n, D), 5, table)
    hidden = keras.ops.convert_to_tensor(rng.normal(size=(3, D)).astype("float32"))
    phi = to_numpy(sampler.features.queries(hidden)).astype(float)
    rows = reference_features(sampler.features, to_numpy(table.kernel).astype(float))
    weight = counts / counts.max() * np.exp(to_numpy(table.bias).astype(float))
    found = sampler._total_mass(table, keras.ops.convert_to_tensor(phi.astype("float32")), hidden)
    np.testing.assert_allclose(to_numpy(found), phi @ (weight @ rows), rtol=1e-4)


def test_a_small_total_counts_as_a_share_of_the_mean():
    """An example far from all classes has a mass 1e-3 of the batch's mean in the mixture."""
    config = {"num_features": 8, "block_size": 2, "share_draws": True, "seed": 1}
    sampler = samplers.get({"class_name": "positive", "config": config})
    table = ClassTable(9)
    table.build((None, D))
    sampler.build((9, D), 5, table)
    hidden = np.random.default_rng(0).normal(size=(3, D)).astype("float32")
    totals = keras.ops.convert_to_tensor(np.array([4.0, 2.0, 1e-6], "float32"))
    sampler._total_mass = lambda *_: totals
    members = to_numpy(sampler.query(table, keras.ops.convert_to_tensor(hidden), None).members)
    phi = to_numpy(sampler.features.queries(table.normalized(hidden)))
    expected = phi / np.array([[4.0], [2.0], [1e-3 * 6.000001 / 3]])
    np.testing.assert_allclose(members, expected, rtol=1e-5)

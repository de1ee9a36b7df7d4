"""Random directions that are drawn afresh at each refresh of a kernel sampler."""

import itertools

import keras
import numpy as np
import pytest
from conftest import assert_drawn_from, compiled, reference_features, thorough_but, to_numpy

from softbench import ClassTable, NoiseContrastive, RowSGD, samplers
from softbench.samplers.kernel import maclaurin, positive, rff, sorf
from softbench.targets import Targets

N, D, NU = 40, 6, 0.8
MAPS = {
    "rff": lambda: rff.RandomFourier(40, NU, seed=0),
    "sorf": lambda: sorf.StructuredFourier(40, NU, seed=0),
    "positive": lambda: positive.PositiveRandom(40, NU, seed=0),
    "positive iid": lambda: positive.PositiveRandom(40, NU, orthogonal=False, seed=0),
    "maclaurin": lambda: maclaurin.RandomMaclaurin(40, NU, seed=0),
}
pytestmark = pytest.mark.usefixtures("small_top")


@pytest.mark.parametrize("name", thorough_but(MAPS, "sorf", "positive"))
def test_fresh_directions_estimate_the_kernel(name):
    """Mean over 300 redraws within 4 standard errors; SORF's bias as in test_kernel.py.

    Maclaurin keeps its degrees N_j: the mean is sum_j a_j^2 <x, y>^N_j.
    """
    size, generator, found = 32, keras.random.SeedGenerator(1), MAPS[name]()
    found.build((None, size))
    x = np.eye(2, size)
    angles = np.array([0.0, 0.7, 1.6, 3.0])
    y = np.stack([np.cos(angles), np.sin(angles)], axis=-1) @ x
    estimates = []
    for _ in range(300):
        found.drawn.assign(found.fresh(found.noise(generator)))
        estimates.append(reference_features(found, x[:1]) @ reference_features(found, y).T)
    estimates = np.concatenate(estimates)
    error = estimates.std(0, ddof=1) / np.sqrt(len(estimates))
    expected, bias = np.exp(NU * np.cos(angles)), 0
    if name == "sorf":
        bias = (2 * NU * (1 - np.cos(angles))) ** 2 / (4 * size) * np.exp(NU)
    if name == "maclaurin":
        squares = to_numpy(found.coefficients).astype(float) ** 2
        degrees = (np.array(found.counts)[:, None] > np.arange(40)).sum(0)
        expected = squares @ np.cos(angles)[None, :] ** degrees[:, None]
    assert np.all(error[1:] > 0)
    assert np.all(np.abs(estimates.mean(0) - expected) <= 4 * error + bias + 1e-5)


def test_orthogonal_directions_stay_orthogonal():
    found = positive.PositiveRandom(8, NU, seed=0)
    found.build((None, 8))
    fresh = to_numpy(found.fresh(found.noise(keras.random.SeedGenerator(2)))).astype(float)
    products = fresh.T @ fresh
    lengths = np.sqrt(np.diag(products))
    np.testing.assert_allclose(products / np.outer(lengths, lengths), np.eye(8), atol=1e-5)


@pytest.mark.parametrize("name", thorough_but(["rff", "sorf", "positive", "maclaurin"], "rff"))
def test_redraw_at_each_refresh(name):
    """New directions at every third step, none in between; draws follow `log_prob` throughout."""
    config = {"num_features": 16, "block_size": 4, "refresh_every": 3, "redraw": True, "seed": 1}
    sampler = samplers.get({"class_name": name, "config": config})
    table, rng = ClassTable(N), np.random.default_rng(0)
    table.build((None, D))
    sampler.build((N, D), 5, table)
    hidden, labels = rng.normal(size=(2, D)).astype("float32"), np.array([3, 7], "int32")

    def function(hidden, labels):
        sampler.observe(table, Targets(labels))
        others = sampler.sample(table, hidden, 2000, labels)
        return others, sampler.log_prob(table, hidden, labels=labels)

    call, seen = compiled(function, sampler, table), []
    for _ in range(6):
        samples, log_q = call(hidden, labels)
        seen.append(to_numpy(sampler.features.drawn))
        q = np.exp(to_numpy(log_q).astype(float))
        np.testing.assert_allclose(q.sum(-1), 1.0, rtol=1e-5)
        for row, own in zip(to_numpy(samples.ids), q, strict=True):
            assert_drawn_from(row, own)
    same = [np.array_equal(a, b) for a, b in itertools.pairwise(seen)]
    assert same == [True, True, False, True, True]
    for variable, value in zip(sampler._sums_and_weights(), sampler._computed(table), strict=True):
        np.testing.assert_allclose(to_numpy(variable), to_numpy(value), rtol=1e-4, atol=1e-4)
    assert samplers.get(samplers.serialize(sampler)).redraw


def test_redraw_needs_an_ordinary_optimizer():
    table = ClassTable(N, row_optimizer=RowSGD(0.1))
    table.build((None, D))
    sampler = samplers.get({"class_name": "rff", "config": {"redraw": True}})
    with pytest.raises(ValueError, match=r"`redraw` must be False.*Received: redraw=True"):
        sampler.build((N, D), 5, table)


@pytest.mark.parametrize("mixed", [False, True])
def test_a_step_counts_once_however_often_it_draws(mixed):
    """NCE with a regulariser draws two sets; refreshes come at steps 0, 3 and 6 all the same."""
    config = {"num_features": 16, "block_size": 4, "refresh_every": 3, "redraw": True, "seed": 1}
    kernel = samplers.get({"class_name": "rff", "config": config})
    sampler = samplers.Mixed("uniform", kernel) if mixed else kernel
    head = NoiseContrastive(N, sampler=sampler, num_sampled=4, regularization=0.1)
    x, y = keras.Input((D,)), keras.Input((), dtype="int32")
    model = keras.Model([x, y], head(x, y))
    model.compile(keras.optimizers.SGD(0.1))
    rng, seen = np.random.default_rng(0), []
    hidden, labels = rng.normal(size=(8, D)).astype("float32"), rng.integers(0, N, 8)
    for _ in range(7):
        model.train_on_batch([hidden, labels])
        seen.append(to_numpy(kernel.features.drawn))
    same = [np.array_equal(a, b) for a, b in itertools.pairwise(seen)]
    assert same == [True, True, False, True, True, False]
    assert int(to_numpy(kernel.steps)) == 7

"""The backend operations: random integers, bisection, rows of variables, sums of duplicates."""

import keras
import numpy as np
import pytest
from conftest import BACKEND, compiled, gradient_function, to_numpy
from keras import ops
from scipy import stats

from softbench import ops as own
from softbench.samplers import sum_tree

SIGNIFICANCE = 1e-4


def seed(value):
    return keras.random.SeedGenerator(value).next()


def chi_square(observed, probabilities):
    return stats.chisquare(observed, probabilities * observed.sum()).pvalue


@pytest.mark.parametrize("maximum", [1, 3, 7, 1000])
def test_random_integers_are_uniform(maximum):
    x = to_numpy(own.random_integers((200_000,), maximum, seed(maximum)))
    assert x.dtype == np.int32 and x.min() >= 0 and x.max() < maximum
    if maximum > 1:
        p = chi_square(np.bincount(x, minlength=maximum), np.full(maximum, 1 / maximum))
        assert p > SIGNIFICANCE


@pytest.mark.parametrize("draw", [own.random_integers, own.random_points])
@pytest.mark.parametrize("maximum", [1_500_000_000, 2**30 + 1, 2**31 - 1])
def test_random_integers_are_uniform_up_to_large_maxima(maximum, draw):
    """A remainder of 32 random bits would draw the lower part of 1.5e9 up to twice too often."""
    most = maximum if draw is own.random_integers else ops.convert_to_tensor(maximum, "int32")
    x = to_numpy(draw((200_000,), most, seed(3))).astype(np.int64)
    assert x.min() >= 0 and x.max() < maximum
    edges = np.linspace(0, maximum, 51)
    observed = np.histogram(x, edges)[0]
    assert chi_square(observed, np.full(50, 1 / 50)) > SIGNIFICANCE
    low_bits = np.bincount(x % 64, minlength=64)
    assert chi_square(low_bits, np.full(64, 1 / 64)) > SIGNIFICANCE


@pytest.mark.parametrize("draw", [own.random_integers, own.random_points])
def test_random_integers_broadcast_their_maxima(draw):
    maxima = np.array([[3], [10], [1_500_000_000]], np.int32)
    x = to_numpy(draw((3, 60_000), ops.convert_to_tensor(maxima), seed(6)))
    assert x.shape == (3, 60_000) and np.all(x < maxima) and np.all(x >= 0)
    for row, maximum in zip(x, maxima[:, 0], strict=True):
        bins = min(int(maximum), 50)
        observed = np.histogram(row, np.linspace(0, maximum, bins + 1))[0]
        assert chi_square(observed, np.full(bins, 1 / bins)) > SIGNIFICANCE


def test_random_integers_depend_on_the_seed_and_only_on_it():
    a, b, c = (to_numpy(own.random_integers((8,), 10**6, seed(s))) for s in (1, 1, 2))
    assert np.array_equal(a, b) and not np.array_equal(a, c)


@pytest.mark.skipif(BACKEND != "jax", reason="TensorFlow finds duplicates without it")
@pytest.mark.parametrize("size", [1, 2, 4, 8, 1024])
def test_bisect_is_numpy_searchsorted(size, rng):
    """With duplicated entries (classes of width 0): the last position not above the value."""
    table = np.concatenate([[0], np.sort(rng.integers(0, max(2, size), size - 1))]).astype("int32")
    values = rng.integers(0, size + 2, (4, 50)).astype("int32")
    from softbench.ops import jax as ops_jax

    variable = ops.convert_to_tensor(table)
    position = compiled(lambda v: ops_jax.bisect(lambda p: ops.take(variable, p), size, v))(values)
    expected = np.searchsorted(table, values, side="right") - 1
    np.testing.assert_array_equal(to_numpy(position), expected)


def test_rows_of_variables_add_and_replace():
    start = np.arange(12, dtype=np.float32).reshape(6, 2)
    variable = keras.Variable(start, trainable=False)
    ids = ops.convert_to_tensor(np.array([4, 1, 4], np.int32))
    np.testing.assert_array_equal(to_numpy(own.gather_rows(variable, ids)), start[[4, 1, 4]])
    own.scatter_add(variable, ids, ops.ones((3, 2)))
    expected = start.copy()
    expected[4] += 2
    expected[1] += 1
    np.testing.assert_array_equal(to_numpy(variable), expected)
    own.scatter_update(variable, ids[:2], ops.zeros((2, 2)))
    expected[[4, 1]] = 0
    np.testing.assert_array_equal(to_numpy(variable), expected)


@pytest.mark.parametrize("rows", [7, 6])  # more rows than ids, or not
def test_sum_duplicates(rng, rows):
    ids = np.array([5, 2, 5, 0, 2, 5], np.int32)
    matrix, vector = rng.normal(size=(6, 3)), rng.normal(size=6)
    values = [ops.convert_to_tensor(v, dtype="float32") for v in (matrix, vector)]
    distinct, sums = own.sum_duplicates(ops.convert_to_tensor(ids), values, rows)
    distinct = to_numpy(distinct)
    kept = distinct < rows
    assert sorted(distinct[kept]) == [0, 2, 5] and np.all(distinct[~kept] == rows)
    for value, total in zip((matrix, vector), sums, strict=True):
        expected = [value[ids == i].sum(0) for i in distinct[kept]]
        np.testing.assert_allclose(to_numpy(total)[kept], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("trainable", [True, False])
def test_gathered_rows_are_those_of_a_compiled_step(trainable):
    variable = keras.Variable(np.eye(4, dtype=np.float32), trainable=trainable)
    layer = keras.layers.Layer()
    layer.variable = variable
    rows = compiled(lambda ids: own.gather_rows(variable, ids), layer)(np.array([[2, 0]], np.int32))
    np.testing.assert_array_equal(to_numpy(rows), np.eye(4)[[[2, 0]]])


def test_two_backward_passes_share_one(rng):
    """softplus(sum of squares) of a pair: gradients of two weightings of the losses."""
    a, b = rng.normal(size=5).astype("float32"), rng.normal(size=(5, 3)).astype("float32")
    losses = own.share_backward(lambda a, b: ops.softplus(a * a + ops.sum(b * b, axis=-1)))
    first, second = rng.normal(size=(2, 5)).astype("float32")

    def inner(a, b):
        value = losses(a, b)
        return ops.sum(first * value), value

    gradients, value = own.gradients_and_aux(inner, [ops.convert_to_tensor(x) for x in (a, b)])
    exact = a.astype(np.float64) ** 2 + (b.astype(np.float64) ** 2).sum(1)
    sigmoid = 1 / (1 + np.exp(-exact))
    np.testing.assert_allclose(to_numpy(value), np.log1p(np.exp(exact)), rtol=1e-5)
    np.testing.assert_allclose(to_numpy(gradients[0]), first * sigmoid * 2 * a, rtol=1e-4)
    expected = (first * sigmoid)[:, None] * 2 * b
    np.testing.assert_allclose(to_numpy(gradients[1]), expected, rtol=1e-4)
    table = keras.Variable(b)
    layer = keras.layers.Layer()
    outer = gradient_function(
        lambda a: ops.sum(second * losses(a, ops.convert_to_tensor(table))), layer, [table]
    )
    _, (of_a, of_b) = outer(a)
    np.testing.assert_allclose(of_a, second * sigmoid * 2 * a, rtol=1e-4)
    np.testing.assert_allclose(of_b, (second * sigmoid)[:, None] * 2 * b, rtol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "float64"] if own.FLOAT64 else ["float32"])
def test_uniform_numbers_are_the_same_with_and_without_xla(dtype):
    size = 20_000

    def draw(seed):
        numbers = own.random_uniform((size // 2, 2), seed, dtype)
        return numbers, own.random_points((size,), ops.full((size,), 1000, "int32"), seed)

    numbers, points = (to_numpy(x) for x in compiled(draw)(seed(5)))
    assert numbers.dtype == dtype and numbers.min() >= 0 and numbers.max() < 1
    steps = 2.0 ** (52 if dtype == "float64" else 23) * numbers
    assert np.all(steps == np.round(steps)) and len(set(steps.flat)) > 0.99 * size
    assert stats.kstest(numbers.ravel(), "uniform").pvalue > SIGNIFICANCE
    assert chi_square(np.bincount(points, minlength=1000), np.full(1000, 1e-3)) > SIGNIFICANCE
    for other in (draw(seed(5)), compiled(draw, xla=True)(seed(5))):
        np.testing.assert_array_equal(to_numpy(other[0]), numbers)
        np.testing.assert_array_equal(to_numpy(other[1]), points)


@pytest.mark.parametrize("dtype", ["int32", "float32"])
@pytest.mark.parametrize("size", [1, 2, 7, 8, 40])
def test_number_at_most(size, dtype):
    ordered = np.sort(np.random.default_rng(size).integers(0, 9, (3, size)), axis=-1).astype(dtype)
    values = np.tile(np.arange(-1, 11), (3, 1)).astype(dtype)
    expected = (ordered[:, None, :] <= values[:, :, None]).sum(-1)
    below = np.full((3, 5), -9).astype(dtype)
    found = own.number_at_most(np.concatenate([below, ordered], axis=-1), values, size)
    np.testing.assert_array_equal(to_numpy(found), expected)
    for part in (slice(None), slice(3, 4)):  # a single value too
        arrays = (ops.convert_to_tensor(x) for x in (ordered, values[:, part]))
        found = own.number_at_most(*arrays)
        np.testing.assert_array_equal(to_numpy(found), expected[:, part])


@pytest.mark.parametrize("size", [5, 16, 23, 40])
def test_a_child_without_mass_is_not_chosen(size):
    """Running sums in another order for each would let rounding give such a child a share."""
    rng, rows = np.random.default_rng(size), 3000
    masses = 10.0 ** rng.uniform(-8, 8, (rows, size)) * (rng.random((rows, size)) < 0.5)
    masses[:, 0] = 10.0 ** rng.uniform(-8, 8, rows)
    edges = np.cumsum(masses, axis=-1) / masses.sum(-1, keepdims=True)
    uniform = np.concatenate([rng.random((rows, size)), edges, edges * (1 - 1e-7)], axis=-1)
    uniform = np.minimum(uniform, 1 - 2.0**-24).astype("float32")
    repeated = np.repeat(masses[:, None].astype("float32"), uniform.shape[1], axis=1)
    child = to_numpy(compiled(sum_tree.choose)(repeated, uniform))
    assert (np.take_along_axis(masses, child, -1) > 0).all()
    clear = np.abs(uniform[..., None] - edges[:, None]).min(-1) > 1e-5
    assert clear.sum() > rows
    expected = np.argmax(edges[:, None] > uniform[..., None], axis=-1)
    np.testing.assert_array_equal(child[clear], expected[clear])
    nothing = to_numpy(compiled(sum_tree.choose)(0 * repeated[:2], uniform[:2]))
    assert (nothing == size - 1).all()


# One group; several, the last of them not full; the most that are one line; more than that.
@pytest.mark.parametrize("size", [1, 5, 16, 23, 40, 1024, 1500])
def test_draws_from_masses(size):
    """Of eleven orders of magnitude, half of the places without mass."""
    rng = np.random.default_rng(size)
    masses = 10.0 ** rng.uniform(-8, 3, (4, size)) * (rng.random((4, size)) < 0.5)
    masses[:, size // 2] = 1.0
    masses[3] = 0
    masses = masses.astype("float32")
    generator = keras.random.SeedGenerator(0)

    def drawn(masses):
        return sum_tree.draw(masses, 50_000, generator)

    places = to_numpy(drawn(ops.convert_to_tensor(masses)))
    assert places.shape == (4, 50_000) and (places[3] == size - 1).all()
    for mass, found in zip(masses[:3].astype(float), places[:3], strict=True):
        assert (mass[found] > 0).all()
        share, observed = mass / mass.sum(), np.bincount(found, minlength=size)
        often = share * len(found) > 5
        observed = np.append(observed[often], observed[~often].sum())
        share = np.append(share[often], share[~often].sum())
        if len(share[share > 0]) > 1:
            assert chi_square(observed[share > 0], share[share > 0]) > SIGNIFICANCE


@pytest.mark.skipif(not own.FLOAT64, reason="no float64 here")
def test_a_line_keeps_small_masses():
    """Behind a mass of one those of 1e-9 differ in float64, and are all the same in float32."""
    masses = np.random.default_rng(0).uniform(0, 1e-9, (2, 1000)).astype("float32")
    masses[:, 500:600] = 0
    masses[:, 0] = 1.0
    line = to_numpy(sum_tree._line(ops.convert_to_tensor(masses)))
    assert line.dtype == np.float64 and line.shape == (2, 1008)
    for nothing, before in ((slice(500, 600), 499), (slice(1000, None), 999)):
        np.testing.assert_array_equal(line[:, nothing] - line[:, before : before + 1], 0)
    own_mass = np.diff(line[:, :1000], axis=1)[:, 15:]
    np.testing.assert_allclose(own_mass, masses[:, 16:], rtol=1e-5, atol=1e-15)


def test_products_by_parts(rng):
    """Part p of the columns of one with part p of the other, and nothing across."""
    a, b = rng.normal(size=(5, 12)), rng.normal(size=(7, 12))
    single = (x.astype("float32") for x in (a, b))
    found = compiled(lambda a, b: own.matmul_by_parts(a, b, 3))(*single)
    parts = [a[:, p : p + 4] @ b[:, p : p + 4].T for p in (0, 4, 8)]
    np.testing.assert_allclose(to_numpy(found), np.concatenate(parts, axis=1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", [1.0, 30.0])
def test_cosines(size, rng):
    angles = rng.normal(0, size, (40, 7)).astype("float32")
    expected = np.cos(angles.astype(float))
    options = {"rtol": 0, "atol": 1e-6 * (1 + size)}
    np.testing.assert_allclose(to_numpy(compiled(own.cosine)(angles)), expected, **options)
    mean = to_numpy(compiled(own.mean_cosine)(angles))
    np.testing.assert_allclose(mean, expected.mean(axis=-1), **options)

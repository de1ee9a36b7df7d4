"""The codebook sampler: its distribution, its k-means, and how it follows the class table."""

import functools
import math

import keras
import numpy as np
import pytest
from conformance import (
    assert_draws_are_of_log_prob,
    assert_log_prob,
    assert_log_prob_of_ids,
    observe,
)
from conftest import (
    BACKEND,
    compiled,
    rejects,
    thorough_but,
    to_numpy,
)
from keras import ops
from sampler_cases import codebook_reference
from small import (
    assert_all_close,
    built_sampler,
    functional,
    labels_below,
    make_table,
    spec,
    training,
    values,
    vectors,
)

from softbench import ClassTable, RowAdagrad, SampledSoftmax, samplers
from softbench.samplers import static
from softbench.samplers.codebook import cells, fit, follow

N, D, B, DRAWS = 40, 4, 3, 4000
# name -> arguments of the sampler, arguments of the table
CASES = {
    "product, normalised": ({"quantizer": "product", "num_codewords": 6}, {"normalize": True}),
    "single, exact": ({"quantizer": "single", "within_cell": "exact", "window": 7}, {}),
}


def make(config, options, rows=None, seed=3):
    """A sampler and its table of n = 40 classes, d = 4."""
    options = {"use_bias": False, "temperature": 0.6, **options}
    table = make_table(N, D, seed=seed, **options)
    if rows is not None:
        table.kernel.assign(rows)
    config = {"num_codewords": 5, "counts": "equal", "seed": 1, **config}
    return built_sampler("codebook", table, DRAWS, **config), table


def batch(scale=1.0):
    hidden = np.random.default_rng(8).normal(size=(B, D)) * scale
    return hidden.astype("float32"), np.array([0, 7, N - 1], "int32")


def assert_conforms(sampler, table, scale=1.0, rtol=2e-4):
    """Draws, their log q, and `log_prob`, of all classes and of the others, against NumPy."""
    hidden, labels = batch(scale)
    found = observe(sampler, table, hidden, labels, DRAWS)
    for name, own in (("log_prob", None), ("log_prob_others", labels)):
        q = codebook_reference(sampler, table, hidden, own)
        assert np.all(np.isfinite(q))
        assert_log_prob(found[name], q, rtol, zeros=False)
    assert_draws_are_of_log_prob(sampler, found, labels, 5e-4)
    assert_log_prob_of_ids(found, 1e-4, 1e-4)


@pytest.mark.parametrize("case", CASES)
def test_distribution(case):
    assert_conforms(*make(*CASES[case]))


@pytest.mark.parametrize("rows", thorough_but(["zero", "three"], "three"))
def test_classes_that_are_alike(rows):
    """Fewer distinct rows than codewords."""
    rng = np.random.default_rng(0)
    few = {"zero": np.zeros((1, D)), "three": np.eye(3, D)}[rows]
    assert_conforms(*make({}, {"normalize": rows == "zero"}, few[rng.integers(len(few), size=N)]))


def test_extreme_scores():
    """The best of either codebook may meet in an empty cell: masses are kept above zero."""
    sampler, table = make({"num_codewords": 30}, {})
    assert (to_numpy(sampler.cells.masses()) == 0).sum() >= 900 - N
    assert_conforms(sampler, table, 1e4, rtol=0.02)


def test_exact_windows_are_near_the_softmax():
    """Of all classes in one window, q is the softmax itself."""
    sampler, table = make({"within_cell": "exact", "window": N}, {})
    hidden = keras.ops.convert_to_tensor(batch()[0])
    expected = to_numpy(keras.ops.log_softmax(table.scores(hidden)))
    np.testing.assert_allclose(to_numpy(sampler.log_prob(table, hidden)), expected, atol=1e-4)


# The k-means.


def weighted_means(sampler, table, weight):
    """Codewords in float64 of the cells in use, those without classes left out (NaN)."""
    rows = to_numpy(table.kernel).astype(float)
    first, second = np.divmod(to_numpy(sampler.cells.cell), sampler.codewords.second.shape[0])

    def means(x, own, size):
        return np.stack(
            [
                np.average(x[own == k], axis=0, weights=weight[own == k])
                if np.any(own == k)
                else np.full(x.shape[1], np.nan)
                for k in range(size)
            ]
        )

    c1 = means(rows, first, sampler.codewords.first.shape[0])
    return c1, means(rows - c1[first], second, sampler.codewords.second.shape[0]), first, second


def assert_codewords_are_means(sampler, table, weight, atol=1e-4):
    *expected, first, second = weighted_means(sampler, table, weight)
    for variable, own, used in zip(sampler.codewords, expected, (first, second), strict=True):
        used = np.unique(used)
        np.testing.assert_allclose(to_numpy(variable)[used], own[used], atol=atol)


def class_counts():
    return np.random.default_rng(5).permutation(1000 / np.arange(1, N + 1) ** 1.2)


def test_codewords_are_means_weighted_by_counts():
    counts = class_counts()
    sampler, table = make({"counts": counts.tolist()}, {})
    assert_codewords_are_means(sampler, table, counts)


def test_the_weights_decide():
    """With as many codewords as heavy classes, these are met (nearly) exactly."""
    counts = np.full(N, 1e-3)
    heavy = [3, 11, 20, 37]
    counts[heavy] = 100.0
    config = {"counts": counts.tolist(), "num_codewords": 4}
    sampler, table = make(config, {})
    first = to_numpy(sampler.codewords.first).astype(float)
    rows = to_numpy(table.kernel)[heavy].astype(float)
    nearest = np.linalg.norm(rows[:, None] - first, axis=-1).min(-1)
    assert np.all(nearest < 1e-2)


# A group of level 0 that is also the top; two levels; three; the levels as one line or not.
@pytest.mark.parametrize(
    "units, line", [*((units, 16) for units in (1, 9, 16, 100, 300)), (300, 2**16)]
)
def test_a_search_finds_the_interval_and_its_length(units, line, monkeypatch):
    monkeypatch.setattr(static, "LONGEST_LINE", line)
    rng = np.random.default_rng(units)
    cell = rng.integers(0, 7, units).astype("int32")
    weight = rng.integers(1, 5, units) * (rng.random(units) < 0.6)
    weight[units // 2] = 3
    own = cells.Cells(units, 7, weighted=True)
    laid = cells.laid_out(
        ops.convert_to_tensor(cell), ops.convert_to_tensor(weight.astype("float32")), size=7
    )
    own.build(lambda name: lambda shape, dtype=None: laid[name])
    starts, order = to_numpy(laid["starts"]), to_numpy(laid["order"])
    assert (np.diff(cell[order]) >= 0).all() and sorted(order) == list(range(units))
    share = np.diff(starts) / starts[-1]
    np.testing.assert_allclose(share, (weight / weight.sum())[order], rtol=1e-6)
    points = np.unique(np.clip(np.concatenate([starts - 1, starts]), 0, starts[-1]))
    found = compiled(lambda x: tuple(own.interval_of(x)))(points[None].astype("int32"))
    place, ids, length = (to_numpy(x) for x in found)
    inside = points < starts[-1]
    expected = np.searchsorted(starts, points, side="right") - 1
    np.testing.assert_array_equal(place[0], np.minimum(expected, units - 1))
    np.testing.assert_array_equal(ids[0], order[place[0]])
    np.testing.assert_array_equal(length[0][inside], np.diff(starts)[expected[inside]])
    assert (length[0][inside] > 0).all() and (length[0][~inside] == 0).all() and (~inside).any()


def test_a_fit_looks_at_a_sample_of_many_classes(monkeypatch):
    """Priority sampling: sums over the chosen are unbiased; the heavy ones are always in."""
    weight = np.concatenate([np.full(5, 500.0), np.linspace(0.5, 1.5, 195)]).astype("float32")
    sums, rng = [], np.random.default_rng(0)
    for _ in range(200):
        uniform = rng.uniform(1e-6, 1, 200).astype("float32")
        ids, own = (to_numpy(x) for x in fit.largest(*map(np.asarray, (weight,)), 40, uniform))
        assert set(range(5)) <= set(ids.tolist()) and len(set(ids.tolist())) == 40
        sums.append(own[ids >= 5].sum())
    error = np.std(sums) / math.sqrt(len(sums))
    assert abs(np.mean(sums) - weight[5:].sum()) < 4 * error
    monkeypatch.setattr(fit, "POINTS", 4)
    sampler, table = make({"num_codewords": 7}, {})
    assert_conforms(sampler, table)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="without `jit_compile`, JAX has no graph")
def test_an_epoch_is_the_same_with_and_without_xla():
    """The draws are equal; what is left of a difference is rounding."""
    arrays, history = [vectors(64, 4, seed=5), labels_below(N, 64)], []
    for jit_compile in (False, True):
        keras.utils.set_random_seed(1)
        head = head_of({"share_draws": True, "refresh_every": 3})
        optimizer, encoder = keras.optimizers.SGD(0.1), keras.layers.Dense(D)
        model = functional(head, 4, optimizer, encoder, jit_compile=jit_compile)
        fitted = model.fit(arrays, batch_size=8, epochs=1, shuffle=False, verbose=0)
        history.append(fitted.history["loss"][0])
    assert history[1] == pytest.approx(history[0], rel=1e-5)


# Following the table.


def head_of(config, **options):
    sampler = spec("codebook", **{"num_codewords": 5, "seed": 2, **config})
    head = SampledSoftmax(N, sampler, 6, seed=1, **options)
    head.build((None, D))
    return head


@functools.cache
def trained(counted):
    """A head after 400 row updates; the counts given, or seen and what it has kept of these."""
    rng = np.random.default_rng(4)
    counts, centres = class_counts(), rng.normal(size=(N, D))
    config = {"refresh_every": 1} | ({"counts": counts.tolist()} if counted else {})
    head = head_of(config, row_optimizer=RowAdagrad(0.1), use_bias=counted)
    step = training(head)
    start, seen = to_numpy(head.table.kernel), np.zeros(N)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(follow, "SHARE", 3)  # a round takes 14 steps, the last one is not finished
        for _ in range(400):
            labels = rng.choice(N, 8, p=counts / counts.sum()).astype("int32")
            seen += np.bincount(labels, minlength=N)
            hidden = centres[labels] + rng.normal(size=(8, D))
            loss = step(hidden.astype("float32"), labels)
    assert np.all(np.isfinite(to_numpy(loss))) and len(step.traces) == 1
    assert np.linalg.norm(to_numpy(head.table.kernel) - start) > np.linalg.norm(start)
    if counted:
        return head, counts
    return head, seen, to_numpy(head.sampler.seen), to_numpy(head.sampler.applied)


def test_codewords_follow_a_row_optimizer():
    """After 400 steps they are the means of the rows of now, in the cells in use."""
    head, counts = trained(True)
    assert_codewords_are_means(head.sampler, head.table, counts, atol=1e-3)


def test_draws_after_hundreds_of_row_updates():
    head = trained(False)[0]
    assert_conforms(head.sampler, head.table)


def test_counts_are_those_of_the_labels_seen():
    """The weights of the k-means: of the labels up to the last renewal."""
    _, seen, kept, applied = trained(False)
    np.testing.assert_array_equal(kept, seen)
    often = seen > 100
    np.testing.assert_allclose(applied[often], (seen / seen.mean())[often], rtol=0.1)


def test_cells_are_renewed_a_share_at_a_time(monkeypatch):
    """Rows that were exchanged are in each other's cells after a round, and not before."""
    monkeypatch.setattr(follow, "SHARE", 15)
    config = {"quantizer": "single", "num_codewords": 40, "refresh_every": 2}
    sampler, table = make(config, {"row_optimizer": RowAdagrad(0.1)})
    before = to_numpy(sampler.cells.cell)
    rows = to_numpy(table.kernel)
    table.kernel.assign(np.roll(rows, 1, axis=0))
    nothing = keras.ops.zeros((2, D)), keras.ops.zeros((2, D))
    ids = keras.ops.convert_to_tensor(np.array([0, 1], "int32"))
    for step in range(3):
        np.testing.assert_array_equal(to_numpy(sampler.cells.cell), before, f"step {step}")
        sampler.rows_changed(table, ids, *nothing)
    np.testing.assert_array_equal(to_numpy(sampler.cells.cell), np.roll(before, 1))
    assert int(to_numpy(sampler.cursor)) == 45 % N


def test_all_classes_have_their_turn_in_refresh_every_steps():
    """Of 40 classes at most 10 a step, and two where 20 steps are enough."""
    for every, steps in ((4, 4), (20, 20)):
        sampler, table = make({"refresh_every": every}, {"row_optimizer": RowAdagrad(0.1)})
        nothing = keras.ops.zeros((1, D)), keras.ops.zeros((1, D))
        before = to_numpy(sampler.cells.cell)
        table.kernel.assign(-to_numpy(table.kernel))
        changed = compiled(
            lambda *rows, own=sampler, table=table: own.rows_changed(table, *rows), sampler, table
        )
        for step in range(steps):
            np.testing.assert_array_equal(to_numpy(sampler.cells.cell), before, f"step {step}")
            changed(keras.ops.zeros(1, "int32"), *nothing)
        assert not np.array_equal(to_numpy(sampler.cells.cell), before)


@pytest.mark.parametrize("touched", thorough_but([3, 4, 10], 4))
def test_followed_rows_stand_for_all_touched_ones(monkeypatch, touched):
    """Each by its weight, on average over the steps; the heaviest in every step."""
    monkeypatch.setattr(follow, "FOLLOWED", 4)
    counts = np.ones(N)
    counts[21] = 20.0
    config = {"refresh_every": 1, "counts": counts.tolist()}
    sampler, table = make(config, {"row_optimizer": RowAdagrad(0.1)})
    ids = np.arange(20, 20 + touched, dtype="int32")
    padded = np.append(ids, [N] * (10 - touched)).astype("int32")
    total, steps = np.zeros(N + 1), 1000
    choose = compiled(lambda ids: _tracked(sampler, ids), sampler, table)
    for step in range(steps):
        sampler.cursor.assign(step * N)
        found, weight = choose(padded)
        assert len(found) <= 4 and 21 in to_numpy(found)
        np.add.at(total, to_numpy(found), to_numpy(weight))
    expected = np.zeros(N + 1)
    expected[ids] = (counts / counts.mean())[ids]
    np.testing.assert_allclose(total / steps, expected, rtol=0.02)


def _tracked(sampler, ids):
    """As `apply_row_gradients` asks: on TensorFlow without padding, of a size not known before."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        ids = tf.boolean_mask(ids, ids < N)
    found, further = sampler.tracked_ids(ids)
    return found, further["weight"]


def test_a_gradient_that_is_not_finite_moves_no_codeword(monkeypatch):
    """There are then no rows to follow, on TensorFlow not even padding."""
    monkeypatch.setattr(follow, "FOLLOWED", 2)
    sampler, table = make({"refresh_every": 1}, {"row_optimizer": RowAdagrad(0.1)})
    table.add_tracker(sampler)

    def update(ids, gradients):
        table.apply_row_gradients(ids, [gradients])
        return ids

    step = compiled(update, sampler, table)
    before = values(sampler.codewords)
    for bad in (np.nan, 1.0):
        step(np.array([3, 5, 8], "int32"), np.full((3, D), bad, "float32"))
        moved = [
            not np.array_equal(a, to_numpy(b))
            for a, b in zip(before, sampler.codewords, strict=True)
        ]
        assert any(moved) == bool(np.isfinite(bad))


def test_the_cells_of_a_share_are_those_of_its_rows_after_the_update():
    """A step earlier would be a cell for a row that has moved since."""
    config = {"quantizer": "single", "num_codewords": 4, "refresh_every": 4}
    sampler, table = make(config, {"row_optimizer": RowAdagrad(10.0)})
    table.add_tracker(sampler)
    step = compiled(
        lambda ids, gradient: table.apply_row_gradients(ids, [gradient]), sampler, table
    )

    def cells():
        arrays = (to_numpy(v).astype(np.float64) for v in (table.kernel, sampler.codewords.first))
        rows, words = arrays
        return np.argmin(((rows[:, None] - words) ** 2).sum(-1), axis=1)[: N // 4]

    before = cells()
    step(np.arange(N // 4, dtype="int32"), np.ones((N // 4, D), "float32"))
    assert not np.array_equal(cells(), before)
    np.testing.assert_array_equal(to_numpy(sampler.next_cell)[: N // 4], cells())


def test_refresh_counts_training_steps():
    """Under an ordinary optimizer: a Lloyd pass at every third step, from the first on."""
    head = head_of({"refresh_every": 3, "counts": "equal"})
    hidden, labels = batch()
    step = training(head)
    rng, known = np.random.default_rng(0), []
    for _ in range(7):
        head.table.kernel.assign(rng.normal(size=(N, D)))
        step(hidden, labels)
        known.append(to_numpy(head.sampler.codewords.first))
    changed = [not np.array_equal(a, b) for a, b in zip(known[1:], known[:-1], strict=True)]
    assert changed == [False, False, True, False, False, True]
    assert len(step.traces) == 1


def test_refresh_is_a_full_fit():
    sampler, table = make({}, {})
    table.kernel.assign(np.random.default_rng(9).normal(size=(N, D)))
    sampler.refresh(table)
    fresh, _ = make({}, {}, to_numpy(table.kernel))
    assert_all_close(sampler.weights, fresh.weights, 1e-7, 1e-6)


def test_fit_draws_in_windows():
    """`fit`, whose batch size a graph does not know."""
    sampler = spec("codebook", within_cell="exact", window=2, num_codewords=5, seed=2)
    model = functional(SampledSoftmax(N, sampler, 3, seed=1), D, keras.optimizers.SGD(0.1))
    assert np.isfinite(model.fit(batch(), batch_size=2, verbose=0).history["loss"][0])


@pytest.mark.skipif(BACKEND == "tensorflow", reason="a row optimizer is never under XLA there")
def test_no_two_variables_share_an_array():
    """JAX's `fit` donates them all."""
    sampler, _ = make({}, {"row_optimizer": RowAdagrad(0.1)})
    pointers = [v.value.unsafe_buffer_pointer() for v in sampler.variables]
    assert len(set(pointers)) == len(pointers)


# Bad input; tests/sampler_cases.py has bad arguments.


def test_bad_tables():
    rejects("absolute", make, {}, {"absolute": True})
    nothing = np.full((N, D), np.nan)
    rejects("table", make, {}, {}, nothing)
    sampler, table = make({}, {})
    table.kernel.assign(nothing)
    rejects("table", sampler.refresh, table)
    rejects("table", samplers.get("codebook").build, (N, D), 2)
    narrow = ClassTable(N, 1)
    rejects("quantizer='product'", built_sampler, "codebook", narrow, quantizer="product")
    rejects("hidden", sampler.sample, table, keras.ops.zeros((2, D + 1)), 3)

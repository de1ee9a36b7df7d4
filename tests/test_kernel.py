"""Kernel samplers: q over awkward tables, feature maps, and sums that follow the table."""

import itertools
import math

import keras
import numpy as np
import pytest
import reference
from conformance import (
    assert_draws_are_of_log_prob,
    assert_log_prob,
    assert_log_prob_of_ids,
    observe,
    observer,
)
from conftest import (
    SIGNIFICANCE,
    FixedSampler,
    assert_drawn_from,
    compiled,
    head_gradients,
    rejects,
    thorough_but,
    to_numpy,
)
from keras import ops
from sampler_cases import kernel_reference, reference_features
from scipy import stats
from small import (
    assert_all_close,
    assert_all_equal,
    built_sampler,
    functional,
    make_sampler,
    make_table,
    spec,
    training,
    values,
    vectors,
)

from softbench import ClassTable, NoiseContrastive, RowAdagrad, RowSGD, SampledSoftmax, samplers
from softbench.samplers.kernel import (
    block_sums,
    distribution,
    maclaurin,
    positive,
    quadratic,
    rff,
    shape,
    sorf,
)
from softbench.targets import make_targets

N, D, DRAWS = 101, 6, 3000
ZEROS, HUGE, TWIN = (9, 10), 20, 50
LABELS = np.array([0, TWIN, 9, HUGE], "int32")
NEVER = (3, 64, 65, 66, 67, 100)
EXACT = {"within_block": "exact"}
SHARED = {"share_draws": True}
PRIOR = {"prior": "counts", "prior_power": 0.75}
SHARP = {"normalize": True, "temperature": 0.2}
UNBIASED = {"normalize": True, "use_bias": False}
# tests/test_samplers.py has all maps, of other tables.
# name -> registry name, arguments of the sampler, arguments of the table
CASES = {
    "quadratic exact prior": ("quadratic", {"block_size": 3, **EXACT, **PRIOR}, {}),
    "rff normalized prior": ("rff", {"num_features": 24, "block_size": 1, **PRIOR}, SHARP),
    "rff shared prior": (
        "rff",
        {"num_features": 24, "block_size": 4, **SHARED, **PRIOR},
        UNBIASED,
    ),
    "rff long": ("rff", {"num_features": 300, "nu": 1.0, "block_size": 2}, UNBIASED),
    "positive exact shared": (
        "positive",
        {"num_features": 24, "block_size": 8, **EXACT, **SHARED, **PRIOR},
        SHARP,
    ),
    "one leaf exact shared": ("rff", {"block_size": 200, **EXACT, **SHARED, **PRIOR}, {}),
    "one leaf": ("quadratic", {"block_size": 101, "alpha": 1.0, "floor": 0.5}, {}),
}
QUICK = ("quadratic exact prior", "rff normalized prior", "one leaf")
pytestmark = pytest.mark.usefixtures("small_top")


def counts():
    """Class frequencies (N,); the classes `NEVER`, a whole block of 4 among them, have 0."""
    found = np.random.default_rng(5).permutation(1000 // np.arange(1, N + 1)).astype(float)
    found[list(NEVER)] = 0
    return found


def make(case):
    """The sampler of a case, and its table: equal rows, zero rows and one row of norm 1000."""
    name, config, options = CASES[case]
    if "prior" in config:
        config = {**config, "prior": counts().tolist()}
    table = make_table(N, D, 0.5, 1, **{"temperature": 0.7, **options})
    rows = to_numpy(table.kernel).astype(float)
    rows[[5, 6]] = rows[TWIN]
    rows[list(ZEROS)] = 0
    rows[HUGE] *= 1000 / np.linalg.norm(rows[HUGE])
    table.kernel.assign(rows)
    return built_sampler(name, table, **config, seed=3), table


HIDDEN = np.random.default_rng(2).normal(0, 0.6, (4, D)).astype("float32")


def plain(name, units=N, row_optimizer=None, **config):
    """A sampler for a new table, and this."""
    table = ClassTable(units, row_optimizer=row_optimizer)
    table.build((None, D))
    return built_sampler(name, table, **{"seed": 1, **config}), table


def assert_drawn_as_reported(ids, log_q):
    """Chi-square of ids (m,) against their own log q (m,), the classes of few draws together.

    A class that is expected 20 times is drawn, so which classes are told apart is not chance.
    """
    own, first, found = np.unique(ids, return_index=True, return_counts=True)
    expected = np.exp(log_q[first].astype(float)) * len(ids)
    np.testing.assert_allclose(log_q, log_q[first][np.searchsorted(own, ids)], atol=1e-4)
    many = expected >= 20
    found, expected = found[many], expected[many]
    assert expected.sum() <= len(ids) * (1 + 1e-5)
    found = np.append(found, len(ids) - found.sum()).astype(float)
    expected = np.append(expected, max(len(ids) - expected.sum(), 0.0))
    if expected[-1] < 5:
        found[-2], expected[-2] = found[-2:].sum(), expected[-2:].sum()
        found, expected = found[:-1], expected[:-1]
    if len(found) > 1:
        assert stats.chisquare(found, expected).pvalue > SIGNIFICANCE


# The distribution.


@pytest.mark.parametrize("case", thorough_but(CASES, *QUICK))
def test_draws_counts_and_log_prob_are_of_the_distribution(case):
    """For all classes and for the others, against float64; no class without a count.

    What is left of a block without its row of norm 1000 is rounding; the block gets the mean of its
    siblings. So the last label's example has another distribution in float64.
    """
    sampler, table = make(case)
    found = observe(sampler, table, HIDDEN, LABELS, DRAWS)
    rtol = 2e-3
    kinds = [("all", "log_prob", None, slice(None))]
    if sampler.per_example:
        rows = slice(None) if table.normalize else slice(3)
        kinds.append(("others", "log_prob_others", LABELS, rows))
    for kind, log_prob, labels, rows in kinds:
        log_q = found[log_prob]
        expected = kernel_reference(sampler, table, HIDDEN, labels)
        expected = np.broadcast_to(expected, log_q.shape)[rows]
        assert_log_prob(log_q[rows], expected, rtol, 1e-7, zeros=False)
        np.testing.assert_allclose(np.exp(log_q.astype(float)).sum(-1), 1.0, rtol=1e-5)
        own = found[kind].log_expected_count - math.log(DRAWS)
        for ids, log_q_of_ids in zip(found[kind].ids, own, strict=True):
            assert_drawn_as_reported(ids, log_q_of_ids)
        if sampler.prior is not None:
            assert np.all(np.isneginf(log_q[:, list(NEVER)]))
            assert not np.isin(found[kind].ids, NEVER).any()
        if not table.use_bias and labels is None and sampler.prior is None:
            np.testing.assert_allclose(log_q[:, ZEROS[0]], log_q[:, ZEROS[1]], atol=1e-4)
    assert_draws_are_of_log_prob(sampler, found, LABELS, 1e-3, rows)
    assert_log_prob_of_ids(found, 1e-4, 1e-3)


def test_long_features_are_joined_in_fours():
    """The case "rff long" is the one whose levels have another shape."""
    blocks = make("rff long")[0].blocks
    assert blocks.branching == 4 and len(blocks.spans) > 2


def test_nothing_to_draw_but_the_label():
    """Three levels and one class with a count: its example gets draws of probability 0."""
    sampler, table = plain("rff", 300, prior=np.eye(300)[7] * 2, block_size=1, num_features=4)
    function = compiled(lambda h, y: sampler.sample(table, h, 5, y), sampler, table)
    samples = function(HIDDEN[:2], np.array([7, 8], "int32"))
    assert np.all(to_numpy(samples.ids)[0] < 300) and np.all(to_numpy(samples.ids)[1] == 7)
    assert np.all(np.isneginf(to_numpy(samples.log_expected_count)[0]))
    np.testing.assert_allclose(to_numpy(samples.log_expected_count)[1], math.log(5), atol=1e-5)


@pytest.mark.parametrize("share", thorough_but([False, True], False))
def test_scores_far_beyond_what_training_gives(share):
    """Products of eleven factors overflow float32 at scores of 1e4 and more; q does not."""
    options = {"block_size": 4 if share else 1, "share_draws": share}
    sampler, table = plain("maclaurin", 50, num_features=1024, **options)
    labels, call = np.arange(4, dtype="int32"), observer(sampler, table, 500)
    for hidden_scale, row_scale in ((3e3, 1.0), (1.0, 3e3), (1e4, 1e4)):
        hidden = vectors(4, D, scale=hidden_scale)
        hidden[0] = 0
        table.kernel.assign(vectors(50, D, seed=1, scale=row_scale))
        sampler.refresh(table)
        found = call(hidden, labels)
        np.testing.assert_allclose(np.exp(found["log_prob"]).sum(-1), 1.0, rtol=1e-5)
        assert_draws_are_of_log_prob(sampler, found, labels, 1e-3)


@pytest.mark.parametrize(
    "case", thorough_but(["rff normalized prior", "rff long"], "rff normalized prior")
)
def test_a_batch_in_parts_draws_the_same(case, monkeypatch):
    sampler, table = make(case)
    state, found = to_numpy(sampler.seed_generator.state), []
    for part in (2**40, 2 * 50 * sampler.blocks.branching * sampler.features.dim, 1):
        monkeypatch.setattr(distribution, "SLICE", {True: part, False: part})
        sampler.seed_generator.state.assign(state)
        draw = compiled(lambda h, y: sampler.sample(table, h, 50, y), sampler, table)
        samples = draw(HIDDEN, LABELS)
        found.append((to_numpy(samples.ids), to_numpy(samples.log_expected_count)))
    for ids, log_count in found[1:]:
        np.testing.assert_array_equal(ids, found[0][0])
        # log m + log q may be near 0, where float32 keeps but the rounding of its two parts.
        np.testing.assert_allclose(log_count, found[0][1], rtol=1e-5, atol=2e-6)


def test_no_gradient_flows_through_the_distribution(monkeypatch):
    """The gradient of the loss is that with the same draws given; a share of 0 gives no NaN."""
    monkeypatch.setattr(distribution, "SLICE", {True: 1, False: 1})
    config = spec("rff", num_features=8, block_size=4, floor=0.0, seed=6)
    head = SampledSoftmax(40, config, 20)
    head.build((None, D))
    labels = np.array([0, 3, 39, 7], "int32")
    sampler, state = head.sampler, to_numpy(head.sampler.seed_generator.state)
    draw = compiled(lambda h, y: sampler.sample(head.table, h, 20, y), sampler, head.table)
    samples = keras.tree.map_structure(
        lambda x: None if x is None else ops.convert_to_tensor(to_numpy(x)), draw(HIDDEN, labels)
    )
    sampler.seed_generator.state.assign(state)
    loss, found = head_gradients(head, HIDDEN, labels)
    fixed = SampledSoftmax(40, FixedSampler(samples), 20)
    fixed.build((None, D))
    fixed.table.kernel.assign(to_numpy(head.table.kernel))
    expected_loss, expected = head_gradients(fixed, HIDDEN, labels)
    assert loss == pytest.approx(expected_loss, rel=1e-5)
    assert_all_close(found, expected, 1e-4, 1e-6)


@pytest.mark.parametrize("floor", [0.0, 0.1, 0.5])
def test_shares_of_siblings_by_themselves(floor):
    """Rows of their own: with no positive mass, with none in a column, with none to have."""
    mass = np.array([[-1, -2, 0, 0], [0.3, 0, 0.1, 9], [0, 0, 0, 0], [-1, 4, 0, 2]], "float32")
    weight = np.array([[1, 2, 3, 4], [1, 2, 0, 1], [1, 2, 3, 4], [0.5, 1, 2, 0]], "float32")
    available = np.array([[1, 1, 1, 0], [1, 1, 0, 0], [0, 0, 0, 0], [1, 1, 1, 0]], bool)
    arrays = map(ops.convert_to_tensor, (mass, weight, available))
    found = distribution.log_shares(distribution.clamped(*arrays, floor))
    for row, *own in zip(np.exp(to_numpy(found)), mass, weight, available, strict=True):
        expected = reference.clamped_shares(*(np.asarray(x, float) for x in own[:2]), own[2], floor)
        np.testing.assert_allclose(row, expected, rtol=1e-5)


def test_a_small_total_counts_as_a_share_of_the_mean():
    """An example far from all classes has a mass 1e-3 of the batch's mean in the mixture."""
    sampler, table = plain("positive", 9, num_features=8, block_size=2, **SHARED)
    totals = ops.convert_to_tensor(np.array([4.0, 2.0, 1e-6], "float32"))
    sampler._total_mass = lambda *_: totals
    hidden = ops.convert_to_tensor(HIDDEN[:3])
    members = to_numpy(sampler.query(table, hidden, None).members)
    phi = to_numpy(sampler.features.queries(table.normalized(hidden)))
    expected = phi / np.array([[4.0], [2.0], [1e-3 * 6.000001 / 3]])
    np.testing.assert_allclose(members, expected, rtol=1e-5)


# Feature maps.

NU = 0.8
MAPS = {
    "quadratic": lambda seed: quadratic.Quadratic(3.0),
    "rff": lambda seed: rff.RandomFourier(40, NU, seed=seed),
    "sorf": lambda seed: sorf.StructuredFourier(40, NU, seed=seed),
    "maclaurin": lambda seed: maclaurin.RandomMaclaurin(40, NU, seed=seed),
    "positive": lambda seed: positive.PositiveRandom(40, NU, seed=seed),
    "positive iid": lambda seed: positive.PositiveRandom(40, NU, orthogonal=False, seed=seed),
}


def built_map(name, size, seed=0):
    found = MAPS[name](seed)
    found.build((None, size))
    return found


@pytest.mark.parametrize("name", MAPS)
def test_features_and_products(name, rng):
    """phi, the query's up to a positive factor, and inner products in every shape."""
    found = built_map(name, D)
    hidden, rows = (rng.normal(0, 0.5, s).astype("float32") for s in ((3, D), (5, D)))
    rows[0] = 0

    def function(hidden, rows):
        query = found.queries(hidden)
        each = ops.broadcast_to(ops.expand_dims(rows, 0), (3, 5, D))
        products = [found.products(query, r, h) for r in (rows, each) for h in (None, hidden)]
        return found.features(rows), query, products

    phi, query, products = compiled(function, found)(hidden, rows)
    assert phi.shape == (5, found.dim) and query.shape == (3, found.dim)
    own = reference_features(found, rows.astype(float))
    expected = reference_features(found, hidden.astype(float), query=True) @ own.T
    if name != "quadratic":  # which keeps half of a symmetric form
        np.testing.assert_allclose(to_numpy(phi), own, rtol=1e-4, atol=1e-5)
    for product in products:
        np.testing.assert_allclose(to_numpy(product), expected, rtol=1e-4, atol=1e-5)
    if name == "quadratic":
        exact = 3 * (hidden.astype(float) @ rows.astype(float).T) ** 2 + 1
        np.testing.assert_allclose(to_numpy(query) @ to_numpy(phi).T, exact, rtol=1e-5)


# The first directions are drawn as all others, but for the degrees of `maclaurin`.
ESTIMATES = [(name, True) for name in MAPS if name != "quadratic"] + [("maclaurin", False)]
QUICK = [("rff", True), ("sorf", True), ("positive", True)]


@pytest.mark.parametrize("name, redrawn", thorough_but(ESTIMATES, *QUICK))
def test_estimates_of_the_exponential_kernel_are_unbiased(name, redrawn):
    """Mean over 300 seeds, or redraws, within 4 standard errors, at four inner products.

    SORF's directions all have the same norm, and Gaussian ones do not: in d = 32 dimensions its
    mean differs by at most r^4 / (4 d) of exp(nu |x|^2 / 2 + nu |y|^2 / 2), r^2 = nu |x - y|^2.
    Maclaurin keeps its degrees N_j at a redraw: the mean is sum_j a_j^2 <x, y>^N_j.
    """
    size, generator = 32, keras.random.SeedGenerator(1)
    x = np.eye(2, size)
    angles = np.array([0.0, 0.7, 1.6, 3.0])
    y = np.stack([np.cos(angles), np.sin(angles)], axis=-1) @ x
    estimates, found = [], built_map(name, size)
    for seed in range(300):
        if redrawn:
            found.drawn.assign(found.fresh(found.noise(generator)))
        else:
            found = built_map(name, size, seed)
        estimates.append(reference_features(found, x[:1]) @ reference_features(found, y).T)
    estimates = np.concatenate(estimates)
    error = estimates.std(0, ddof=1) / np.sqrt(len(estimates))
    expected, bias = np.exp(NU * np.cos(angles)), 0
    if name == "sorf":
        bias = (2 * NU * (1 - np.cos(angles))) ** 2 / (4 * size) * np.exp(NU)
    if name == "maclaurin" and redrawn:
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


# Sums that follow the table.


def assert_sums_follow(sampler, table, rtol=1e-4):
    """Every level, and the weights, equal what the table of now gives, in Frobenius norm."""
    fresh = compiled(lambda: sampler._computed(table), sampler, table)()
    for variable, value in zip(sampler._sums_and_weights(), fresh, strict=True):
        stored, value = to_numpy(variable).astype(float), to_numpy(value).astype(float)
        assert np.linalg.norm(stored - value) <= rtol * np.linalg.norm(value), variable.name


@pytest.mark.parametrize("block_size, period", thorough_but([(1, 4096), (8, 5)], (8, 5)))
def test_sums_follow_a_row_optimizer(block_size, period, monkeypatch):
    """After 400 training steps; with bias and prior, whose rows of weight 0 stay out."""
    monkeypatch.setattr(block_sums, "REFRESH_PERIOD", period)
    n, rng = 200, np.random.default_rng(4)
    prior = np.append(0.0, rng.integers(1, 9, n - 1))
    sampler = spec("rff", num_features=16, block_size=block_size, seed=1, prior=prior)
    head = SampledSoftmax(n, sampler, 6, row_optimizer=RowAdagrad(0.3))
    head.build((None, D))
    assert len(head.sampler.blocks.spans) == (3 if block_size == 1 else 2)
    start = to_numpy(head.table.kernel)
    step = training(head)
    hidden = rng.normal(size=(400, 8, D)).astype("float32")
    labels = rng.integers(0, n, (400, 8)).astype("int32")
    for own in zip(hidden, labels, strict=True):
        loss = step(*own)
    assert np.all(np.isfinite(to_numpy(loss))) and len(step.traces) == 1
    assert np.linalg.norm(to_numpy(head.table.kernel) - start) > np.linalg.norm(start)
    assert_sums_follow(head.sampler, head.table)


@pytest.mark.parametrize("name, redraw", [("positive", False), ("rff", True)])
def test_refresh_under_an_ordinary_optimizer(name, redraw):
    """At every third step, with new directions if said; in between nothing moves.

    The sums are stale then, and the draws are from `log_prob` all the same.
    """
    config = {"num_features": 16, "block_size": 4, "refresh_every": 3, "redraw": redraw}
    sampler, table = plain(name, 40, **config)
    rng, labels = np.random.default_rng(0), LABELS[:3] % 40

    def function(hidden, labels):
        sampler.observe(table, make_targets(hidden, labels, units=40))
        others = sampler.sample(table, hidden, 2000, labels)
        return others, sampler.log_prob(table, hidden, labels=labels)

    call, seen = compiled(function, sampler, table), []
    for step in range(6):
        samples, log_q = call(HIDDEN[:3], labels)  # the first step refreshes
        seen.append(values([sampler.features.drawn, *sampler._sums_and_weights()]))
        q = np.exp(to_numpy(log_q).astype(float))
        np.testing.assert_allclose(q.sum(-1), 1.0, rtol=1e-5)
        for row, own in zip(to_numpy(samples.ids), q, strict=True):
            assert_drawn_from(row, own)
        if step in (0, 3):
            assert_sums_follow(sampler, table, 1e-5)
        table.kernel.assign(rng.normal(size=(40, D)))
        table.bias.assign(rng.normal(size=40))
    pairs = list(itertools.pairwise(seen))
    directions = [np.array_equal(a[0], b[0]) for a, b in pairs]
    assert directions == [True, True, not redraw, True, True]
    for i in (0, 1, 3, 4):
        assert_all_equal(*pairs[i])
    assert not np.array_equal(pairs[2][0][1], pairs[2][1][1])
    sampler.refresh(table)
    assert_sums_follow(sampler, table, 1e-5)
    assert samplers.get(samplers.serialize(sampler)).redraw == redraw


def test_a_step_counts_once_however_often_it_draws():
    """NCE with a regulariser draws two sets; refreshes come at steps 0, 3 and 6 all the same."""
    config = {"num_features": 16, "block_size": 4, "refresh_every": 3, "redraw": True, "seed": 1}
    kernel = make_sampler("rff", **config)
    sampler = samplers.Mixed("uniform", kernel)
    model = functional(NoiseContrastive(40, sampler, num_sampled=4, regularization=0.1), D)
    seen = []
    for _ in range(7):
        model.train_on_batch([HIDDEN, LABELS % 40])
        seen.append(to_numpy(kernel.features.drawn))
    same = [np.array_equal(a, b) for a, b in itertools.pairwise(seen)]
    assert same == [True, True, False, True, True, False]
    assert int(to_numpy(kernel.steps)) == 7


# The shape of the blocks.


@pytest.mark.parametrize("name, most", [("positive", 4), ("quadratic", 1)])
def test_memory_of_the_sums(name, most, monkeypatch):
    """(n / b)(1 + 1/16 + ...) D numbers and padding; b the least power of two as documented."""
    monkeypatch.setattr(shape, "FREE_SUMS", {False: 1000, True: 1000})
    n, size = 2000, 8
    config = {"num_features": 100} if name == "positive" else {}
    sampler = built_sampler(name, make_table(n, size), **config, **SHARED)
    dim = 100 if name == "positive" else size * (size + 1) // 2 + 1
    assert sampler.features.dim == dim and math.log2(sampler.span) % 1 == 0
    assert n / sampler.span * dim <= most * n * size < 2 * n / sampler.span * dim
    stored = sum(math.prod(v.shape) for v in sampler.blocks.sums)
    assert stored <= (n / sampler.span * 16 / 15 + 17 * len(sampler.blocks.sums)) * dim


@pytest.mark.parametrize("within, span", [("features", 1), ("exact", 32)])
def test_default_blocks_of_exact_shares_hold_classes(within, span):
    assert plain("rff", 2000, within_block=within)[0].span == span


def test_bad_tables():
    rejects("table", samplers.get("rff").build, (3, D), 2)
    rejects("redraw", plain, "rff", 40, RowSGD(0.1), redraw=True)

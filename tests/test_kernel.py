"""Kernel samplers: q over awkward tables, feature maps, and sums that follow the table."""

import functools
import math

import keras
import numpy as np
import pytest
from conftest import (
    SIGNIFICANCE,
    FixedSampler,
    assert_drawn_from,
    compiled,
    head_gradients,
    kernel_reference,
    reference_features,
    thorough_but,
    to_numpy,
)
from scipy import stats
from scipy.linalg import hadamard

from softbench import Classifier, ClassTable, RowAdagrad, SampledSoftmax, samplers
from softbench.samplers.kernel import block_sums, maclaurin, positive, quadratic, rff, sorf
from softbench.samplers.kernel import distribution as kernel_distribution
from softbench.samplers.kernel import shape as kernel_shape
from softbench.targets import make_targets

N, D, DRAWS = 101, 6, 3000
ZEROS, HUGE, TWIN = (9, 10), 20, 50
LABELS = np.array([0, TWIN, 9, HUGE], "int32")
NEVER = (3, 64, 65, 66, 67, 100)
EXACT = {"within_block": "exact"}
SHARED = {"share_draws": True}
PRIOR = {"prior": "counts", "prior_power": 0.75}
# name -> registry name, arguments of the sampler, arguments of the table
CASES = {
    "quadratic": ("quadratic", {"alpha": 2.0, "block_size": 8}, {}),
    "quadratic exact prior": ("quadratic", {"block_size": 3, **EXACT, **PRIOR}, {}),
    "rff": ("rff", {"num_features": 24, "nu": 1.0, "block_size": 4}, {}),
    "rff normalized prior": (
        "rff",
        {"num_features": 24, "block_size": 1, **PRIOR},
        {"normalize": True, "temperature": 0.2},
    ),
    "rff shared prior": (
        "rff",
        {"num_features": 24, "block_size": 4, **SHARED, **PRIOR},
        {"normalize": True, "use_bias": False},
    ),
    "rff long": ("rff", {"num_features": 300, "nu": 1.0, "block_size": 2}, {"normalize": True}),
    "sorf": ("sorf", {"num_features": 20, "nu": 0.7, "block_size": 8}, {"use_bias": False}),
    "maclaurin": ("maclaurin", {"num_features": 48, "nu": 0.5, "block_size": 8}, {}),
    "positive exact shared": (
        "positive",
        {"num_features": 24, "block_size": 8, **EXACT, **SHARED, **PRIOR},
        {"normalize": True, "temperature": 0.2},
    ),
    "one leaf exact shared": ("rff", {"block_size": 200, **EXACT, **SHARED, **PRIOR}, {}),
    "one leaf": ("quadratic", {"block_size": 101, "alpha": 1.0, "floor": 0.5}, {}),
}
EVERY = thorough_but(
    CASES,
    "quadratic exact prior",
    "rff normalized prior",
    "rff shared prior",
    "sorf",
    "maclaurin",
    "positive exact shared",
    "one leaf",
)
pytestmark = pytest.mark.usefixtures("small_top")


def counts():
    """Class frequencies (N,); the classes `NEVER`, a whole block of 4 among them, have 0."""
    found = np.random.default_rng(5).permutation(1000 // np.arange(1, N + 1)).astype(float)
    found[list(NEVER)] = 0
    return found


def make(case, seed=3):
    """The sampler of a case, and its table: equal rows, zero rows and one row of norm 1000."""
    name, config, options = CASES[case]
    if "prior" in config:
        config = {**config, "prior": counts().tolist()}
    table = ClassTable(N, **{"temperature": 0.7, **options})
    table.build((None, D))
    rng = np.random.default_rng(1)
    rows = rng.normal(0, 0.5, (N, D))
    rows[[5, 6]] = rows[TWIN]
    rows[list(ZEROS)] = 0
    rows[HUGE] *= 1000 / np.linalg.norm(rows[HUGE])
    table.kernel.assign(rows)
    if table.bias is not None:
        table.bias.assign(rng.normal(0, 0.5, N))
    sampler = samplers.get({"class_name": name, "config": {**config, "seed": seed}})
    sampler.build((N, D), 5, table)
    return sampler, table


def hidden_vectors():
    return np.random.default_rng(2).normal(0, 0.6, (4, D)).astype("float32")


@functools.cache
def observed(case):
    """NumPy results of one compiled call, with the sampler and the table."""
    sampler, table = make(case)
    ids = np.random.default_rng(0).integers(0, N, (4, 7)).astype("int32")

    def function(hidden, labels):
        result = {
            "ids": ids,
            "free": sampler.sample(table, hidden, DRAWS),
            "free_log_q": sampler.log_prob(table, hidden),
            "some_log_q": sampler.log_prob(table, hidden, keras.ops.convert_to_tensor(ids)),
        }
        if sampler.per_example:
            result["others"] = sampler.sample(table, hidden, DRAWS, labels)
            result["others_log_q"] = sampler.log_prob(table, hidden, labels=labels)
        return result

    result = compiled(function, sampler, table)(hidden_vectors(), LABELS)
    result = keras.tree.map_structure(lambda x: None if x is None else to_numpy(x), result)
    return sampler, table, result


def kinds(case):
    """(free or others, rows of it that float64 has the same distribution for).

    What is left of a block without its row of norm 1000 is rounding; the block gets the mean of its
    siblings.
    """
    sampler, table, _ = observed(case)
    if sampler.share_draws:
        return [("free", slice(None))]
    return [("free", slice(None)), ("others", slice(None) if table.normalize else slice(0, 3))]


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


def test_long_features_are_joined_in_fours():
    """The case "rff long" is the one whose levels have another shape."""
    blocks = observed("rff long")[0].blocks
    assert blocks.branching == 4 and len(blocks.spans) > 2


@pytest.mark.parametrize("case", EVERY)
def test_log_prob_is_the_distribution(case):
    """For all classes and for the others, against float64; it sums to one for every label."""
    sampler, table, result = observed(case)
    rtol = 2e-2 if case in ("rff", "sorf") else 2e-3  # angles of 1000 radians in float32
    for kind, rows in kinds(case):
        q = np.exp(result[f"{kind}_log_q"].astype(float))
        np.testing.assert_allclose(q.sum(-1), 1.0, rtol=1e-5)
        labels = LABELS if kind == "others" else None
        expected = kernel_reference(sampler, table, hidden_vectors(), labels)
        expected = np.broadcast_to(expected, q.shape)
        np.testing.assert_allclose(q[rows], expected[rows], rtol=rtol, atol=1e-7)
        if labels is not None:
            assert np.all(q[np.arange(4), labels] == 0)
        if sampler.prior is not None:
            assert np.all(q[:, list(NEVER)] == 0)
        if not table.use_bias and labels is None and sampler.prior is None:
            np.testing.assert_allclose(q[:, ZEROS[0]], q[:, ZEROS[1]], rtol=1e-4)


@pytest.mark.parametrize("case", EVERY)
def test_draws_follow_log_prob(case):
    """And what they report; no class without a count, and never the label."""
    sampler, _, result = observed(case)
    for kind, _ in kinds(case):
        ids, q = result[kind].ids, np.exp(result[f"{kind}_log_q"].astype(float))
        assert ids.shape == (1 if sampler.share_draws else 4, DRAWS)
        for row, own in zip(ids, q, strict=False):
            assert_drawn_from(row, own)
        log_q = result[kind].log_expected_count - math.log(DRAWS)
        for row, own in zip(ids, log_q, strict=True):
            assert_drawn_as_reported(row, own)
        if kind == "others":
            assert not np.any(ids == LABELS[:, None])
        if sampler.prior is not None:
            assert not np.isin(ids, NEVER).any()


@pytest.mark.parametrize("case", EVERY)
def test_counts_and_ids_agree_with_log_prob(case):
    """log E[count] = log m + log q of the same call, and log_prob of ids is that of all classes."""
    sampler, _, result = observed(case)
    for kind, rows in kinds(case):
        ids = np.broadcast_to(result[kind].ids, (4, DRAWS))
        expected = math.log(DRAWS) + np.take_along_axis(result[f"{kind}_log_q"], ids, -1)
        expected = expected[:1] if sampler.share_draws else expected
        found = result[kind].log_expected_count
        np.testing.assert_allclose(found[rows], expected[rows], atol=1e-3)
    ids = np.broadcast_to(result["ids"], (4, 7))
    expected = np.take_along_axis(result["free_log_q"], ids, -1)
    np.testing.assert_allclose(result["some_log_q"], expected, rtol=1e-4, atol=1e-3)


def test_log_prob_in_chunks(monkeypatch):
    """Leaves that are compared a few at a time give the same distribution."""
    sampler, table, result = observed("maclaurin")
    monkeypatch.setattr(kernel_distribution, "CHUNK", 2000)
    log_q = compiled(lambda h: sampler.log_prob(table, h), sampler, table)(hidden_vectors())
    np.testing.assert_allclose(to_numpy(log_q), result["free_log_q"], atol=1e-3)


def test_nothing_to_draw_but_the_label():
    """Three levels and one class with a count: its example gets draws of probability 0."""
    n, prior = 300, np.zeros(300)
    prior[7] = 2
    config = {"prior": prior, "block_size": 1, "num_features": 4, "seed": 0}
    sampler = samplers.get({"class_name": "rff", "config": config})
    table = ClassTable(n)
    table.build((None, D))
    sampler.build((n, D), 5, table)
    function = compiled(lambda h, y: sampler.sample(table, h, 5, y), sampler, table)
    samples = function(hidden_vectors()[:2], np.array([7, 8], "int32"))
    assert np.all(to_numpy(samples.ids)[0] < n) and np.all(to_numpy(samples.ids)[1] == 7)
    assert np.all(np.isneginf(to_numpy(samples.log_expected_count)[0]))
    np.testing.assert_allclose(to_numpy(samples.log_expected_count)[1], math.log(5), atol=1e-5)


@pytest.mark.parametrize(
    "case", thorough_but(["quadratic", "rff long", "rff normalized prior"], "quadratic")
)
def test_a_batch_in_parts_draws_the_same(case, monkeypatch):
    sampler, table = make(case)
    state, found = to_numpy(sampler.seed_generator.state), []
    for part in (2**40, 2 * 50 * sampler.blocks.branching * sampler.features.dim, 1):
        monkeypatch.setattr(kernel_distribution, "SLICE", {True: part, False: part})
        sampler.seed_generator.state.assign(state)
        draw = compiled(lambda h, y: sampler.sample(table, h, 50, y), sampler, table)
        samples = draw(hidden_vectors(), LABELS)
        found.append((to_numpy(samples.ids), to_numpy(samples.log_expected_count)))
    for ids, log_count in found[1:]:
        np.testing.assert_array_equal(ids, found[0][0])
        # log m + log q may be near 0, where float32 keeps but the rounding of its two parts.
        np.testing.assert_allclose(log_count, found[0][1], rtol=1e-5, atol=2e-6)


def test_parts_are_equal_and_as_large_as_they_may_be():
    cases = [(128, 40, 32), (128, 0, 1), (7, 6, 1), (6, 6, 6), (12, 100, 12)]
    assert [kernel_distribution.largest_divisor(n, most) for n, most, _ in cases] == [
        c[2] for c in cases
    ]


@pytest.mark.parametrize("part", thorough_but([2**20, 1], 1))
def test_no_gradient_flows_through_the_distribution(part, monkeypatch):
    """The gradient of the loss is that with the same draws given; a share of 0 gives no NaN."""
    monkeypatch.setattr(kernel_distribution, "SLICE", {True: part, False: part})
    config = {"num_features": 8, "block_size": 4, "floor": 0.0, "seed": 6}
    head = SampledSoftmax(40, {"class_name": "rff", "config": config}, 20)
    head.build((None, D))
    hidden, labels = hidden_vectors(), np.array([0, 3, 39, 7], "int32")
    sampler, state = head.sampler, to_numpy(head.sampler.seed_generator.state)
    draw = compiled(lambda h, y: sampler.sample(head.table, h, 20, y), sampler, head.table)
    samples = keras.tree.map_structure(
        lambda x: None if x is None else keras.ops.convert_to_tensor(to_numpy(x)),
        draw(hidden, labels),
    )
    sampler.seed_generator.state.assign(state)
    loss, found = head_gradients(head, hidden, labels)
    fixed = SampledSoftmax(40, FixedSampler(samples), 20)
    fixed.build((None, D))
    fixed.table.kernel.assign(to_numpy(head.table.kernel))
    expected_loss, expected = head_gradients(fixed, hidden, labels)
    assert loss == pytest.approx(expected_loss, rel=1e-5)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


# Feature maps.

MAPS = {
    "quadratic": lambda seed: quadratic.Quadratic(3.0),
    "rff": lambda seed: rff.RandomFourier(40, 0.8, seed=seed),
    "sorf": lambda seed: sorf.StructuredFourier(40, 0.8, seed=seed),
    "maclaurin": lambda seed: maclaurin.RandomMaclaurin(40, 0.8, seed=seed),
    "positive": lambda seed: positive.PositiveRandom(40, 0.8, seed=seed),
    "positive iid": lambda seed: positive.PositiveRandom(40, 0.8, orthogonal=False, seed=seed),
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
        each = keras.ops.broadcast_to(keras.ops.expand_dims(rows, 0), (3, 5, D))
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


@pytest.mark.parametrize("name", thorough_but([x for x in MAPS if x != "quadratic"], "rff", "sorf"))
def test_estimates_of_the_exponential_kernel_are_unbiased(name):
    """Mean over 300 seeds within 4 standard errors, at four inner products.

    SORF's directions all have the same norm, and Gaussian ones do not: in d = 32 dimensions its
    mean differs by at most r^4 / (4 d) of exp(nu |x|^2 / 2 + nu |y|^2 / 2), r^2 = nu |x - y|^2.
    """
    size, nu = 32, 0.8
    x = np.eye(2, size)
    angles = np.array([0.0, 0.7, 1.6, 3.0])
    y = np.stack([np.cos(angles), np.sin(angles)], axis=-1) @ x
    estimates = []
    for seed in range(300):
        found = built_map(name, size, seed)
        estimates.append(reference_features(found, x[:1]) @ reference_features(found, y).T)
    estimates = np.concatenate(estimates)
    error = estimates.std(0, ddof=1) / np.sqrt(len(estimates))
    bias = (2 * nu * (1 - np.cos(angles))) ** 2 / (4 * size) * np.exp(nu) if name == "sorf" else 0
    assert np.all(
        np.abs(estimates.mean(0) - np.exp(nu * np.cos(angles))) <= 4 * error + bias + 1e-6
    )


@pytest.mark.parametrize("size", [1, 2, 8, 16, 32, 512])
def test_walsh_hadamard(size, rng):
    x = rng.normal(size=(3, 2, size)).astype("float32")
    found = to_numpy(sorf._walsh_hadamard(keras.ops.convert_to_tensor(x), size))
    np.testing.assert_allclose(found, x @ hadamard(size) / np.sqrt(size), atol=1e-5)


# Sums that follow the table.


def assert_sums_follow(sampler, table, rtol=1e-4):
    """Every level, and the weights, equal what the table of now gives, in Frobenius norm."""
    fresh = compiled(lambda: sampler._computed(table), sampler, table)()
    for variable, value in zip(sampler._sums_and_weights(), fresh, strict=True):
        stored, value = to_numpy(variable).astype(float), to_numpy(value).astype(float)
        assert np.linalg.norm(stored - value) <= rtol * np.linalg.norm(value), variable.name


@pytest.mark.parametrize("block_size, period", thorough_but([(1, 4096), (8, 5)], (8, 5)))
def test_sums_follow_a_row_optimizer(block_size, period, monkeypatch):
    """After 1000 training steps; with bias and prior, whose rows of weight 0 stay out."""
    monkeypatch.setattr(block_sums, "REFRESH_PERIOD", period)
    n, rng = 200, np.random.default_rng(4)
    config = {"num_features": 16, "block_size": block_size, "seed": 1}
    config["prior"] = np.append(0.0, rng.integers(1, 9, n - 1))
    head = SampledSoftmax(
        n, {"class_name": "rff", "config": config}, 6, row_optimizer=RowAdagrad(0.1)
    )
    head.build((None, D))
    assert len(head.sampler.blocks.spans) == (3 if block_size == 1 else 2)
    start = to_numpy(head.table.kernel)
    step = compiled(lambda h, y: head(h, y, training=True), head)
    hidden = rng.normal(size=(1000, 8, D)).astype("float32")
    labels = rng.integers(0, n, (1000, 8)).astype("int32")
    for own in zip(hidden, labels, strict=True):
        loss = step(*own)
    assert np.all(np.isfinite(to_numpy(loss))) and len(step.traces) == 1
    assert np.linalg.norm(to_numpy(head.table.kernel) - start) > np.linalg.norm(start)
    assert_sums_follow(head.sampler, head.table)


@pytest.mark.parametrize("block_size", [1, 8])
def test_an_error_in_a_sum_is_gone_after_a_period(block_size, monkeypatch):
    """At most `REFRESH_PERIOD` changes later, whichever level it was in, and not at once."""
    monkeypatch.setattr(block_sums, "REFRESH_PERIOD", 10)
    n, rng = 200, np.random.default_rng(4)
    config = {"num_features": 8, "block_size": block_size, "seed": 1}
    sampler = samplers.get({"class_name": "positive", "config": config})
    table = ClassTable(n, row_optimizer=RowAdagrad(0.1))
    table.build((None, D))
    sampler.build((n, D), 5, table)
    table.add_tracker(sampler)
    sums = sampler.blocks.sums
    for variable in sums:
        value = to_numpy(variable).copy()
        value[len(value) // 2] += 10.0
        variable.assign(value)
    change = compiled(
        lambda ids, gradients: table.apply_row_gradients(ids, [gradients, gradients[:, 0]]),
        sampler,
        table,
    )
    for step in range(10):
        if step == 1:
            with pytest.raises(AssertionError):
                assert_sums_follow(sampler, table)
        change(rng.integers(0, n, 3).astype("int32"), rng.normal(size=(3, D)).astype("float32"))
    assert_sums_follow(sampler, table)


def test_refresh_under_an_ordinary_optimizer():
    """Stale between the turns, and then too the draws are from `log_prob`."""
    config = {"num_features": 16, "block_size": 4, "refresh_every": 3, "seed": 1}
    sampler = samplers.get({"class_name": "positive", "config": config})
    table = ClassTable(N)
    table.build((None, D))
    sampler.build((N, D), 5, table)
    rng, hidden, labels = np.random.default_rng(0), hidden_vectors(), LABELS[:3]

    def function(hidden, labels):
        sampler.observe(table, make_targets(hidden, labels, units=N))
        others = sampler.sample(table, hidden, 2000, labels)
        return others, sampler.log_prob(table, hidden, labels=labels)

    call = compiled(function, sampler, table)
    call(hidden[:3], labels)  # the first step refreshes
    stored = [to_numpy(v) for v in sampler._sums_and_weights()]
    for _ in range(2):
        table.kernel.assign(rng.normal(size=(N, D)))
        table.bias.assign(rng.normal(size=N))
        samples, log_q = call(hidden[:3], labels)
        for variable, value in zip(sampler._sums_and_weights(), stored, strict=True):
            np.testing.assert_array_equal(to_numpy(variable), value)
        q = np.exp(to_numpy(log_q).astype(float))
        np.testing.assert_allclose(q.sum(-1), 1.0, rtol=1e-5)
        for row, own in zip(to_numpy(samples.ids), q, strict=True):
            assert_drawn_from(row, own)
    call(hidden[:3], labels)
    assert_sums_follow(sampler, table, 1e-5)
    table.kernel.assign(rng.normal(size=(N, D)))
    sampler.refresh(table)
    assert_sums_follow(sampler, table, 1e-5)


@pytest.mark.parametrize("name, most", [("positive", 4), ("quadratic", 1)])
def test_memory_of_the_sums(name, most, monkeypatch):
    """(n / b)(1 + 1/16 + ...) D numbers and padding; b the least power of two as documented."""
    monkeypatch.setattr(kernel_shape, "FREE_SUMS", {False: 1000, True: 1000})
    n, size = 2000, 8
    config = {"num_features": 100} if name == "positive" else {}
    sampler = samplers.get({"class_name": name, "config": {**config, "share_draws": True}})
    table = ClassTable(n)
    table.build((None, size))
    sampler.build((n, size), 5, table)
    dim = 100 if name == "positive" else size * (size + 1) // 2 + 1
    assert sampler.features.dim == dim and math.log2(sampler.span) % 1 == 0
    assert n / sampler.span * dim <= most * n * size < 2 * n / sampler.span * dim
    stored = sum(math.prod(v.shape) for v in sampler.blocks.sums)
    assert stored <= (n / sampler.span * 16 / 15 + 17 * len(sampler.blocks.sums)) * dim


@pytest.mark.parametrize("within, span", [("features", 1), ("exact", 32)])
def test_default_blocks_of_exact_shares_hold_classes(within, span):
    sampler = samplers.get({"class_name": "rff", "config": {"within_block": within}})
    table = ClassTable(2000)
    table.build((None, 8))
    sampler.build((2000, 8), 5, table)
    assert sampler.span == span


# As part of a model.


def test_saved_without_a_seed(tmp_path):
    """The loaded sampler has the same map, sums and q; degrees of `maclaurin` follow its seed."""
    config = {"num_features": 16, "prior": counts().tolist(), "block_size": 4}
    head = SampledSoftmax(
        N, {"class_name": "maclaurin", "config": config}, 5, row_optimizer=RowAdagrad(0.1)
    )
    inputs = keras.Input((D,)), keras.Input((), dtype="int32")
    model = keras.Model(inputs, head(*inputs))
    hidden = hidden_vectors()
    step = compiled(lambda h, y: head(h, y, training=True), head)
    step(hidden, LABELS)
    model.save(tmp_path / "model.keras")
    other = keras.models.load_model(tmp_path / "model.keras").layers[-1]
    found = [
        to_numpy(compiled(lambda x, h=h: h.sampler.log_prob(h.table, x), h)(hidden))
        for h in (head, other)
    ]
    np.testing.assert_array_equal(*found)
    np.testing.assert_array_equal(*(to_numpy(h.sampler.blocks.sums[0]) for h in (head, other)))


def test_defaults_train_a_lazily_built_model():
    """Three steps of `fit`; the head is built inside it."""
    head = SampledSoftmax(50, sampler="rff", normalize=True, temperature=0.09)
    model = Classifier(keras.layers.Dense(D), head)
    model.compile(keras.optimizers.SGD(0.1))
    x = np.random.default_rng(0).normal(size=(24, D)).astype("float32")
    start = model.fit(x, np.arange(24), batch_size=8, verbose=0).history["loss"][0]
    assert np.isfinite(start) and np.all(np.isfinite(to_numpy(head.table.kernel)))


# Bad input.

BAD = [
    ("within_block", {"within_block": "softmax"}),
    ("block_size", {"block_size": 0}),
    ("block_size", {"block_size": 2.5}),
    ("floor", {"floor": -0.1}),
    ("floor", {"floor": float("nan")}),
    ("refresh_every", {"refresh_every": 0}),
    ("num_features", {"num_features": 0}),
    ("nu", {"nu": 0.0}),
    ("prior", {"prior": [1.0, -1.0]}),
]


@pytest.mark.parametrize("argument, config", BAD)
def test_bad_arguments(argument, config):
    assert_rejected(argument, lambda: samplers.get({"class_name": "rff", "config": config}))


def test_bad_alpha_and_prior_of_another_length():
    assert_rejected(
        "alpha", lambda: samplers.get({"class_name": "quadratic", "config": {"alpha": 0}})
    )
    config = {"prior": [1.0, 2.0], "num_features": 2}
    sampler = samplers.get({"class_name": "sorf", "config": config})
    table = ClassTable(3)
    table.build((None, D))
    assert_rejected("prior", lambda: sampler.build((3, D), 2, table))
    assert_rejected("table", lambda: samplers.get("rff").build((3, D), 2))


def assert_rejected(argument, function):
    with pytest.raises(ValueError) as error:
        function()
    message = str(error.value)
    assert f"`{argument}`" in message and "Received" in message and "\n" not in message.strip()

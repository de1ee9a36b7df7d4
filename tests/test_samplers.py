"""Conformance of every sampler in the registry: what it draws is what `log_prob` says.

A new sampler gets an entry in `CASES` and, if its distribution is new, one in `distribution`.
"""

import functools
import types

import keras
import numpy as np
import pytest
import reference
from conftest import (
    BACKEND,
    SIGNIFICANCE,
    assert_drawn_from,
    codebook_reference,
    compiled,
    kernel_reference,
    slow_but,
    thorough_but,
    to_numpy,
)
from scipy import stats

from softbench import ClassTable, SampledSoftmax, samplers
from softbench.samplers import REGISTRY
from softbench.samplers.static import inclusion_probabilities, integer_inclusion, integer_weights

SIZES = [1, 2, 3, 5, 7, 8, 33, 100]
B, D = 3, 4
DRAWS = 4000
STATIC = {"per_example": {}, "shared": {"share_draws": True}, "unique": {"unique": True}}
pytestmark = pytest.mark.usefixtures("small_top")


def kernel_variants(block_size, shared_block_size, **config):
    """Few features, and blocks so small that 33 and 100 classes have two levels or three."""
    shared = {**config, "block_size": shared_block_size, "share_draws": True}
    return {"per_example": {**config, "block_size": block_size}, "shared": shared}


KERNELS = {
    "quadratic": kernel_variants(4, 1, alpha=3.0),
    "rff": kernel_variants(4, 2, num_features=32, nu=1.0),
    "sorf": kernel_variants(1, 8, num_features=12),
    "maclaurin": kernel_variants(3, 4, num_features=32, nu=0.5),
    "positive": kernel_variants(2, 4, num_features=32),
}
KERNEL_SIZES = {
    "rff-per_example": [1, 2, 3, 100],
    "rff-shared": [1, 100],
    "quadratic-per_example": [7],
    "maclaurin-shared": [7],
    "sorf-shared": [7],
    "positive-per_example": [7],
}
FOLLOWING = {**dict.fromkeys(KERNELS, kernel_reference), "codebook": codebook_reference}
MIXED = {"first": "uniform", "second": "exp"}
# registry name -> variant -> arguments
CASES = {
    "adversarial": {
        "per_example": {"num_components": 3},
        "shared": {"num_components": 3, "share_draws": True},
    },
    "codebook": {
        "per_example": {"num_codewords": 20},
        "shared": {"num_codewords": 4, "share_draws": True},
        "exact_per_example": {"num_codewords": 3, "within_cell": "exact", "window": 4},
        "exact_shared": {"within_cell": "exact", "window": 8, "share_draws": True},
    },
    "uniform": STATIC,
    "log_uniform": STATIC,
    "unigram": STATIC,
    "exp": {"per_example": {}, "shared": {"share_draws": True}},
    "in_batch": {"counts": {}, "streaming": {}},
    # Draws of several shapes, and sums of counts that are not one: tests/test_top_and_tail.py.
    "top_and_tail": {
        "groups": {"num_top": 3, "share_draws": 2},
        "batch": {"num_top": 2, "share_draws": True},
    },
    "mixed": {"per_example": MIXED, "shared": {**MIXED, "share_draws": True}},
    **KERNELS,
}
EVERY = [f"{name}-{variant}" for name, variants in CASES.items() for variant in variants]
DRAWN = [case for case in EVERY if not case.startswith(("in_batch", "top_and_tail"))]
REPLACED = [case for case in DRAWN if not case.endswith("unique")]
UNIQUE = [case for case in DRAWN if case.endswith("unique")]


def sizes(case):
    if case.split("-")[0] in KERNELS:
        return KERNEL_SIZES.get(case, [33])
    if case.startswith("codebook"):
        return [1, 3, 33] if case == "codebook-per_example" else [33]
    if case == "adversarial-per_example":
        return [1, 2, 3, 5, 8, 33]
    if case == "mixed-per_example":
        return [1, 2, 3, 33]
    # Shared static draws differ from those of one example by their shape alone: fewer sizes.
    return [1, 7, 33] if case.endswith("shared") and case != "exp-shared" else SIZES


def sized(cases):
    """Every case with each of its sizes: one or two of those of `WHOLE`, and some are slow."""
    pairs = [(case, n) for case in cases for n in sizes(case)]
    quick = [(case, n) for case, n in pairs if case in WHOLE and n in (3, sizes(case)[-1])]
    thorough = [p for p in pairs if p[1] in (1, 3, 8, 33, sizes(p[0])[-1])]
    return slow_but(pairs, *quick, thorough=thorough)


# Two kernel samplers stand for all (they differ by their map) where more than log q is compiled.
WHOLE = [
    case
    for case in EVERY
    if case.split("-")[0] not in KERNELS or case in ("rff-per_example", "positive-shared")
]
WHOLE = [case for case in WHOLE if not case.startswith(("codebook-exact", "top_and_tail-groups"))]
# One of each registry name, and the other kinds: eager calls are slow to compile on JAX.
EAGER = [case for case in WHOLE if not case.endswith("shared") or case == "exp-shared"]
EAGER = [case for case in EAGER if case not in ("uniform-unique", "log_uniform-unique")]


def eager_first(cases, but, *quick):
    """Those of `WHOLE` in `cases` that do not begin with `but`; slow if they are not in `EAGER`."""
    found = [case for case in cases if case in WHOLE and not case.startswith(but)]
    return slow_but(found, *quick, thorough=[case for case in found if case in EAGER])


if BACKEND == "jax":
    EAGER = [case for case in EAGER if case not in ("rff-per_example", "codebook-per_example")]


def test_every_registered_sampler_is_tested():
    assert set(CASES) == set(REGISTRY)


def class_counts(n):
    """Frequencies (n,), unsorted, one of them 0 where there are three classes or more."""
    counts = np.random.default_rng(n).permutation(1000 // np.arange(1, n + 1) + 1).astype(float)
    if n >= 3:
        counts[n // 2] = 0
    return counts


def tree_points(n):
    """Features (N, D) and labels (N,), some classes without a point."""
    rng = np.random.default_rng(n)
    centres = rng.normal(0, 1, (n, D))
    labels = rng.integers(n, size=3 * n)
    return centres[labels] + rng.normal(0, 0.5, (3 * n, D)), labels


def make(case, n, seed=11):
    name, variant = case.split("-")
    config = dict(CASES[name][variant], seed=seed)
    if name == "adversarial":
        tree = samplers.get({"class_name": name, "config": config})
        return tree.fit(*tree_points(n), n, verbose=0)
    if name == "unigram":
        config.update(counts=class_counts(n).tolist(), power=0.75)
    if name == "codebook":
        config.update(prior=class_counts(n).tolist(), prior_power=0.5, counts="equal")
    if name == "top_and_tail":
        top = {"class_name": "codebook", "config": {"num_codewords": 4}}
        config.update(counts=class_counts(n).tolist(), top=top)
    if name == "in_batch" and variant == "counts":
        config.update(counts=(class_counts(n) + 1).tolist())
    return samplers.get({"class_name": name, "config": config})


def make_table(n):
    table = ClassTable(n, temperature=0.7)
    table.build((None, D))
    rng = np.random.default_rng(n)
    table.kernel.assign(rng.normal(0, 1, (n, D)))
    table.bias.assign(rng.normal(0, 0.5, n))
    return table


def batch(n):
    hidden = np.random.default_rng(n + 1).normal(0, 0.7, (B, D)).astype("float32")
    return hidden, np.array([0, n // 2, n - 1], "int32")


def number_drawn(case, n):
    if not case.endswith("unique"):
        return DRAWS
    return max(1, np.count_nonzero(static_distribution(case.split("-")[0], n)) // 3)


def static_distribution(name, n):
    if name == "unigram":
        return reference.unigram_distribution(class_counts(n), 0.75)
    return {
        "uniform": reference.uniform_distribution,
        "log_uniform": reference.log_uniform_distribution,
    }[name](n)


@functools.cache
def kernel_sampler(case, n):
    """A sampler that follows the table, and this, built once for draws and distribution."""
    sampler, table = make(case, n), make_table(n)
    sampler.build((n, D), DRAWS, table)
    return sampler, table


@functools.cache
def tree_arrays(case, n):
    tree, names = make(case, n), ("mean", "components", "nodes", "leaf_of_label")
    tree.build((n, D))
    return [to_numpy(getattr(tree, name)) for name in names]


def distribution(case, n, labels=None):
    """q (B, n) in NumPy; over the classes other than the labels if they are given."""
    name, variant = case.split("-")
    if name == "mixed":  # half of the draws each
        return 0.5 * sum(distribution(f"{part}-{variant}", n, labels) for part in MIXED.values())
    if name in FOLLOWING:
        q = FOLLOWING[name](*kernel_sampler(case, n), batch(n)[0], labels)
        return np.broadcast_to(q, (B, n))
    if name == "adversarial":
        return reference.tree_distribution(
            batch(n)[0], *tree_arrays(case, n), labels, variant == "shared"
        )
    if variant == "unique":
        q = reference.inclusion_probabilities(static_distribution(name, n), number_drawn(case, n))
        return np.broadcast_to(q, (B, n))
    if name == "exp":
        table = make_table(n)
        scores = reference.scores(
            batch(n)[0], to_numpy(table.kernel), to_numpy(table.bias), temperature=0.7
        )
        q = reference.softmax(scores)
        if variant == "shared":
            q = np.broadcast_to(q.mean(0), (B, n))
    else:
        q = np.broadcast_to(static_distribution(name, n), (B, n))
    if labels is None or variant == "shared":
        return q
    q = np.where(np.arange(n) == labels[:, None], 0.0, q)
    total = q.sum(-1, keepdims=True)
    return q / np.where(total > 0, total, 1.0)


@functools.cache
def drawn(case, n, xla=False):
    """Samples and log probabilities of one compiled call: free, all classes, others."""
    size = number_drawn(case, n)
    if case.split("-")[0] in FOLLOWING:
        sampler, table = kernel_sampler(case, n)
    else:
        sampler, table = make(case, n), make_table(n)
        sampler.build((n, D), size, table)

    def function(hidden, labels):
        return {
            "free": sampler.sample(table, hidden, size),
            "all": sampler.sample(table, hidden, size, labels, exclude_labels=False),
            "others": sampler.sample(table, hidden, size, labels),
            "log_prob": sampler.log_prob(table, hidden),
            "log_prob_others": sampler.log_prob(table, hidden, labels=labels),
        }

    result = compiled(function, sampler, table, xla=xla)(*batch(n))
    return keras.tree.map_structure(lambda x: None if x is None else to_numpy(x), result)


def log(q):
    with np.errstate(divide="ignore"):
        return np.log(q)


def tolerance(case):
    """Of probabilities: an estimate that is a small difference of float32 numbers has less left."""
    return 1e-3 if case.split("-")[0] in KERNELS else 2e-5


def assert_close_distributions(log_q, expected, rtol):
    np.testing.assert_allclose(np.exp(np.float64(log_q)), expected, rtol=rtol, atol=1e-9)
    np.testing.assert_array_equal(np.isneginf(log_q), expected == 0)


@pytest.mark.parametrize("case, n", sized(DRAWN))
def test_log_prob_is_the_distribution(case, n):
    result, labels = drawn(case, n), batch(n)[1]
    assert result["log_prob"].dtype == np.float32
    assert_close_distributions(result["log_prob"], distribution(case, n), tolerance(case))
    total = number_drawn(case, n) if case in UNIQUE else 1.0
    np.testing.assert_allclose(np.exp(result["log_prob"]).sum(-1), total, rtol=1e-5)
    others = distribution(case, n, None if case in UNIQUE else labels)
    assert_close_distributions(result["log_prob_others"], others, tolerance(case))


@pytest.mark.parametrize("case, n", sized(REPLACED))
def test_draws_follow_the_distribution(case, n):
    """m = 4000 > n draws, of all classes and of the others."""
    result, labels = drawn(case, n), batch(n)[1]
    per_example = "per_example" in case
    for key in ("free", "all", "others"):
        ids, q = result[key].ids, distribution(case, n, labels if key == "others" else None)
        assert ids.dtype == np.int32 and ids.shape == (B if per_example else 1, DRAWS)
        for row, own in zip(ids, q, strict=False):
            if own.sum() > 0:
                assert_drawn_from(row, own)
            else:
                assert n == 1 and np.all(row == 0)  # nothing but the label


@pytest.mark.parametrize("case, n", sized(REPLACED))
def test_expected_counts_with_replacement(case, n):
    """log E[count] = log m + log q; the label's own where the draw does not exclude it."""
    result, labels = drawn(case, n), batch(n)[1]
    for key in ("free", "all", "others"):
        q = distribution(case, n, labels if key == "others" else None)
        samples = result[key]
        ids = np.broadcast_to(samples.ids, (B, DRAWS))
        expected = np.log(DRAWS) + log(np.take_along_axis(q, ids, -1))
        expected = expected if "per_example" in case else expected[:1]
        atol = tolerance(case)
        np.testing.assert_allclose(samples.log_expected_count, expected, rtol=1e-5, atol=atol)
    everywhere = np.log(DRAWS) + log(distribution(case, n)[np.arange(B), labels])
    true = result["all"].true_log_expected_count
    np.testing.assert_allclose(true, everywhere, rtol=2e-5, atol=atol)
    assert result["free"].true_log_expected_count is None
    if "per_example" in case:
        assert result["others"].true_log_expected_count is None
        assert np.all(np.isneginf(result["log_prob_others"][np.arange(B), labels]))
        assert n == 1 or not np.any(result["others"].ids == labels[:, None])
    else:
        true = result["others"].true_log_expected_count
        np.testing.assert_allclose(true, everywhere, rtol=2e-5, atol=atol)


@pytest.mark.parametrize("n", thorough_but(SIZES, 2, 7, 100))
@pytest.mark.parametrize("case", UNIQUE)
def test_unique_draws(case, n):
    """Distinct ids, each class with its inclusion probability (binomial test), log pi exact."""
    sampler, size, pi = make(case, n), number_drawn(case, n), distribution(case, n)[0]
    sampler.build((n, D), size)
    function = compiled(lambda h, y: sampler.sample(None, h, size, y), sampler)
    repeats, observed = 400, np.zeros(n, int)
    hidden, labels = batch(n)
    for _ in range(repeats):
        samples = function(hidden, labels)
        ids = to_numpy(samples.ids)
        assert ids.shape == (1, size) and len(set(ids[0])) == size
        observed[ids[0]] += 1
    np.testing.assert_allclose(to_numpy(samples.log_expected_count), log(pi[ids]), atol=2e-5)
    true = to_numpy(samples.true_log_expected_count)
    np.testing.assert_allclose(true, log(pi[labels]), atol=2e-5)
    pi = np.where(pi > 1 - 1e-9, 1.0, pi)
    tails = np.minimum(
        stats.binom.cdf(observed, repeats, pi), stats.binom.sf(observed - 1, repeats, pi)
    )
    assert 2 * tails.min() * n > SIGNIFICANCE


@pytest.mark.parametrize("case", [c for c in DRAWN if c in WHOLE])
def test_log_prob_of_ids_is_that_of_all_classes(case, rng):
    n = 33
    sampler, table = make(case, n), make_table(n)
    sampler.build((n, D), number_drawn(case, n), table)
    hidden, labels = batch(n)
    ids = rng.integers(0, n, (B, 6)).astype("int32")
    ids[:, 0] = labels

    def function(hidden, labels, ids):
        pairs = []
        for own in (None, labels):
            everything = sampler.log_prob(table, hidden, labels=own)
            pairs.append((everything, sampler.log_prob(table, hidden, ids, own)))
        return pairs

    rtol = max(1e-5, tolerance(case) / 10)
    for everything, some in compiled(function, sampler, table)(hidden, labels, ids):
        expected = np.take_along_axis(to_numpy(everything), ids, -1)
        np.testing.assert_allclose(to_numpy(some), expected, rtol=rtol)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="JAX always compiles with XLA")
@pytest.mark.parametrize(
    "case", eager_first(REPLACED, "positive-shared", "log_uniform-per_example", "exp-shared")
)
def test_draws_follow_the_distribution_under_xla(case):
    n = 33
    result, labels = drawn(case, n, xla=True), batch(n)[1]
    for key in ("free", "all", "others"):
        q = distribution(case, n, labels if key == "others" else None)
        for row, own in zip(result[key].ids, q, strict=False):
            assert_drawn_from(row, own)


@pytest.mark.parametrize("case", EAGER)
def test_compiled_equals_eager_and_is_traced_once(case):
    n, size = 33, 10
    hidden, labels = (keras.ops.convert_to_tensor(x) for x in batch(n))
    sampler, table = make(case, n), make_table(n)
    sampler.build((n, D), size, table)

    def function(hidden, labels):
        return sampler.sample(table, hidden, size, labels, exclude_labels=False)

    start = [to_numpy(v) for v in sampler.variables]
    eager = [function(hidden, labels) for _ in range(2)]
    for variable, value in zip(sampler.variables, start, strict=True):
        variable.assign(value)
    fast = compiled(function, sampler, table)
    for own in eager:
        other = fast(hidden, labels)
        np.testing.assert_array_equal(to_numpy(own.ids), to_numpy(other.ids))
        for a, b in zip(own[1:], other[1:], strict=True):
            np.testing.assert_allclose(to_numpy(a), to_numpy(b), rtol=1e-5, atol=1e-6)
    assert len(fast.traces) == 1
    if not case.startswith("in_batch"):
        assert not np.array_equal(to_numpy(eager[0].ids), to_numpy(eager[1].ids))


def make_model(sampler, n=33, num_sampled=5):
    head = SampledSoftmax(n, sampler, num_sampled)
    inputs = keras.Input((D,)), keras.Input((), dtype="int32")
    model = keras.Model(inputs, head(*inputs))
    return model, head


FITTED = ("unigram-unique", "in_batch-streaming", "exp-per_example", "adversarial-per_example")


@pytest.mark.parametrize("case", eager_first(WHOLE, "top_and_tail", *FITTED))
def test_two_fit_steps_draw_different_classes(case, rng):
    """Three steps of `fit` on the same batch, recorded; the second epoch is not traced again."""
    sampler = make(case, 33)
    shape = (8 if sampler.per_example else 1, 5)
    options = {"initializer": "zeros", "dtype": "int32", "trainable": False}
    recorded = sampler.add_weight(shape=(3, *shape), name="recorded", **options)
    model, head = make_model(sampler)
    x = np.tile(rng.normal(size=(8, D)), (3, 1)).astype("float32")
    y = np.tile(rng.choice(33, 8, replace=False), 3).astype("int32")
    calls, draw = [], head.draw

    def recording(*args, **kwargs):
        calls.append(1)
        drawn = draw(*args, **kwargs)
        ids = keras.ops.reshape(drawn[0][0].ids, (1, *shape))
        recorded.assign(keras.ops.concatenate([recorded[1:], ids]))
        return drawn

    object.__setattr__(head, "draw", recording)
    model.compile(keras.optimizers.SGD(0.0))
    model.fit([x, y], batch_size=8, shuffle=False, verbose=0)
    traced, ids = len(calls), to_numpy(recorded)
    for a, b in ((0, 1), (1, 2), (0, 2)):
        assert not np.array_equal(ids[a], ids[b]), "a step drew the classes of another"
    model.fit([x, y], batch_size=8, shuffle=False, verbose=0)
    assert len(calls) == traced, "the second epoch was traced again"
    assert not np.array_equal(to_numpy(recorded)[0], ids[2])


def saved_and_loaded(case, tmp_path):
    """A head whose sampler's variables have been changed, and what a .keras file makes of it."""
    model, head = make_model(make(case, 33))
    for variable in head.sampler.variables:
        if variable.name.startswith("seen"):
            variable.assign(np.random.default_rng(1).uniform(5, 9, variable.shape))
    head.sampler.seed_generator.state.assign(np.array([11, 5], "uint32"))
    model.save(tmp_path / "model.keras")
    return head, keras.models.load_model(tmp_path / "model.keras").layers[-1]


@pytest.mark.parametrize("case", WHOLE)
def test_state_survives_saving(case, tmp_path):
    """The table and the sampler's variables; the seed state has its own test."""
    head, other = saved_and_loaded(case, tmp_path)
    assert type(other) is type(head) and other.get_config() == head.get_config()
    assert len(other.variables) == len(head.variables)
    for a, b in zip(head.weights, other.weights, strict=True):
        np.testing.assert_array_equal(to_numpy(a), to_numpy(b))


@pytest.mark.parametrize("case", ["uniform-per_example", "in_batch-streaming"])
def test_draws_continue_after_loading(case, tmp_path):
    """A resumed run must not draw again, from the start, the classes that it has drawn already."""
    head, other = saved_and_loaded(case, tmp_path)
    states = [to_numpy(h.sampler.seed_generator.state) for h in (head, other)]
    np.testing.assert_array_equal(*states)


@pytest.mark.parametrize("case", EVERY)
def test_config_round_trip(case):
    sampler = make(case, 7)
    config = samplers.serialize(sampler)
    assert config["class_name"] in REGISTRY
    again = samplers.get(config)
    assert type(again) is type(sampler) and again.get_config() == sampler.get_config()
    keras_config = keras.saving.serialize_keras_object(sampler)
    assert samplers.get(keras_config).get_config() == sampler.get_config()


# Five million classes.

MANY = 5_000_000
QUANTUM = 2.0**-31  # a distribution over integers below 2^31 cannot be closer than this


@functools.cache
def many(name):
    """The sampler over 5M classes and its distribution in float64."""
    counts = np.random.default_rng(0).permutation(1e9 / np.arange(1, MANY + 1) ** 1.1)
    config = {"counts": counts, "power": 0.75} if name == "unigram" else {}
    sampler = samplers.get({"class_name": name, "config": {**config, "share_draws": True}}, seed=4)
    sampler.build((MANY, D), 100)
    expected = (
        reference.unigram_distribution(counts, 0.75)
        if name == "unigram"
        else static_distribution(name, MANY)
    )
    hidden = keras.ops.zeros((1, D))
    table = types.SimpleNamespace(units=MANY)
    log_q = to_numpy(sampler.log_prob(table, hidden))[0].astype(np.float64)
    return sampler, table, expected, log_q


@pytest.mark.parametrize("name", ["uniform", "log_uniform", "unigram"])
def test_log_prob_sums_to_one_over_five_million_classes(name):
    np.testing.assert_allclose(np.exp(many(name)[-1]).sum(), 1.0, atol=1e-6)


@pytest.mark.parametrize("name", ["uniform", "log_uniform", "unigram"])
def test_log_prob_at_five_million_classes(name):
    """Every class within 1e-4 of it, or within a quantum where the class is rare."""
    _, _, expected, log_q = many(name)
    error = np.abs(np.exp(log_q) - expected)
    for i in (0, MANY // 2, MANY - 1, int(np.argmax(expected)), int(np.argmin(expected))):
        assert error[i] <= 1e-4 * expected[i] + QUANTUM, (i, error[i] / expected[i])
    assert np.all(error <= 1e-4 * expected + QUANTUM)


@pytest.mark.parametrize("name", ["uniform", "log_uniform", "unigram"])
def test_draws_reach_the_tail_of_five_million_classes(name):
    """Chi-square over 64 buckets of equal mass; the draws report the log q of `log_prob`."""
    sampler, table, expected, log_q = many(name)
    size = 200_000
    samples = sampler.sample(table, keras.ops.zeros((1, D)), size)
    ids = to_numpy(samples.ids)[0]
    bucket = np.minimum((np.cumsum(expected) - expected) * 64, 63).astype(int)
    masses = np.bincount(bucket, expected, minlength=64)
    assert_drawn_from(bucket[ids], masses)
    counts = to_numpy(samples.log_expected_count)[0]
    np.testing.assert_allclose(counts, np.log(size) + log_q[ids], rtol=1e-5, atol=1e-5)


def test_labels_are_excluded_exactly_among_many():
    """Excluding the heaviest class leaves the others with q / (1 - q_y)."""
    counts = 1e9 / np.arange(1, 100_001) ** 1.5
    sampler = samplers.get({"class_name": "unigram", "config": {"counts": counts, "seed": 0}})
    sampler.build((100_000, D), 100)
    labels, hidden = keras.ops.convert_to_tensor(np.array([0, 1], "int32")), keras.ops.zeros((2, D))
    q = np.array([reference.unigram_distribution(counts, 1.0)] * 2)
    q[[0, 1], [0, 1]] = 0
    q /= q.sum(-1, keepdims=True)
    samples = sampler.sample(None, hidden, 20_000, labels)
    for row, own in zip(to_numpy(samples.ids), q, strict=True):
        assert_drawn_from(row, own)
    table = types.SimpleNamespace(units=100_000)
    log_q = to_numpy(sampler.log_prob(table, hidden, labels=labels))
    np.testing.assert_allclose(np.exp(np.float64(log_q)).sum(-1), 1.0, atol=1e-6)
    np.testing.assert_allclose(np.exp(log_q), q, rtol=1e-4, atol=QUANTUM * 5)


def test_a_class_too_rare_for_an_integer_weight_keeps_one():
    """1e-12 of 2^31 rounds to 0; a class of weight 0 has none."""
    assert integer_weights(np.array([1e12, 1.0, 0.0])).tolist() == [2**31 - 4, 1, 0]
    sampler = unigram([1e12, 1.0, 0.0])
    log_q = to_numpy(sampler.log_prob(types.SimpleNamespace(units=3), keras.ops.zeros((1, D))))
    np.testing.assert_allclose(log_q, [[0.0, -np.log(2.0**31 - 3), -np.inf]], atol=1e-6)


# Sampling without replacement.

WEIGHTS = {
    "equal": np.ones(10),
    "zipf": 1.0 / np.arange(1, 1001),
    "one heavy": np.array([1000.0, 1, 1, 1, 1]),
    "with zeros": np.array([0.0, 3, 0, 2, 1, 0, 7]),
    "wide": 10.0 ** np.linspace(-12, 3, 50),
}


@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 1.0])
def test_inclusion_probabilities(name, share):
    weights = WEIGHTS[name]
    size = max(1, int(share * np.count_nonzero(weights)))
    pi = inclusion_probabilities(weights, size)
    np.testing.assert_allclose(pi.sum(), size, rtol=1e-9)
    assert np.all(pi[weights > 0] > 0) and np.all(pi[weights == 0] == 0) and np.all(pi <= 1)
    expected = reference.inclusion_probabilities(weights, size)
    np.testing.assert_allclose(pi, expected, rtol=1e-7, atol=1e-12)
    ratio = (pi / np.where(weights > 0, weights, 1.0))[(pi < 1) & (weights > 0)]
    assert len(ratio) == 0 or np.ptp(ratio) < 1e-9 * ratio.max()
    widths, unit = integer_inclusion(pi, size)
    assert widths.sum() == size * unit < 2**31 and widths.max() <= unit
    np.testing.assert_array_equal(widths > 0, weights > 0)
    np.testing.assert_allclose(widths / unit, pi, rtol=1e-4, atol=2 / unit)


def test_integer_widths_are_the_nearest_of_their_sum():
    """Rounded down, and up where most was left: the largest remainders, as many as are missing."""
    pi = np.random.default_rng(0).dirichlet(np.ones(9)) * 2
    assert pi.max() < 1
    widths, unit = integer_inclusion(pi, 2)
    exact = pi * unit
    up = np.argsort(np.floor(exact) - exact)[: 2 * unit - int(np.floor(exact).sum())]
    np.testing.assert_array_equal(widths - np.floor(exact), np.isin(np.arange(9), up))


# In-batch negatives.


def test_in_batch_draws_are_labels_with_their_expected_counts():
    """E[count of i | own label is not i] = k (B - 1) / B p_i, within 4 standard errors."""
    n, size, k, repeats = 5, 8, 5, 1500
    p = np.array([0.4, 0.25, 0.2, 0.1, 0.05])
    config = {"counts": (1000 * p).tolist(), "seed": 2}
    sampler = samplers.get({"class_name": "in_batch", "config": config})
    sampler.build((n, D), k)
    hidden = np.zeros((size, D), "float32")
    function = compiled(lambda h, y: sampler.sample(None, h, k, y), sampler)
    rng = np.random.default_rng(0)
    found, every = [[] for _ in range(n)], []
    for _ in range(repeats):
        labels = rng.choice(n, size, p=p).astype("int32")
        samples = function(hidden, labels)
        ids = to_numpy(samples.ids)[0]
        counts = np.bincount(ids, minlength=n)
        assert ids.shape == (k,) and np.all(counts <= np.bincount(labels, minlength=n))
        every.append(ids)
        for i in range(n):
            others = labels != i
            if others.any():
                found[i].append((counts[i] * others.sum(), others.sum()))
        expected = np.log(k * (size - 1) / size * p)
        count = to_numpy(samples.log_expected_count)[0]
        np.testing.assert_allclose(count, expected[ids], rtol=1e-5)
        true = to_numpy(samples.true_log_expected_count)
        np.testing.assert_allclose(true, expected[labels], rtol=1e-5)
    assert_drawn_from(np.concatenate(every), p)
    for i in range(n):
        totals, weights = np.array(found[i], float).T
        mean = totals.sum() / weights.sum()
        residual = (totals - mean * weights) / weights.mean()
        error = residual.std(ddof=1) / np.sqrt(len(totals))
        assert abs(mean - k * (size - 1) / size * p[i]) < 4 * error


def test_in_batch_takes_each_position_once():
    sampler = make("in_batch-counts", 33)
    sampler.build((33, D), 100)
    labels = np.arange(10, dtype="int32")
    samples = sampler.sample(
        None, keras.ops.zeros((10, D)), 100, keras.ops.convert_to_tensor(labels)
    )
    assert sorted(to_numpy(samples.ids)[0]) == list(range(10))  # m > B: all of them


def test_in_batch_estimate_follows_the_labels(rng):
    """(seen + smoothing) / (all seen + n smoothing), exactly, from training calls alone."""
    n, p = 7, np.array([0.3, 0.3, 0.2, 0.1, 0.05, 0.05, 0.0])
    head = SampledSoftmax(n, {"class_name": "in_batch", "config": {"smoothing": 0.5}}, 4)
    labels = rng.choice(n, (40, 25), p=p).astype("int32")
    hidden = rng.normal(size=(25, D)).astype("float32")
    head.build((None, D))
    step = compiled(lambda h, y: head(h, y, training=True), head)
    evaluate = compiled(lambda h, y: head(h, y, training=False), head)
    for row in labels:
        step(hidden, row)
        evaluate(hidden, np.full(25, 6, "int32"))
    log_q = head.sampler.log_prob(head.table, keras.ops.convert_to_tensor(hidden))
    seen = np.bincount(labels.ravel(), minlength=n) + 0.5
    np.testing.assert_allclose(np.exp(to_numpy(log_q))[0], seen / seen.sum(), rtol=1e-5)
    np.testing.assert_allclose(np.exp(to_numpy(log_q))[0], p, atol=4 * 0.5 / np.sqrt(1000))


@pytest.mark.parametrize("n", SIZES)
def test_in_batch_log_prob_sums_to_one(n):
    sampler = make("in_batch-counts", n)
    sampler.build((n, D))
    table = types.SimpleNamespace(units=n)
    log_q = to_numpy(sampler.log_prob(table, keras.ops.zeros((2, D))))
    expected = (class_counts(n) + 1) / (class_counts(n) + 1).sum()
    np.testing.assert_allclose(np.exp(log_q), np.broadcast_to(expected, (2, n)), rtol=1e-5)


# Bad input: one line that names the argument and says what was received.


def rejects(argument, function, *args, **kwargs):
    with pytest.raises(ValueError) as error:
        function(*args, **kwargs)
    message = str(error.value)
    assert f"`{argument}`" in message and "Received" in message and "\n" not in message.strip()
    return message


def unigram(counts, n=3, **config):
    sampler = samplers.get({"class_name": "unigram", "config": {"counts": counts, **config}})
    sampler.build((n, D), 2)
    return sampler


@pytest.mark.parametrize("name", ["unigram", "in_batch"])
@pytest.mark.parametrize(
    "counts", [[1, 2], [1, 2, 3, 4], [0, 0, 0], [1, -1, 2], [1, float("nan"), 1], [[1, 2, 3]], []]
)
def test_bad_counts(name, counts):
    def build():
        samplers.get({"class_name": name, "config": {"counts": counts}}).build((3, D), 2)

    rejects("counts", build)


def test_unknown_sampler_lists_the_known_ones():
    message = rejects("sampler", samplers.get, "unifrom")
    assert all(name in message for name in REGISTRY)
    rejects("sampler", samplers.get, 3)
    rejects("sampler", SampledSoftmax, 5, "unifrom")


def test_unknown_sampler_option():
    rejects("sampler", samplers.get, {"class_name": "uniform", "config": {"power": 2}})
    rejects("sampler", samplers.get, "unigram")  # without its counts


@pytest.mark.parametrize("num_sampled", [4, 100, 0, None])
def test_more_unique_draws_than_classes(num_sampled):
    sampler = samplers.get({"class_name": "uniform", "config": {"unique": True}})
    rejects("num_sampled", sampler.build, (3, D), num_sampled)


def test_more_unique_draws_than_classes_with_counts():
    rejects("num_sampled", unigram, [1, 0, 0], unique=True)


def test_unique_draws_are_shared():
    rejects("unique=True", samplers.get, _unique(share_draws=False))
    sampler = samplers.get(_unique())
    assert not sampler.per_example
    sampler.build((9, D), 4)
    rejects("num_sampled", sampler.sample, None, keras.ops.zeros((2, D)), 5)


def _unique(**config):
    return {"class_name": "uniform", "config": {"unique": True, **config}}


def test_in_batch_needs_labels_and_sharing():
    rejects(
        "share_draws", samplers.get, {"class_name": "in_batch", "config": {"share_draws": False}}
    )
    rejects("smoothing", samplers.get, {"class_name": "in_batch", "config": {"smoothing": 0}})
    sampler = make("in_batch-counts", 3)
    rejects("labels", sampler.sample, make_table(3), keras.ops.zeros((2, D)), 2)

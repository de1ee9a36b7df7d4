"""Conformance of every sampler in the registry: what it draws is what `log_prob` says.

The cases, and the distribution of each in NumPy, are in `sampler_cases.py`.
"""

import types

import keras
import numpy as np
import pytest
import reference
from conformance import (
    assert_draws_are_of_log_prob,
    assert_log_prob,
    assert_log_prob_of_ids,
    log,
    observe,
)
from conftest import (
    BACKEND,
    SIGNIFICANCE,
    assert_drawn_from,
    compiled,
    rejects,
    slow_but,
    thorough_but,
    to_numpy,
)
from sampler_cases import (
    CASES,
    EVERY,
    KERNELS,
    REFUSED,
    STATIC_WEIGHTS,
    D,
    batch,
    class_counts,
    distribution,
    make,
    make_table,
)
from scipy import stats
from small import assert_all_equal, functional, make_sampler, saved_and_loaded, spec

from softbench import SampledSoftmax, samplers
from softbench.samplers import REGISTRY
from softbench.samplers.static import inclusion_probabilities, integer_inclusion, integer_weights

DRAWS = 4000
# One class and many, or many alone: what is more reaches no other code.
SIZES = [1, 33]
SIZES_OF = {
    "adversarial-per_example": [1, 8, 33],
    "codebook-per_example": SIZES,
    "exp-shared": SIZES,
    "mixed-per_example": SIZES,
    "rff-per_example": [1, 100],
    "rff-shared": [100],
}
# Kernel samplers differ by their map: two of them share draws in the way of all. So do static ones.
LIKE_OTHERS = [f"{x}-shared" for x in ("quadratic", "sorf", "maclaurin", "uniform", "log_uniform")]
DRAWN = [case for case in EVERY if not case.startswith(("in_batch", "top_and_tail"))]
DRAWN = [case for case in DRAWN if case not in LIKE_OTHERS]
UNIQUE = [case for case in DRAWN if case.endswith("unique")]
REPLACED = [case for case in DRAWN if case not in UNIQUE]
# Two kernel samplers stand for all (they differ by their map) where more than log q is compiled.
LARGE = ("codebook-exact", "top_and_tail-groups", "mixed-nested")
WHOLE = [
    case
    for case in EVERY
    if case.split("-")[0] not in KERNELS or case in ("rff-per_example", "positive-shared")
]
WHOLE = [case for case in WHOLE if not case.startswith(LARGE)]
# What a sampler keeps does not depend on who shares its draws.
KEPT = [case for case in WHOLE if not case.endswith("shared") or case.startswith("positive")]
KEPT = [case for case in KEPT if case not in ("uniform-unique", "log_uniform-unique")]
pytestmark = pytest.mark.usefixtures("small_top")


def sizes(case):
    name, variant = case.split("-")
    plain = variant == "per_example" and name not in (*KERNELS, "codebook", "mixed")
    return SIZES_OF.get(case, SIZES if plain else [33])


def sized(cases):
    """Every case with each of its sizes; the largest of those of `WHOLE` are quick.

    All others are thorough on JAX; few classes are drawn in the same way on TensorFlow.
    Draws of RFF are tested in `test_kernel.py`.
    """
    pairs = [(case, n) for case in cases for n in sizes(case)]
    largest = [(case, n) for case, n in pairs if n == sizes(case)[-1]]
    quick = [(case, n) for case, n in largest if case in WHOLE and case != "rff-per_example"]
    return slow_but(pairs, *quick, thorough=pairs if BACKEND == "jax" else largest)


def built(case, n, size):
    sampler, table = make(case, n), make_table(n)
    sampler.build((n, D), size, table)
    return sampler, table


def tolerance(case):
    """Of probabilities: an estimate that is a small difference of float32 numbers has less left."""
    return 1e-3 if case.split("-")[0] in (*KERNELS, "mixed") else 2e-5


def test_every_registered_sampler_is_tested():
    assert set(CASES) == set(REGISTRY)


@pytest.mark.parametrize("case, n", sized(REPLACED))
def test_what_is_drawn_is_what_log_prob_says(case, n):
    """m = 4000 > n draws, of all classes and of the others; log q against float64."""
    sampler, table = built(case, n, DRAWS)
    hidden, labels = batch(n)
    found = observe(sampler, table, hidden, labels, DRAWS)
    rtol = tolerance(case)
    assert_log_prob(found["log_prob"], distribution(sampler, table, hidden), rtol)
    others = distribution(sampler, table, hidden, labels)
    assert_log_prob(found["log_prob_others"], others, rtol)
    assert_draws_are_of_log_prob(sampler, found, labels, rtol)
    # log q of the only class is 0, and of it a rounding of 1 is left.
    assert_log_prob_of_ids(found, max(1e-5, rtol / 10), 2.0**-22 if n == 1 else 0.0)


@pytest.mark.parametrize("n", [1, 100])
@pytest.mark.parametrize("case", UNIQUE)
def test_unique_draws(case, n):
    """Distinct ids, each class with its inclusion probability (binomial test), log pi exact."""
    size = max(1, np.count_nonzero(distribution(*built(case, n, 1), batch(n)[0])) // 3)
    sampler, table = built(case, n, size)
    hidden, labels = batch(n)
    pi = distribution(sampler, table, hidden)
    found = observe(sampler, table, hidden, labels, size)
    for name in ("log_prob", "log_prob_others"):
        assert_log_prob(found[name], pi, 2e-5, total=size)
    assert_log_prob_of_ids(found)
    pi, repeats, observed = pi[0], 400, np.zeros(n, int)
    draw = compiled(lambda h, y: sampler.sample(None, h, size, y), sampler)
    for _ in range(repeats):
        samples = draw(hidden, labels)
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


UNDER_XLA = [f"{x}-per_example" for x in ("log_uniform", "adversarial", "codebook", "rff")]
UNDER_XLA.append("positive-shared")


@pytest.mark.skipif(BACKEND != "tensorflow", reason="JAX always compiles with XLA")
@pytest.mark.parametrize(
    "case", thorough_but(UNDER_XLA, "log_uniform-per_example", "positive-shared")
)
def test_draws_follow_the_distribution_under_xla(case):
    sampler, table = built(case, 33, DRAWS)
    hidden, labels = batch(33)
    found = observe(sampler, table, hidden, labels, DRAWS, xla=True)
    assert_log_prob(found["log_prob"], distribution(sampler, table, hidden), tolerance(case))
    assert_draws_are_of_log_prob(sampler, found, labels, tolerance(case))


# Some kinds: on JAX an eager call compiles each operation.
KINDS = ["uniform-per_example", "unigram-unique", "in_batch-counts", "adversarial-per_example"]
KINDS += ["codebook-per_example", "rff-per_example"] if BACKEND == "tensorflow" else []


@pytest.mark.parametrize("case", KINDS)
def test_compiled_equals_eager_and_is_traced_once(case):
    sampler, table = built(case, 33, 10)
    hidden, labels = (keras.ops.convert_to_tensor(x) for x in batch(33))

    def function(hidden, labels):
        return sampler.sample(table, hidden, 10, labels, exclude_labels=False)

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


FITTED = ("unigram-unique", "in_batch-streaming", "exp-per_example", "adversarial-per_example")


@pytest.mark.parametrize("case", thorough_but([*FITTED, "codebook-per_example"], *FITTED))
def test_two_fit_steps_draw_different_classes(case, rng):
    """Three steps of `fit` on the same batch, recorded; the second epoch is not traced again."""
    sampler = make(case, 33)
    shape = (8 if sampler.per_example else 1, 5 + getattr(sampler, "memory", 0))
    options = {"initializer": "zeros", "dtype": "int32", "trainable": False}
    recorded = sampler.add_weight(shape=(3, *shape), name="recorded", **options)
    head = SampledSoftmax(33, sampler, 5)
    model = functional(head, D)
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


@pytest.mark.parametrize("case", KEPT)
def test_state_survives_saving(case, tmp_path):
    """The table, and all of the sampler's variables: a resumed run draws no class again."""
    head = SampledSoftmax(33, make(case, 33), 5)
    model = functional(head, D)
    for variable in head.sampler.variables:
        if variable.name.startswith("seen"):
            variable.assign(np.random.default_rng(1).uniform(5, 9, variable.shape))
    head.sampler.seed_generator.state.assign(np.array([11, 5], "uint32"))
    other = saved_and_loaded(model, tmp_path).layers[-1]
    assert type(other) is type(head) and other.get_config() == head.get_config()
    assert_all_equal(head.variables, other.variables)


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


@pytest.mark.parametrize("name", ["uniform", "log_uniform", "unigram"])
def test_five_million_classes(name):
    """Every class within 1e-4 of its probability, or within a quantum where it is rare.

    Chi-square of the draws over 64 buckets of equal mass, so that the tail is reached too.
    """
    config = {}
    if name == "unigram":
        counts = np.random.default_rng(0).permutation(1e9 / np.arange(1, MANY + 1) ** 1.1)
        config = {"counts": counts, "power": 0.75}
    sampler = make_sampler(name, **config, share_draws=True, seed=4)
    sampler.build((MANY, D), 100)
    expected, size = STATIC_WEIGHTS[name](MANY, config), 200_000
    hidden, table = keras.ops.zeros((1, D)), types.SimpleNamespace(units=MANY)
    log_q = to_numpy(sampler.log_prob(table, hidden))[0].astype(np.float64)
    np.testing.assert_allclose(np.exp(log_q).sum(), 1.0, atol=1e-6)
    assert np.all(np.abs(np.exp(log_q) - expected) <= 1e-4 * expected + QUANTUM)
    samples = sampler.sample(table, hidden, size)
    ids = to_numpy(samples.ids)[0]
    bucket = np.minimum((np.cumsum(expected) - expected) * 64, 63).astype(int)
    assert_drawn_from(bucket[ids], np.bincount(bucket, expected, minlength=64))
    counts = to_numpy(samples.log_expected_count)[0]
    np.testing.assert_allclose(counts, np.log(size) + log_q[ids], rtol=1e-5, atol=1e-5)


def test_labels_are_excluded_exactly_among_many():
    """Excluding the heaviest class leaves the others with q / (1 - q_y)."""
    counts = 1e9 / np.arange(1, 100_001) ** 1.5
    sampler = unigram(counts, 100_000, 100, seed=0)
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


HUGE = [1e308, 1e308, 5e-324, 0.0]


@pytest.mark.parametrize("power", [1.0, 0.75, 0.0])
def test_every_class_that_was_seen_can_be_drawn(power):
    weights = samplers.Unigram(counts=HUGE, power=power).class_weights(4)
    assert np.isfinite(weights).all() and (weights[:3] > 0).all() and weights[3] == 0


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
    widths, unit = integer_inclusion(pi, size)
    assert widths.sum() == size * unit < 2**31 and widths.max() <= unit
    np.testing.assert_array_equal(widths > 0, weights > 0)
    np.testing.assert_allclose(widths / unit, pi, rtol=1e-4, atol=2 / unit)


# In-batch negatives.


def test_in_batch_draws_are_labels_with_their_expected_counts():
    """E[count of i | own label is not i] = k (B - 1) / B p_i, within 4 standard errors."""
    n, size, k, repeats = 5, 8, 5, 1500
    p = np.array([0.4, 0.25, 0.2, 0.1, 0.05])
    sampler = make_sampler("in_batch", counts=(1000 * p).tolist(), seed=2)
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


def test_in_batch_estimate_follows_the_labels(rng):
    """(seen + smoothing) / (all seen + n smoothing), exactly, from training calls alone."""
    n, p = 7, np.array([0.3, 0.3, 0.2, 0.1, 0.05, 0.05, 0.0])
    head = SampledSoftmax(n, spec("in_batch", smoothing=0.5), 4)
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


@pytest.mark.parametrize("counts", [7, 100, "huge"])
def test_in_batch_log_prob_is_that_of_the_counts(counts):
    """Also where their float64 sum overflows, and a share of 1e-632 is 0: no log of q is that."""
    counts = HUGE if counts == "huge" else class_counts(counts) + 1
    sampler = samplers.InBatch(counts=counts)
    sampler.build((len(counts), D))
    table = types.SimpleNamespace(units=len(counts))
    log_q = to_numpy(sampler.log_prob(table, keras.ops.zeros((2, D))))
    expected = log(np.array(counts)) - np.log(np.sum(np.divide(counts, 1e300))) - np.log(1e300)
    np.testing.assert_allclose(log_q, np.broadcast_to(expected, log_q.shape), rtol=1e-5)


# Bad input: one line that names the argument and says what was received.


def unigram(counts, n=3, num_sampled=2, **config):
    sampler = make_sampler("unigram", counts=counts, **config)
    sampler.build((n, D), num_sampled)
    return sampler


@pytest.mark.parametrize(("name", "config"), [(n, c) for n in REFUSED for c in REFUSED[n]])
def test_what_a_sampler_refuses(name, config):
    argument, table = next(iter(config)), make_table(3)
    message = rejects(argument, lambda: make_sampler(name, **config).build((3, D), 2, table))
    assert "\n" not in message.strip()


BAD = [
    ("sampler", lambda: samplers.get(3)),
    ("sampler", lambda: SampledSoftmax(5, "unifrom")),
    ("sampler", lambda: make_sampler("uniform", power=2)),
    ("sampler", lambda: samplers.get("unigram")),  # without its counts
    ("counts", lambda: samplers.get("top_and_tail")),
    *(
        ("num_sampled", lambda m=m: make_sampler("uniform", unique=True).build((3, D), m))
        for m in (4, 100, 0, None)
    ),
    ("num_sampled", lambda: unigram([1, 0, 0], unique=True)),
    ("unique=True", lambda: make_sampler("uniform", unique=True, share_draws=False)),
]


@pytest.mark.parametrize("argument, call", BAD)
def test_bad_input(argument, call):
    assert "\n" not in rejects(argument, call).strip()


def test_unknown_sampler_lists_the_known_ones():
    message = rejects("sampler", samplers.get, "unifrom")
    assert all(name in message for name in REGISTRY)


def test_draws_that_cannot_be_made():
    sampler = make_sampler("uniform", unique=True)
    assert not sampler.per_example
    sampler.build((9, D), 4)
    rejects("num_sampled", sampler.sample, None, keras.ops.zeros((2, D)), 5)
    sampler = make("in_batch-counts", 3)
    rejects("labels", sampler.sample, make_table(3), keras.ops.zeros((2, D)), 2)

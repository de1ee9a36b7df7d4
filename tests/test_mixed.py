"""The mixture of two samplers: draws, their distribution, the labels, training, saving."""

import functools

import keras
import numpy as np
import pytest
import reference
from conftest import (
    assert_drawn_from,
    compiled,
    log_counts,
    rejects,
    slow_but,
    thorough_but,
    to_numpy,
)
from scipy import stats
from test_samplers import B, D, batch, class_counts, make_table

from softbench import RowAdagrad, SampledSoftmax, samplers
from softbench.groups import of_every_example
from softbench.samplers.codebook import follow

SIGNIFICANCE = 1e-4
N, DRAWS = 33, 3000
KERNEL = {"class_name": "rff", "config": {"num_features": 32, "nu": 1.0, "block_size": 4}}
CASES = {
    "static": ("uniform", "log_uniform", 0.25),
    "exp": ("unigram", "exp", 0.5),
    "kernel": ("unigram", KERNEL, 0.7),
    "nested": (
        "exp",
        {"class_name": "mixed", "config": {"first": "uniform", "second": KERNEL}},
        0.4,
    ),
}
SHARED = [(case, share) for case in CASES for share in (False, True)]


def unigram(**config):
    counts = class_counts(N).tolist()
    return {"class_name": "unigram", "config": {"counts": counts, "power": 0.75, **config}}


def make(case, share_draws, seed=7):
    first, second, weight = CASES[case]
    if first == "unigram":
        first = unigram()
    config = {"first": first, "second": second, "weight": weight}
    config |= {"share_draws": share_draws, "seed": seed}
    return samplers.get({"class_name": "mixed", "config": config})


def static_distribution(name):
    if name == "unigram":
        return reference.unigram_distribution(class_counts(N), 0.75)
    return {
        "uniform": reference.uniform_distribution,
        "log_uniform": reference.log_uniform_distribution,
    }[name](N)


def distribution_of(sampler, table, labels):
    """q (B, n) of a component: in NumPy, or for a kernel what it says of itself."""
    hidden = batch(N)[0]
    name = samplers.serialize(sampler)["class_name"]
    if name == "mixed":
        m1, m2 = sampler.sizes(sampler.num_sampled)
        q1, q2 = (
            distribution_of(sampler.first, table, labels),
            distribution_of(sampler.second, table, labels),
        )
        return (m1 * q1 + m2 * q2) / (m1 + m2)
    if name == "rff":
        return np.exp(np.float64(to_numpy(sampler.log_prob(table, hidden, labels=labels))))
    if name == "exp":
        kernel, bias = to_numpy(table.kernel), to_numpy(table.bias)
        q = reference.softmax(reference.scores(hidden, kernel, bias, temperature=0.7))
        q = np.broadcast_to(q.mean(0), q.shape) if sampler.share_draws else q
    else:
        q = np.broadcast_to(static_distribution(name), (B, N))
    if labels is None or sampler.share_draws:
        return q
    q = np.where(np.arange(N) == labels[:, None], 0.0, q)
    return q / q.sum(-1, keepdims=True)


@functools.cache
def drawn(case, share_draws):
    sampler, table = make(case, share_draws), make_table(N)
    sampler.build((N, D), DRAWS, table)

    def function(hidden, labels):
        return {
            "all": sampler.sample(table, hidden, DRAWS, labels, exclude_labels=False),
            "others": sampler.sample(table, hidden, DRAWS, labels),
            "log_prob": sampler.log_prob(table, hidden),
            "log_prob_others": sampler.log_prob(table, hidden, labels=labels),
        }

    result = compiled(function, sampler, table)(*batch(N))
    return (
        sampler,
        table,
        keras.tree.map_structure(lambda x: None if x is None else to_numpy(x), result),
    )


def mixture(sampler, table, labels=None):
    return distribution_of(sampler, table, labels)


@pytest.mark.parametrize(
    "case, share_draws",
    slow_but(
        SHARED,
        ("static", False),
        ("exp", True),
        thorough=[("kernel", False), ("nested", False)],
    ),
)
def test_draws_and_their_distribution(case, share_draws):
    """The whole against m1 q1 + m2 q2; each part (of a fixed size) against its own distribution."""
    sampler, table, result = drawn(case, share_draws)
    labels = batch(N)[1]
    m1, _ = sampler.sizes(DRAWS)
    assert m1 == round(CASES[case][2] * DRAWS)
    for key, log_prob, own in (
        ("all", "log_prob", None),
        ("others", "log_prob_others", None if share_draws else labels),
    ):
        q, samples = mixture(sampler, table, own), result[key]
        first, second = (
            distribution_of(part, table, own) for part in (sampler.first, sampler.second)
        )
        np.testing.assert_allclose(np.exp(result[log_prob]), q, rtol=1e-4, atol=1e-8)
        np.testing.assert_allclose(np.exp(result[log_prob]).sum(-1), 1, rtol=1e-5)
        assert samples.ids.shape == (1 if share_draws else B, DRAWS)
        for row, ids in enumerate(samples.ids):
            assert_drawn_from(ids[:m1], first[row])
            assert_drawn_from(ids[m1:], second[row])
            expected = np.log(DRAWS * q[row][ids])
            found = samples.log_expected_count[row]
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    true = np.log(DRAWS * mixture(sampler, table)[np.arange(B), labels])
    np.testing.assert_allclose(result["all"].true_log_expected_count, true, rtol=1e-4, atol=1e-4)
    if share_draws:
        np.testing.assert_allclose(
            result["others"].true_log_expected_count, true, rtol=1e-4, atol=1e-4
        )
    else:
        assert result["others"].true_log_expected_count is None
        assert not np.any(result["others"].ids == labels[:, None])
        assert np.all(np.isneginf(result["log_prob_others"][np.arange(B), labels]))


@pytest.mark.parametrize("case", thorough_but(["exp", "kernel"], "exp"))
def test_log_prob_of_ids_is_that_of_all_classes(case):
    ids = np.random.default_rng(0).integers(0, N, (B, 6)).astype("int32")
    table = make_table(N)
    for share_draws in (False, True):
        sampler = make(case, share_draws)
        sampler.build((N, D), DRAWS, table)

        def log_probs(hidden, ids, sampler=sampler):
            return [sampler.log_prob(table, hidden, own) for own in (None, ids)]

        found = compiled(log_probs, sampler, table)(batch(N)[0], ids)
        everything, some = (to_numpy(log_q) for log_q in found)
        np.testing.assert_allclose(some, np.take_along_axis(everything, ids, -1), rtol=1e-4)


def unique_mixture(size):
    config = {"first": unigram(unique=True), "second": {"class_name": "exp", "config": {}}}
    config["second"]["config"] = {"share_draws": True}
    sampler = samplers.get({"class_name": "mixed", "config": {**config, "seed": 3}})
    sampler.build((N, D), size, make_table(N))
    return sampler


def test_distinct_draws_as_first():
    """E[count] = pi + m2 q2, with pi for m1 draws; counted over 400 batches of draws."""
    size, hidden, table = 16, batch(N)[0], make_table(N)
    sampler = unique_mixture(size)
    weights = reference.unigram_distribution(class_counts(N), 0.75)
    expected = (
        reference.inclusion_probabilities(weights, 8)
        + 8 * distribution_of(sampler.second, table, None)[0]
    )
    assert expected.sum() == pytest.approx(size)
    function = compiled(lambda h, y: sampler.sample(table, h, size, y), sampler, table)
    repeats, observed = 400, np.zeros(N)
    for _ in range(repeats):
        samples = function(*batch(N))
        ids = to_numpy(samples.ids)[0]
        assert len(set(ids[:8])) == 8
        np.add.at(observed, ids, 1)
    found = to_numpy(samples.log_expected_count)[0]
    np.testing.assert_allclose(found, np.log(expected[ids]), rtol=1e-4, atol=1e-5)
    true = to_numpy(samples.true_log_expected_count)
    np.testing.assert_allclose(true, np.log(expected[batch(N)[1]]), rtol=1e-4, atol=1e-5)
    log_prob = to_numpy(sampler.log_prob(table, hidden))[0]
    np.testing.assert_allclose(np.exp(log_prob), expected / size, rtol=1e-4)
    # the variance of a count is at most that of as many independent draws
    z = (observed - repeats * expected) / np.sqrt(repeats * expected)
    assert np.abs(z).max() < stats.norm.isf(SIGNIFICANCE / (2 * N))


def test_in_batch_and_uniform():
    """Mixed negative sampling (Yang et al. 2020): k (B - 1) / B p + m2 / n."""
    config = {
        "first": {"class_name": "in_batch", "config": {"counts": (class_counts(N) + 1).tolist()}}
    }
    config["second"] = {"class_name": "uniform", "config": {"share_draws": True}}
    sampler = samplers.get({"class_name": "mixed", "config": config})
    sampler.build((N, D), 20, make_table(N))
    hidden, labels = (keras.ops.convert_to_tensor(x) for x in batch(N))
    samples = sampler.sample(make_table(N), hidden, 20, labels)
    p = (class_counts(N) + 1) / (class_counts(N) + 1).sum()
    expected = B * (B - 1) / B * p + 10 / N
    ids = to_numpy(samples.ids)
    assert ids.shape == (1, B + 10)  # all B labels, and m2 = 10
    np.testing.assert_allclose(
        to_numpy(samples.log_expected_count), np.log(expected[ids]), rtol=1e-4
    )


def test_fit_follows_the_table_and_a_saved_model_goes_on(tmp_path):
    """Training with a row optimizer keeps the kernel's sums equal to a refresh; save and load."""
    from softbench import RowAdagrad

    config = {"first": unigram(), "second": KERNEL, "weight": 0.5, "share_draws": True}
    rng = np.random.default_rng(0)
    x = rng.normal(size=(48, D)).astype("float32")
    y = rng.integers(0, N, 48).astype("int32")
    inputs, labels = keras.Input((D,)), keras.Input((), dtype="int32")
    sampler = {"class_name": "mixed", "config": config}
    head = SampledSoftmax(
        N, sampler=sampler, num_sampled=10, row_optimizer=RowAdagrad(0.5), normalize=True, seed=1
    )
    hidden = keras.layers.Dense(D)(inputs)
    model = keras.Model([inputs, labels], head(hidden, labels))
    model.compile("sgd")
    before = model.evaluate([x, y], batch_size=16, verbose=0)
    model.fit([x, y], epochs=12, batch_size=16, verbose=0)
    assert model.evaluate([x, y], batch_size=16, verbose=0) < before
    kernel = head.sampler.second
    sums = [to_numpy(v).copy() for v in kernel.blocks.sums]
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    copy = next(layer for layer in loaded.layers if isinstance(layer, SampledSoftmax))
    assert copy.sampler.weight == 0.5
    one, two = (
        compiled(lambda x, y, own=own: own.sampler.sample(own.table, x, 10, y), own)(x, y)
        for own in (head, copy)
    )
    for a, b in zip(one, two, strict=True):
        np.testing.assert_allclose(to_numpy(a), to_numpy(b), rtol=1e-5)
    head.sampler.refresh(head.table)
    for old, new in zip(sums, kernel.blocks.sums, strict=True):
        np.testing.assert_allclose(old, to_numpy(new), rtol=1e-3, atol=1e-4)


def test_two_draws_differ_and_the_parts_are_not_copies():
    """Two parts of one kind must not draw the same ids."""
    config = {"first": "uniform", "second": "uniform", "seed": 5}
    sampler = samplers.get({"class_name": "mixed", "config": config})
    sampler.build((1000, D), 20)
    hidden = np.zeros((B, D), "float32")
    ids = [to_numpy(sampler.sample(None, hidden, 20).ids) for _ in range(2)]
    assert not np.array_equal(*ids)
    assert not np.array_equal(ids[0][:, :10], ids[0][:, 10:])


def test_errors():
    per_example = {"class_name": "exp", "config": {"share_draws": False}}
    with pytest.raises(ValueError, match="`share_draws` must be left out"):
        make_mixed(unigram(unique=True), per_example, share_draws=True)
    with pytest.raises(ValueError, match="`weight`"):
        make_mixed("uniform", "exp", weight=1.0)
    with pytest.raises(ValueError, match="`num_sampled`"):
        make_mixed("uniform", "exp", weight=0.01).build((N, D), 10)
    with pytest.raises(ValueError, match="`num_sampled`"):
        make_mixed("uniform", "exp").build((N, D))


def make_mixed(first, second, **config):
    config = {"first": first, "second": second, **config}
    return samplers.get({"class_name": "mixed", "config": config})


def test_the_distribution_sums_to_one_where_a_batch_is_too_small_for_its_negatives():
    """One example gives `in_batch` one draw of the four that it is asked for."""
    config = {"first": "uniform", "second": "in_batch", "share_draws": True}
    sampler = samplers.get({"class_name": "mixed", "config": config})
    table, hidden = make_table(5), batch(5)[0][:1]
    labels = np.array([2], "int32")
    sampler.build((5, D), 8, table)
    drawn = sampler.sample(table, hidden, 8, labels)
    q = np.exp(to_numpy(sampler.log_prob(table, hidden)))
    np.testing.assert_allclose(q.sum(-1), 1.0, rtol=1e-5)
    count = np.exp(to_numpy(drawn.log_expected_count)[0])
    np.testing.assert_allclose(count / q[0, to_numpy(drawn.ids)[0]], 5.0, rtol=1e-5)


CODEBOOK = {"num_codewords": 4, "counts": class_counts(N).tolist(), "refresh_every": 10**6}
IN_PART = {
    "batch": {"first": "log_uniform", "share": True},
    "groups": {"first": "log_uniform", "share": 2},
    "second": {"first": "log_uniform", "share": True},
    "codebooks": {"first": {"class_name": "codebook", "config": CODEBOOK}, "share": 2},
}


def in_part(layout, num_sampled=(6, 3)):
    """Shared draws of one sampler and draws per example of another, and the numbers of each."""
    case = IN_PART[layout]
    first = case["first"] if isinstance(case["first"], dict) else {"class_name": case["first"]}
    shared = {**first, "config": {**first.get("config", {}), "share_draws": case["share"]}}
    parts = [shared, {"class_name": "exp", "config": {}}]
    parts = parts[::-1] if layout == "second" else parts
    config = {"first": parts[0], "second": parts[1], "num_sampled": num_sampled, "seed": 3}
    return samplers.get({"class_name": "mixed", "config": config})


@pytest.mark.parametrize("layout", thorough_but(IN_PART, "groups"))
def test_one_part_can_share_its_draws_while_the_other_follows_the_example(layout):
    """The numbers drawn are as expected, the label is in neither, and the partition is unbiased."""
    sampler, table = in_part(layout), make_table(N)
    hidden, labels = batch(N)
    sampler.build((N, D), 9, table)
    order = sampler.arrange(hidden)
    hidden, labels = (x if order is None else x[to_numpy(order)] for x in (hidden, labels))
    draw = compiled(lambda h, y: sampler.sample(table, h, 9, y), sampler, table)
    expected = np.exp(log_counts(sampler, table, hidden, 9, labels).astype(float))
    q = np.exp(to_numpy(sampler.log_prob(table, hidden, labels=labels)).astype(float))
    np.testing.assert_allclose(q, expected / expected.sum(-1, keepdims=True), rtol=1e-4)
    assert (expected[np.arange(len(labels)), labels] == 0).all()
    seen, rounds, rows = np.zeros((len(labels), N)), 1500, np.arange(len(labels))[:, None]
    for _ in range(rounds):
        each = [
            [to_numpy(of_every_example(x, hidden)) for x in part[:2]]
            for part in draw(hidden, labels)
        ]
        ids, count = (np.concatenate(arrays, axis=-1) for arrays in zip(*each, strict=True))
        known = np.isfinite(count)
        assert (known == (ids != labels[:, None])).all()
        np.add.at(seen, (np.broadcast_to(rows, ids.shape)[known], ids[known]), 1)
    np.testing.assert_allclose(
        count[known], np.log(np.take_along_axis(expected, ids, -1)[known]), atol=1e-4
    )
    assert (np.abs(seen / rounds - expected) < 5 * np.sqrt(expected / rounds) + 1e-3).all()


@pytest.mark.parametrize("layout", thorough_but(["batch", "groups"], "groups"))
def test_a_head_with_shared_draws_and_draws_for_each_example(layout):
    head = SampledSoftmax(N, in_part(layout), 9)
    head.build((None, D))
    hidden, labels = batch(N)
    weight = np.r_[0.0, np.ones(len(labels) - 1)].astype("float32")
    losses = to_numpy(head(hidden, labels, sample_weight=weight, training=True))
    assert losses[0] == 0 and (losses[1:] > 0).all()
    exact = to_numpy(head(hidden, labels))[1:]
    many = [to_numpy(head(hidden, labels, training=True))[1:] for _ in range(20)]
    assert np.abs(np.mean(many, axis=0) - exact).max() < 1.0
    again = samplers.get(samplers.serialize(head.sampler))
    assert again.get_config() == head.sampler.get_config()
    rejects("num_sampled", SampledSoftmax(N, in_part(layout), 8).build, (None, D))


def test_numbers_that_do_not_fit():
    for bad in ((3,), (0, 2), 5, (1, 2, 3)):
        rejects("num_sampled", in_part, "batch", bad)


def test_the_batch_and_its_groups_can_share_draws_of_a_component_each():
    """Draws of one set and of two; every draw is corrected with the sum of both counts."""
    first = {"class_name": "log_uniform", "config": {"share_draws": True}}
    second = {"class_name": "uniform", "config": {"share_draws": 2}}
    sampler, table = make_mixed(first, second, seed=3), make_table(N)
    hidden = batch(N)[0]
    sampler.build((N, D), 10, table)
    one, two = sampler.sample(table, hidden, 10)
    assert one.ids.shape == (1, 5) and two.ids.shape == (2, 5)
    expected = 5 * reference.log_uniform_distribution(N) + 5 / N
    for part in (one, two):
        ids = to_numpy(of_every_example(part.ids, hidden))
        count = to_numpy(part.log_expected_count)
        np.testing.assert_allclose(count, np.log(expected[ids]), rtol=1e-4)


def shared(name, **config):
    return {"class_name": name, "config": {"share_draws": True, **config}}


BOOK = shared("codebook", num_codewords=3)
WITH_BOOK = {"class_name": "mixed", "config": {"first": BOOK, "second": shared("uniform")}}
TOP = {"num_top": 2, "share_draws": True, "tail": shared("uniform"), "counts": [1] * N}
FOLLOWING = {
    "mixed": WITH_BOOK,
    "nested": {"class_name": "mixed", "config": {"first": WITH_BOOK, "second": shared("uniform")}},
    "top_and_tail": {"class_name": "top_and_tail", "config": TOP},
    "kernel": {"class_name": "mixed", "config": {"first": BOOK, "second": shared("quadratic")}},
}


@pytest.mark.parametrize("case", FOLLOWING)
def test_one_codebook_decides_which_rows_it_is_told_of(monkeypatch, case):
    """Its own choice within composites, nested ones as well; all rows beside a kernel."""
    monkeypatch.setattr(follow, "FOLLOWED", 4)
    head = SampledSoftmax(N, FOLLOWING[case], 4, row_optimizer=RowAdagrad(0.1))
    head.build((None, D))
    assert head.table.trackers == [head.sampler]
    found, further = head.sampler.tracked_ids(keras.ops.arange(10, dtype="int32"))
    if case == "kernel":
        assert found.shape[0] == 10 and not further
    else:
        assert found.shape[0] <= 4 and "weight" in further
    rows = head.table.rows(found)
    inside = ("first", "second", "top", "tail")
    parts = [getattr(head.sampler, name) for name in inside if hasattr(head.sampler, name)]
    told = [part for part in parts if part.tracks_rows]
    assert len(told) == (2 if case == "kernel" else 1)
    before = [[to_numpy(v) + 0 for v in part.weights] for part in told]
    head.sampler.rows_changed(head.table, found, rows, rows + 1.0, **further)
    for part, arrays in zip(told, before, strict=True):
        after = map(to_numpy, part.weights)
        assert any(not np.array_equal(a, b) for a, b in zip(arrays, after, strict=True))


def test_a_mixture_of_static_samplers_is_told_of_no_rows():
    config = {"first": "uniform", "second": "log_uniform"}
    config = {"class_name": "mixed", "config": config}
    head = SampledSoftmax(N, config, 4, row_optimizer=RowAdagrad(0.1))
    head.build((None, D))
    assert head.table.trackers == []

"""The mixture of two samplers: draws, their distribution, the labels, training, saving."""

import keras
import numpy as np
import pytest
import reference
from conformance import assert_drawn_as_often_as_said
from conftest import compiled, rejects, thorough_but, to_numpy
from sampler_cases import B, D, batch, class_counts, distribution, make_table
from scipy import stats
from small import make_sampler, spec, training, values

from softbench import RowAdagrad, SampledSoftmax, samplers
from softbench.groups import of_every_example
from softbench.samplers.codebook import follow

SIGNIFICANCE = 1e-4
N = 33


def unigram(**config):
    return spec("unigram", counts=class_counts(N).tolist(), power=0.75, **config)


def shared(name, **config):
    return spec(name, share_draws=True, **config)


def test_distinct_draws_as_first():
    """E[count] = pi + m2 q2, with pi for m1 draws; counted over 400 batches of draws."""
    size, hidden, table = 16, batch(N)[0], make_table(N)
    sampler = make_sampler("mixed", first=unigram(unique=True), second=shared("exp"), seed=3)
    sampler.build((N, D), size, table)
    weights = reference.unigram_distribution(class_counts(N), 0.75)
    expected = reference.inclusion_probabilities(weights, 8)
    expected = expected + 8 * distribution(sampler.second, table, hidden)[0]
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


def test_two_draws_differ_and_the_parts_are_not_copies():
    """Two parts of one kind must not draw the same ids."""
    sampler = make_sampler("mixed", first="uniform", second="uniform", seed=5)
    sampler.build((1000, D), 20)
    hidden = np.zeros((B, D), "float32")
    ids = [to_numpy(sampler.sample(None, hidden, 20).ids) for _ in range(2)]
    assert not np.array_equal(*ids)
    assert not np.array_equal(ids[0][:, :10], ids[0][:, 10:])


TOO_FEW = {"first": "uniform", "second": "exp"}


def test_numbers_that_do_not_fit():
    rejects("num_sampled", make_sampler("mixed", **TOO_FEW, weight=0.01).build, (N, D), 10)
    rejects("num_sampled", make_sampler("mixed", **TOO_FEW).build, (N, D))


def test_the_distribution_sums_to_one_where_a_batch_is_too_small_for_its_negatives():
    """One example gives `in_batch` one draw of the four that it is asked for."""
    sampler = make_sampler("mixed", first="uniform", second="in_batch", share_draws=True)
    table, hidden = make_table(5), batch(5)[0][:1]
    labels = np.array([2], "int32")
    sampler.build((5, D), 8, table)
    drawn = sampler.sample(table, hidden, 8, labels)
    q = np.exp(to_numpy(sampler.log_prob(table, hidden)))
    np.testing.assert_allclose(q.sum(-1), 1.0, rtol=1e-5)
    count = np.exp(to_numpy(drawn.log_expected_count)[0])
    np.testing.assert_allclose(count / q[0, to_numpy(drawn.ids)[0]], 5.0, rtol=1e-5)


BOOK = {"num_codewords": 4, "counts": class_counts(N).tolist(), "refresh_every": 10**6}
EACH = spec("exp")
IN_PART = {
    "batch": (shared("log_uniform"), EACH),
    "groups": (spec("log_uniform", share_draws=2), EACH),
    "second": (EACH, shared("log_uniform")),
    "codebooks": (spec("codebook", **BOOK, share_draws=2), EACH),
}


def in_part(layout, num_sampled=(6, 3)):
    """Shared draws of one sampler and draws per example of another, and the numbers of each."""
    first, second = IN_PART[layout]
    return make_sampler("mixed", first=first, second=second, num_sampled=num_sampled, seed=3)


@pytest.mark.parametrize("layout", thorough_but(IN_PART, "groups"))
def test_one_part_can_share_its_draws_while_the_other_follows_the_example(layout):
    """The numbers drawn are as expected, the label is in neither, and the partition is unbiased."""
    sampler, table = in_part(layout), make_table(N)
    hidden, labels = batch(N)
    sampler.build((N, D), 9, table)
    order = sampler.arrange(hidden)
    hidden, labels = (x if order is None else x[to_numpy(order)] for x in (hidden, labels))
    expected, _ = assert_drawn_as_often_as_said(sampler, table, hidden, 9, labels, 600)
    q = np.exp(to_numpy(sampler.log_prob(table, hidden, labels=labels)).astype(float))
    np.testing.assert_allclose(q, expected / expected.sum(-1, keepdims=True), rtol=1e-4)
    assert (expected[np.arange(len(labels)), labels] == 0).all()


@pytest.mark.parametrize("layout", thorough_but(["batch", "groups"], "groups"))
def test_a_head_with_shared_draws_and_draws_for_each_example(layout):
    head = SampledSoftmax(N, in_part(layout), 9)
    head.build((None, D))
    hidden, labels = batch(N)
    weight = np.r_[0.0, np.ones(len(labels) - 1)].astype("float32")
    train = training(head)
    losses = to_numpy(train(hidden, labels, weight))
    assert losses[0] == 0 and (losses[1:] > 0).all()
    exact = to_numpy(head(hidden, labels))[1:]
    many = [to_numpy(train(hidden, labels, weight))[1:] for _ in range(20)]
    assert np.abs(np.mean(many, axis=0) - exact).max() < 1.0
    again = samplers.get(samplers.serialize(head.sampler))
    assert again.get_config() == head.sampler.get_config()
    rejects("num_sampled", SampledSoftmax(N, in_part(layout), 8).build, (None, D))


def test_the_batch_and_its_groups_can_share_draws_of_a_component_each():
    """Draws of one set and of two; every draw is corrected with the sum of both counts."""
    second = spec("uniform", share_draws=2)
    sampler = make_sampler("mixed", first=shared("log_uniform"), second=second, seed=3)
    table = make_table(N)
    hidden = batch(N)[0]
    sampler.build((N, D), 10, table)
    one, two = sampler.sample(table, hidden, 10)
    assert one.ids.shape == (1, 5) and two.ids.shape == (2, 5)
    expected = 5 * reference.log_uniform_distribution(N) + 5 / N
    for part in (one, two):
        ids = to_numpy(of_every_example(part.ids, hidden))
        count = to_numpy(part.log_expected_count)
        np.testing.assert_allclose(count, np.log(expected[ids]), rtol=1e-4)


SMALL = shared("codebook", num_codewords=3)
WITH_BOOK = spec("mixed", first=SMALL, second=shared("uniform"))
FOLLOWING = {
    "mixed": WITH_BOOK,
    "nested": spec("mixed", first=WITH_BOOK, second=shared("uniform")),
    "top_and_tail": shared("top_and_tail", num_top=2, tail=shared("uniform"), counts=[1] * N),
    "kernel": spec("mixed", first=SMALL, second=shared("quadratic")),
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
    before = [values(part.weights) for part in told]
    head.sampler.rows_changed(head.table, found, rows, rows + 1.0, **further)
    for part, arrays in zip(told, before, strict=True):
        after = map(to_numpy, part.weights)
        assert any(not np.array_equal(a, b) for a, b in zip(arrays, after, strict=True))


def test_a_mixture_of_static_samplers_is_told_of_no_rows():
    sampler = spec("mixed", first="uniform", second="log_uniform")
    head = SampledSoftmax(N, sampler, 4, row_optimizer=RowAdagrad(0.1))
    head.build((None, D))
    assert head.table.trackers == []

"""Draws for groups of examples: static samplers whose `share_draws` is a number of groups."""

import numpy as np
import pytest
import reference
from conformance import assert_drawn_as_often_as_said
from conftest import assert_drawn_from, compiled, to_numpy
from small import built_sampler, labels_below, make_sampler, make_table, training, vectors

from softbench import NoiseContrastive, RowAdagrad, SampledSoftmax, diagnostics

N, D, B, G, M = 23, 4, 7, 3, 6  # groups of 3, 3 and 1
GROUP = np.array([0, 0, 0, 1, 1, 1, 2])
COUNTS = np.arange(1, N + 1)[::-1].tolist()
CONFIGS = {
    "unigram": ("unigram", {"counts": COUNTS, "power": 0.75}),
    "without replacement": ("unigram", {"counts": COUNTS, "unique": True}),
}
HIDDEN, LABELS = vectors(B, D, seed=5), labels_below(N, B, seed=5)
RNG = np.random.default_rng(5)


def sampler_of(name, **config):
    kind, own = CONFIGS[name]
    return make_sampler(kind, **{**own, "share_draws": G, "seed": 2, **config})


@pytest.mark.parametrize("name", CONFIGS)
def test_each_group_has_draws_of_its_own(name):
    table = make_table(N, D)
    sampler = sampler_of(name)
    sampler.build((N, D), M, table)
    expected, _ = assert_drawn_as_often_as_said(sampler, table, HIDDEN, M)
    log_p = to_numpy(sampler.log_prob(table, HIDDEN[:1]))
    size = 1 if sampler.unique else M
    np.testing.assert_allclose(expected[:1], size * np.exp(log_p.astype(float)), rtol=1e-4)
    ids = to_numpy(sampler.sample(table, HIDDEN, M).ids)
    assert ids.shape == (G, M) and not np.array_equal(ids[0], ids[1])
    assert not sampler.unique or all(len(set(row)) == M for row in ids)


def losses_of(head, draws):
    """In NumPy, from the draws (G, M) of each group."""
    kernel, bias = to_numpy(head.table.kernel), to_numpy(head.table.bias)
    options = {"normalize": head.table.normalize, "temperature": head.table.temperature}
    scores = reference.scores(HIDDEN, kernel, bias, **options)
    ids = to_numpy(draws.ids)[GROUP]
    count = to_numpy(draws.log_expected_count).astype(float)[GROUP]
    sampled = np.take_along_axis(scores, ids, axis=-1)
    sampled = np.where(ids == LABELS[:, None], -np.inf, sampled)
    return reference.sampled_softmax(scores[np.arange(B), LABELS], sampled, None, np.exp(count))


@pytest.mark.parametrize(("name", "normalize"), [(name, name == "unigram") for name in CONFIGS])
def test_an_example_is_compared_with_the_draws_of_its_group(name, normalize):
    head = SampledSoftmax(N, sampler_of(name), M, normalize=normalize, temperature=0.5)
    head.build((None, D))
    head.table.bias.assign(RNG.normal(size=N))
    seed = to_numpy(head.sampler.seed_generator.state)
    found = to_numpy(head(HIDDEN, LABELS, training=True))
    head.sampler.seed_generator.state.assign(seed)
    draws = head.sampler.sample(head.table, HIDDEN, M)
    np.testing.assert_allclose(found, losses_of(head, draws), rtol=1e-4)


CODEBOOK = {"num_codewords": 5, "counts": COUNTS, "share_draws": 2, "seed": 4}


def test_a_codebook_draws_for_each_group_from_its_own_mixture():
    """Chi-square of the draws of both groups; labels; ids of groups and of examples."""
    own = make_table(N, D)
    sampler, single = (
        built_sampler("codebook", own, M, **{**CODEBOOK, **options})
        for options in ({}, {"share_draws": False})
    )
    asked = RNG.integers(0, N, (B, 3)).astype("int32")

    def log_probs(hidden, ids):
        every = sampler.propose(own, hidden).log_q_all()
        return every, single.log_prob(own, hidden), sampler.log_prob(own, hidden, ids)

    found = compiled(log_probs, sampler, single)(HIDDEN, asked)
    q, each, of_ids = (np.exp(np.float64(to_numpy(log_q))) for log_q in found)
    np.testing.assert_allclose(q.sum(-1), 1.0, rtol=1e-4)
    members = np.array([[0, 1, 2, 3], [4, 5, 6, 6]])  # the last example fills up the second group
    np.testing.assert_allclose(q, each[members].mean(1), rtol=1e-3)
    draw = compiled(lambda h, y: sampler.sample(own, h, M, y), sampler)
    found = [draw(HIDDEN, LABELS) for _ in range(400)]
    ids = np.stack([to_numpy(each.ids) for each in found])
    group = np.arange(B) // 4
    for place in range(2):
        assert_drawn_from(ids[:, place].reshape(-1), q[place])
    count = to_numpy(found[0].log_expected_count)
    np.testing.assert_allclose(count, np.log(M * np.take_along_axis(q, ids[0], -1)), rtol=1e-4)
    true = to_numpy(found[0].true_log_expected_count)
    np.testing.assert_allclose(true, np.log(M * q[group, LABELS]), rtol=1e-4)
    np.testing.assert_allclose(of_ids, np.take_along_axis(q[group], asked, -1), rtol=1e-3)


def test_a_head_puts_similar_examples_into_a_group():
    """So that a codebook's groups are nearer to the softmax than those of consecutive examples."""
    centres = RNG.normal(size=(2, D)) * 4
    hidden = (centres[np.arange(64) % 2] + RNG.normal(0, 0.1, (64, D))).astype("float32")
    sampler = make_sampler("codebook", **{**CODEBOOK, "num_codewords": N})
    head = SampledSoftmax(N, sampler, M, row_optimizer=RowAdagrad(0.1))
    head.build((None, D))
    head.table.kernel.assign(RNG.normal(size=(N, D)))
    head.sampler.refresh(head.table)
    both = diagnostics.proposal_quality(head, hidden).kl
    head.sampler.arrange = lambda hidden: None
    assert diagnostics.proposal_quality(head, hidden).kl > 2 * both + 0.1
    del head.sampler.arrange
    assert np.all(np.isfinite(to_numpy(training(head)(HIDDEN, LABELS))))


def test_more_groups_than_examples():
    sampler = sampler_of("unigram", share_draws=B + 2)
    head = SampledSoftmax(N, sampler, M, row_optimizer=RowAdagrad(0.1))
    head.build((None, D))
    assert np.all(np.isfinite(to_numpy(head(HIDDEN, LABELS, training=True))))


def test_other_heads_and_padding():
    head = NoiseContrastive(
        N, sampler_of("unigram"), M, regularization=0.1, regularization_samples=4
    )
    head.build((None, D))
    weight = np.array([1, 0, 1, 1, 0, 1, 0], "float32")
    hidden = np.where(weight[:, None] == 0, np.nan, HIDDEN).astype("float32")
    labels = np.where(weight == 0, -1, LABELS)
    losses = to_numpy(training(head)(hidden, labels, weight))
    assert np.all(losses[weight == 0] == 0) and np.all(losses[weight == 1] > 0)


def test_one_group_is_the_batch():
    sampler = sampler_of("unigram", share_draws=1)
    assert sampler.share_draws is True and sampler.rows == 1
    assert sampler.sample(make_table(N, D), HIDDEN, M).ids.shape == (1, M)


def test_the_quality_of_a_proposal_does_not_depend_on_groups():
    heads = [SampledSoftmax(N, sampler_of("unigram", share_draws=g), M) for g in (True, G)]
    for head in heads:
        head.build((None, D))
        head.table.kernel.assign(np.ones((N, D)))
    one, grouped = (diagnostics.proposal_quality(head, HIDDEN) for head in heads)
    np.testing.assert_allclose(one, grouped, rtol=1e-6)

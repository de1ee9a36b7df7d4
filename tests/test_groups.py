"""Draws for groups of examples: static samplers whose `share_draws` is a number of groups."""

import keras
import numpy as np
import pytest
import reference
from conftest import (
    assert_drawn_from,
    compiled,
    head_gradients,
    rejects,
    to_numpy,
)

from softbench import (
    ClassTable,
    NoiseContrastive,
    RowAdagrad,
    RowSGD,
    SampledSoftmax,
    diagnostics,
    samplers,
)

N, D, B, G, M = 23, 4, 7, 3, 6  # groups of 3, 3 and 1
GROUP = np.array([0, 0, 0, 1, 1, 1, 2])
COUNTS = np.arange(1, N + 1)[::-1].tolist()
CONFIGS = {
    "uniform": ("uniform", {}),
    "unigram": ("unigram", {"counts": COUNTS, "power": 0.75}),
    "without replacement": ("unigram", {"counts": COUNTS, "unique": True}),
}
MIXED = {
    "class_name": "mixed",
    "config": {"first": "uniform", "second": "log_uniform", "share_draws": G},
}
RNG = np.random.default_rng(5)
HIDDEN = RNG.normal(size=(B, D)).astype("float32")
LABELS = RNG.integers(0, N, B).astype("int32")


def sampler_of(name, **config):
    kind, own = CONFIGS[name]
    return samplers.get(
        {"class_name": kind, "config": {**own, "share_draws": G, "seed": 2, **config}}
    )


def table(**options):
    found = ClassTable(N, **options)
    found.build((None, D))
    return found


@pytest.mark.parametrize("name", CONFIGS)
def test_each_group_has_draws_of_its_own(name):
    sampler, own = sampler_of(name), table()
    draw = compiled(lambda h: sampler.sample(own, h, M)[:2], sampler)
    sampler.build((N, D), M, own)
    found = [[to_numpy(x) for x in draw(HIDDEN)] for _ in range(300)]
    ids = np.stack([each[0] for each in found])  # (300, G, M)
    assert ids.shape[1:] == (G, M) and not np.array_equal(ids[:, 0], ids[:, 1])
    log_p = np.float64(to_numpy(sampler.log_prob(own, HIDDEN[:1]))[0])
    expected = log_p if sampler.unique else log_p + np.log(M)
    np.testing.assert_allclose(found[0][1], expected[ids[0]], rtol=1e-5)
    for group in range(G):
        if sampler.unique:
            assert all(len(set(row)) == M for row in ids[:, group])
            rate = np.bincount(ids[:, group].reshape(-1), minlength=N) / 300
            assert np.abs(rate - np.exp(log_p)).max() < 5 * np.sqrt(0.25 / 300)
        else:
            assert_drawn_from(ids[:, group].reshape(-1), np.exp(log_p))


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


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("name", CONFIGS)
def test_an_example_is_compared_with_the_draws_of_its_group(name, normalize):
    head = SampledSoftmax(N, sampler_of(name), M, normalize=normalize, temperature=0.5)
    head.build((None, D))
    head.table.bias.assign(RNG.normal(size=N))
    seed = to_numpy(head.sampler.seed_generator.state)
    found = to_numpy(head(HIDDEN, LABELS, training=True))
    head.sampler.seed_generator.state.assign(seed)
    draws = head.sampler.sample(head.table, HIDDEN, M)
    np.testing.assert_allclose(found, losses_of(head, draws), rtol=1e-4)


@pytest.mark.parametrize("sampler", [*CONFIGS, "mixed"])
def test_a_row_optimizer_moves_the_rows_as_a_dense_one_does(sampler):
    after = []
    for row_optimizer in (None, RowSGD(0.3)):
        keras.utils.set_random_seed(3)
        own = samplers.get(MIXED, seed=4) if sampler == "mixed" else sampler_of(sampler)
        head = SampledSoftmax(N, own, M, row_optimizer=row_optimizer)
        hidden, labels = keras.Input((D,)), keras.Input((), dtype="int32")
        model = keras.Model([hidden, labels], head(hidden, labels))
        model.compile(keras.optimizers.SGD(0.3))
        for _ in range(2):
            model.train_on_batch([HIDDEN, LABELS])
        after.append(to_numpy(head.table.kernel))
    np.testing.assert_allclose(after[1], after[0], rtol=1e-4, atol=1e-6)


def test_an_example_moves_its_own_loss_alone_as_its_gradient_says():
    head = SampledSoftmax(N, sampler_of("unigram"), M)
    head.build((None, D))
    seed = to_numpy(head.sampler.seed_generator.state)
    gradient = head_gradients(head, HIDDEN, LABELS)[1][0]
    assert gradient.shape == HIDDEN.shape
    step, losses = 1e-2, []
    for sign in (1, -1):
        moved = HIDDEN.copy()
        moved[4, 1] += sign * step
        head.sampler.seed_generator.state.assign(seed)
        losses.append(to_numpy(head(moved, LABELS, training=True)).astype(float))
    change = losses[0] - losses[1]
    np.testing.assert_array_equal(np.flatnonzero(change), [4])
    np.testing.assert_allclose(gradient[4, 1], change.mean() / (2 * step), rtol=1e-2)


CODEBOOK = {"num_codewords": 5, "counts": COUNTS, "share_draws": 2, "seed": 4}


@pytest.mark.parametrize("quantizer", ["residual", "single"])
def test_a_codebook_draws_for_each_group_from_its_own_mixture(quantizer):
    """Chi-square of the draws of both groups; labels; ids of groups and of examples."""
    config = {**CODEBOOK, "quantizer": quantizer}
    sampler, own = samplers.get({"class_name": "codebook", "config": config}), table()
    own.kernel.assign(RNG.normal(size=(N, D)))
    sampler.build((N, D), M, own)
    single = samplers.get({"class_name": "codebook", "config": {**config, "share_draws": False}})
    single.build((N, D), M, own)
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
    config = {"class_name": "codebook", "config": {**CODEBOOK, "num_codewords": N}}
    head = SampledSoftmax(N, config, M, row_optimizer=RowAdagrad(0.1))
    head.build((None, D))
    head.table.kernel.assign(RNG.normal(size=(N, D)))
    head.sampler.refresh(head.table)
    both = diagnostics.proposal_quality(head, hidden).kl
    head.sampler.arrange = lambda hidden: None
    assert diagnostics.proposal_quality(head, hidden).kl > 2 * both + 0.1
    del head.sampler.arrange
    train = compiled(lambda h, y: head(h, y, training=True), head)
    assert np.all(np.isfinite(to_numpy(train(HIDDEN, LABELS))))


@pytest.mark.parametrize("name", CONFIGS)
def test_more_groups_than_examples(name):
    head = SampledSoftmax(N, sampler_of(name, share_draws=B + 2), M, row_optimizer=RowAdagrad(0.1))
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
    train = compiled(lambda h, y, w: head(h, y, sample_weight=w, training=True), head)
    losses = to_numpy(train(hidden, labels, weight))
    assert np.all(losses[weight == 0] == 0) and np.all(losses[weight == 1] > 0)


def test_save_and_load(tmp_path):
    head = SampledSoftmax(N, sampler_of("unigram"), M)
    hidden, labels = keras.Input((D,)), keras.Input((), dtype="int32")
    model = keras.Model([hidden, labels], head(hidden, labels))
    model.compile("sgd")
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    loaded = next(layer for layer in again.layers if isinstance(layer, SampledSoftmax))
    assert loaded.sampler.rows == G
    batch = [HIDDEN, LABELS]
    np.testing.assert_allclose(again.train_on_batch(batch), model.train_on_batch(batch), rtol=1e-6)


def test_one_group_is_the_batch():
    sampler = sampler_of("unigram", share_draws=1)
    assert sampler.share_draws is True and sampler.rows == 1
    assert sampler.sample(table(), HIDDEN, M).ids.shape == (1, M)


def test_what_cannot_share_by_groups_says_so():
    for name in ("exp", "rff", "quadratic"):
        rejects("share_draws", samplers.get, {"class_name": name, "config": {"share_draws": 4}})
    rejects("share_draws", samplers.get, {"class_name": "in_batch", "config": {"share_draws": 4}})
    for own in ({"share_draws": 6}, {"share_draws": 4, "within_cell": "exact"}):
        rejects("share_draws", samplers.get, {"class_name": "codebook", "config": own})
    for bad in (0, -2, 1.5, "16"):
        rejects(
            "share_draws", samplers.get, {"class_name": "uniform", "config": {"share_draws": bad}}
        )
    mixed = {"first": "uniform", "second": "exp", "share_draws": 4}
    rejects("share_draws", samplers.get, {"class_name": "mixed", "config": mixed})


def test_the_quality_of_a_proposal_does_not_depend_on_groups():
    heads = [SampledSoftmax(N, sampler_of("unigram", share_draws=g), M) for g in (True, G)]
    for head in heads:
        head.build((None, D))
        head.table.kernel.assign(np.ones((N, D)))
    one, grouped = (diagnostics.proposal_quality(head, HIDDEN) for head in heads)
    np.testing.assert_allclose(one, grouped, rtol=1e-6)

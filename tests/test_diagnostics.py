"""Proposal quality and mutual information against NumPy float64."""

import numpy as np
import pytest
import reference
from conftest import to_numpy
from small import assert_all_equal, spec, values

from softbench import FullSoftmax, NoiseContrastive, SampledSoftmax, diagnostics

N, D, B, M = 37, 5, 6, 8
COUNTS = np.random.default_rng(0).permutation(1000 // np.arange(1, N + 1)).astype(float)
PER_EXAMPLE = ["uniform", "log_uniform", "unigram", "exp", "quadratic", "rff", "positive"]


def make_head(name, **config):
    if name == "unigram":
        config = {"counts": COUNTS, "power": 0.75, **config}
    if name in ("rff", "positive"):
        config = {"num_features": 64, "block_size": 4, **config}
    sampler = spec(name, **config)
    head = SampledSoftmax(N, sampler=sampler, num_sampled=M, temperature=0.5, seed=3)
    head.build((None, D))
    rng = np.random.default_rng(1)
    head.table.kernel.assign(rng.normal(0, 1, (N, D)))
    head.table.bias.assign(rng.normal(0, 0.5, N))
    return head


def hidden_batch():
    return np.random.default_rng(2).normal(0, 0.8, (B, D)).astype("float32")


def model(head, hidden):
    kernel, bias = to_numpy(head.table.kernel), to_numpy(head.table.bias)
    return reference.softmax(reference.scores(hidden, kernel, bias, temperature=0.5))


def state(head):
    return values(head.variables)


def assert_quality(found, p, q):
    """Both means by their definitions, with q normalised."""
    q = np.broadcast_to(q / q.sum(-1, keepdims=True), p.shape)
    kl = np.where(p > 0, p * np.log(p / q), 0.0).sum(-1).mean()
    ess = (1 / (p**2 / q).sum(-1)).mean()
    np.testing.assert_allclose([found.kl, found.ess], [kl, ess], rtol=1e-4, atol=1e-5)
    assert 0 <= found.ess <= 1 + 1e-6


@pytest.mark.parametrize("name", PER_EXAMPLE)
def test_per_example_proposals(name):
    head, hidden = make_head(name), hidden_batch()
    before = state(head)
    found = diagnostics.proposal_quality(head, hidden)
    assert_all_equal(before, state(head))
    q = np.exp(np.float64(to_numpy(head.sampler.log_prob(head.table, hidden))))
    assert_quality(found, model(head, hidden), q)


def test_known_distributions():
    """q from its definition: uniform, the softmax itself, and its mixture over the batch."""
    hidden = hidden_batch()
    head = make_head("uniform")
    p = model(head, hidden)
    assert_quality(diagnostics.proposal_quality(head, hidden), p, np.full(N, 1 / N))
    exact = diagnostics.proposal_quality(make_head("exp"), hidden)
    np.testing.assert_allclose(exact, [0, 1], atol=1e-5)
    shared = diagnostics.proposal_quality(make_head("exp", share_draws=True), hidden)
    assert_quality(shared, p, p.mean(0))


def test_inclusion_probabilities_are_normalised():
    head, hidden = make_head("unigram", unique=True), hidden_batch()
    weights = reference.unigram_distribution(COUNTS, 0.75)
    q = reference.inclusion_probabilities(weights, M)
    assert q.sum() == pytest.approx(M)
    assert_quality(diagnostics.proposal_quality(head, hidden), model(head, hidden), q)


@pytest.mark.parametrize("counts", [COUNTS, None])
def test_in_batch(counts):
    head, hidden = make_head("in_batch", counts=counts), hidden_batch()
    q = COUNTS if counts is not None else np.ones(N)
    assert_quality(diagnostics.proposal_quality(head, hidden), model(head, hidden), q)


@pytest.mark.parametrize("within_block", ["features", "exact"])
@pytest.mark.parametrize("name", ["exp", "positive"])
def test_chunks_change_nothing(name, within_block, monkeypatch):
    from softbench.samplers import exp
    from softbench.samplers.kernel import distribution as kernel_distribution

    options = {"within_block": within_block} if name != "exp" else {}
    for share_draws in (False, True):
        head, hidden = make_head(name, share_draws=share_draws, **options), hidden_batch()
        whole = diagnostics.proposal_quality(head, hidden.reshape(2, 3, D))
        with monkeypatch.context() as patch:
            patch.setattr(diagnostics, "LARGEST_SCORES", 4 * N)
            patch.setattr(diagnostics, "LARGEST_DOUBLES", 3 * N)
            patch.setattr(exp, "LARGEST_SCORES", 2 * N)
            patch.setattr(kernel_distribution, "CHUNK", 4 * 64 * 2)
            parts = diagnostics.proposal_quality(head, hidden)
        np.testing.assert_allclose(parts, whole, rtol=1e-5, atol=1e-6)


def test_a_proposal_that_leaves_classes_out():
    counts = COUNTS.copy()
    counts[3] = 0
    found = diagnostics.proposal_quality(make_head("unigram", counts=counts), hidden_batch())
    assert found.kl == np.inf and found.ess == 0


def test_sampler_inputs_and_other_heads():
    hidden, other = hidden_batch(), hidden_batch()[::-1].copy()
    head = make_head("exp")
    found = diagnostics.proposal_quality(head, hidden, sampler_inputs=other)
    assert_quality(found, model(head, hidden), model(head, other))
    noise = NoiseContrastive(N, sampler="log_uniform", num_sampled=M)
    noise.build((None, D))
    kernel, bias = to_numpy(noise.table.kernel), to_numpy(noise.table.bias)
    p = reference.softmax(reference.scores(hidden, kernel, bias))
    weights = reference.log_uniform_distribution(N)
    assert_quality(diagnostics.proposal_quality(noise, hidden), p, weights)


def test_a_head_without_a_sampler_is_refused():
    head = FullSoftmax(N)
    head.build((None, D))
    with pytest.raises(ValueError, match="`head` must have a sampler"):
        diagnostics.proposal_quality(head, hidden_batch())


def test_mutual_information():
    """Two labels at 1:3 (0.5623 nats) and a model that knows them to 0.2 nats."""
    found = diagnostics.mutual_information(np.array([25, 0, 75]), 0.2)
    assert found == pytest.approx(0.25 * np.log(4) + 0.75 * np.log(4 / 3) - 0.2)


def estimates(head, hidden, repetitions):
    """Z_hat / Z (repetitions, B), and the estimates of the rows' gradient (repetitions, n, d)."""
    p = model(head, hidden)
    rng, found, rows = np.random.default_rng(4), [], []
    log_q = np.float64(to_numpy(head.sampler.log_prob(head.table, hidden)))
    q = np.exp(np.broadcast_to(log_q, p.shape))
    for _ in range(repetitions):
        if head.sampler.per_example:
            times = np.stack([rng.multinomial(M, own / own.sum()) for own in q])
        else:
            groups = head.sampler.rows
            own = rng.multinomial(M, q[0] / q[0].sum(), size=groups)
            times = np.repeat(own, -(-B // groups), axis=0)[:B]
        weighted = p * times / (M * q)
        found.append(weighted.sum(-1))
        rows.append(weighted.T @ hidden.astype(float))
    return np.array(found), np.array(rows)


@pytest.mark.parametrize("shared", [False, True, 4])
def test_relative_variances_are_those_of_the_estimates(shared):
    """Of 20,000 estimates; the variance of a variance is about 2 / 20,000 of its square."""
    head, hidden = make_head("unigram", share_draws=shared), hidden_batch()
    partition, rows = estimates(head, hidden, 20_000)
    found = diagnostics.relative_variance(head, hidden)
    np.testing.assert_allclose(found.values, partition.var(0), rtol=0.1)
    np.testing.assert_allclose(found.mean, found.values.mean())
    labels = np.array([0, 5, 5, 9, 1, 30])
    gradient = model(head, hidden).T @ hidden.astype(float)
    own = diagnostics.row_variance(head, hidden)
    expected = rows.var(0).sum(-1) / (gradient**2).sum(-1)
    np.testing.assert_allclose(own.values, expected, rtol=0.25)
    np.testing.assert_allclose(own.mean, expected.mean(), rtol=0.1)
    one_hot = np.eye(N)[labels].T @ hidden.astype(float)
    scale = (gradient**2).sum(-1) / ((gradient - one_hot) ** 2).sum(-1)
    with_labels = diagnostics.row_variance(head, hidden, labels)
    np.testing.assert_allclose(with_labels.values, own.values * scale, rtol=1e-6)


def test_a_perfect_proposal_has_no_variance():
    hidden = hidden_batch()
    found = diagnostics.relative_variance(make_head("exp"), hidden)
    np.testing.assert_allclose(found.values, 0.0, atol=1e-5)


def test_relative_variance_without_replacement():
    """Of equal probabilities it is that of simple random draws, but for n / (n - 1)."""
    head, hidden = make_head("uniform", unique=True), hidden_batch()
    p = model(head, hidden)
    exact = N**2 / M * (1 - M / N) * p.var(axis=-1, ddof=1)
    found = diagnostics.relative_variance(head, hidden)
    np.testing.assert_allclose(found.values, exact * (N - 1) / N, rtol=1e-4)
    certain = make_head("unigram", counts=[1e9] * (M - 1) + [1.0] * (N - M + 1), unique=True)
    scores = np.where(np.arange(N) < M - 1, np.arange(N), 0.0)
    certain.table.kernel.assign(np.zeros((N, D)))
    certain.table.bias.assign(scores)
    # What is certain does not vary, nor does one draw among equals.
    found = diagnostics.relative_variance(certain, hidden)
    np.testing.assert_allclose(found.values, 0.0, atol=1e-9)

"""The objectives against NumPy float64, and their gradients where draws are masked."""

import numpy as np
import pytest
import reference
from conftest import gradients, to_numpy
from keras import ops

from softbench import losses

B, M = 6, 9


@pytest.fixture(params=["per_example", "shared"])
def batch(request, rng):
    """True logit, sampled logits with two masked, and noise probabilities of both."""
    true, sampled = rng.normal(0, 3, B), rng.normal(0, 3, (B, M))
    sampled[0, 2] = sampled[4, 7] = -np.inf
    shape = (B, M) if request.param == "per_example" else (M,)
    return true, sampled, rng.uniform(0.001, 0.2, B), rng.uniform(0.001, 0.2, shape)


def f32(*arrays):
    return [ops.convert_to_tensor(np.asarray(a, np.float32)) for a in arrays]


def log_counts(noise):
    return np.log(M * noise)


def test_sampled_softmax_with_the_true_logit_as_it_is(batch):
    true, sampled, _, noise = batch
    t, s, c = f32(true, sampled, log_counts(noise))
    expected = reference.sampled_softmax(true, sampled, None, M * noise)
    result = to_numpy(losses.sampled_softmax(t, s, None, c))
    assert result.shape == (B,)
    np.testing.assert_allclose(result, expected, rtol=1e-5)


def test_sampled_softmax_with_the_true_logit_corrected(batch):
    true, sampled, true_noise, noise = batch
    expected = reference.sampled_softmax(true, sampled, M * true_noise, M * noise)
    result = losses.sampled_softmax(*f32(true, sampled, log_counts(true_noise), log_counts(noise)))
    np.testing.assert_allclose(to_numpy(result), expected, rtol=1e-5)


def test_nce_ranking(batch):
    true, sampled, true_noise, noise = batch
    expected = reference.nce_ranking(true, sampled, true_noise, noise)
    result = losses.nce_ranking(*f32(true, sampled, log_counts(true_noise), log_counts(noise)))
    np.testing.assert_allclose(to_numpy(result), expected, rtol=1e-5)


@pytest.mark.parametrize("gamma", [0.0, 1.7, "per example"])
def test_nce_binary(batch, gamma, rng):
    true, sampled, true_noise, noise = batch
    gamma = rng.normal(0, 2, B) if gamma == "per example" else gamma
    expected = reference.nce_binary(true, sampled, true_noise, noise, gamma)
    arguments = f32(true, sampled, log_counts(true_noise), log_counts(noise))
    result = losses.nce_binary(*arguments, log_partition=f32(gamma)[0])
    np.testing.assert_allclose(to_numpy(result), expected, rtol=1e-5)


def test_nce_binary_default_log_partition_is_zero(batch):
    true, sampled, true_noise, noise = batch
    arguments = f32(true, sampled, log_counts(true_noise), log_counts(noise))
    expected = reference.nce_binary(true, sampled, true_noise, noise, 0.0)
    np.testing.assert_allclose(to_numpy(losses.nce_binary(*arguments)), expected, rtol=1e-5)


def test_log_partition_penalty(batch):
    _, sampled, _, noise = batch
    result = losses.log_partition_penalty(*f32(sampled, log_counts(noise)))
    expected = reference.log_partition_penalty(sampled, noise)
    np.testing.assert_allclose(to_numpy(result), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("regularization", [0.0, 0.3])
def test_negative_sampling(batch, regularization):
    true, sampled, true_noise, noise = batch
    arguments = f32(true, sampled, log_counts(true_noise), log_counts(noise))
    result = losses.negative_sampling(*arguments, regularization)
    expected = reference.negative_sampling(true, sampled, true_noise, noise, regularization)
    np.testing.assert_allclose(to_numpy(result), expected, rtol=1e-5)


@pytest.mark.parametrize("num_sampled", [1, 5])
def test_negative_sampling_has_the_same_minimum_for_any_number_of_draws(num_sampled):
    """Eq. 11: at xi = log p_D - log p_n the expected gradient is 0, computed by hand for n = 3."""
    data, noise = np.array([0.7, 0.2, 0.1]), np.array([0.1, 0.3, 0.6])
    xi = np.log(data / noise)
    true_weight = reference.sigmoid(-xi)  # -d/dxi of softplus(-xi)
    np.testing.assert_allclose(data * true_weight, noise * reference.sigmoid(xi))
    ids = np.repeat(np.arange(3), num_sampled).reshape(3, num_sampled)
    counts = np.log(num_sampled * noise)
    t, s, tc, c = f32(xi, xi[ids], counts, counts[ids])
    to_true, to_sampled = gradients(lambda t, s: losses.negative_sampling(t, s, tc, c, 0.0), [t, s])
    # Row i of the batch has label i and draws class i alone, which noise does noise[i] of the time.
    total = data * to_true + noise * to_sampled.sum(-1)
    np.testing.assert_allclose(total, 0.0, atol=1e-6)


def test_negative_sampling_leaves_classes_without_noise_out_of_the_regulariser():
    arguments = f32([0.3], [[0.1, 2.0]], [-np.inf], [np.log(0.4), -np.inf])
    expected = reference.negative_sampling(
        np.array([0.3]), np.array([[0.1, 2.0]]), np.array([0.0]), np.array([0.2, 0.0]), 0.5
    )
    result = to_numpy(losses.negative_sampling(*arguments, 0.5))
    np.testing.assert_allclose(result, expected, rtol=1e-5)


def test_one_vs_each(batch):
    true, sampled, _, noise = batch
    t, s, c = f32(true, sampled, log_counts(noise))
    expected = reference.one_vs_each(true, sampled, M * noise)
    np.testing.assert_allclose(to_numpy(losses.one_vs_each(t, s, None, c)), expected, rtol=1e-5)


def test_one_vs_each_of_a_draw_that_its_counts_call_impossible():
    """e^658 is not a number of float32, nor is the square of its gradient: the weight is e^40."""
    t, s, c = f32(np.zeros(1), np.array([[0.0, 1.0]]), np.array([[-658.0, 0.0]]))
    expected = np.exp(40) * np.log(2) + np.log1p(np.e)
    found = to_numpy(losses.one_vs_each(t, s, None, c))
    np.testing.assert_allclose(found, [expected], rtol=1e-5)


def test_augment_reduce(batch, rng):
    true, sampled, _, noise = batch
    eta = np.exp(rng.normal(2, 3, B))
    t, s, c, log_eta = f32(true, sampled, log_counts(noise), np.log(eta))
    expected = reference.augment_reduce(true, sampled, M * noise, eta)
    result = losses.augment_reduce(t, s, None, c, log_eta)
    np.testing.assert_allclose(to_numpy(result), expected, rtol=1e-4)


@pytest.mark.parametrize("margin", [1.0, 0.25])
def test_hinge(batch, margin):
    true, sampled, _, noise = batch
    true[5] = 20.0
    t, s, c = f32(true, sampled, log_counts(noise))
    expected = reference.hinge(true, sampled, margin)
    result = to_numpy(losses.hinge(t, s, None, c, margin))
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
    assert np.any(expected == 0) and np.any(expected > 0)


def every_other_class_once(rng, n=12):
    """Logits (B, n), labels, and the arguments of an objective that has seen all classes once."""
    logits, labels = rng.normal(0, 3, (B, n)), rng.integers(0, n, B)
    true = logits[np.arange(B), labels]
    sampled = np.where(np.arange(n) == labels[:, None], -np.inf, logits)
    return logits, labels, f32(true, sampled, np.zeros(B), np.zeros(n))


def test_bounds_of_the_softmax_loss_computed_by_brute_force(rng):
    """One-vs-each, and augment and reduce at any eta, lie above it; at the best eta, on it."""
    logits, labels, (t, s, _, c) = every_other_class_once(rng)
    nll = reference.negative_log_likelihood(logits, labels)
    ove = [
        sum(np.logaddexp(0, row[i] - row[y]) for i in range(len(row)) if i != y)
        for row, y in zip(logits, labels, strict=True)
    ]
    found = to_numpy(losses.one_vs_each(t, s, None, c))
    np.testing.assert_allclose(found, ove, rtol=1e-5)
    assert np.all(found > nll)
    for shift in (-2.0, -0.5, 0.5, 3.0):
        (log_eta,) = f32(nll + shift)
        bound = to_numpy(losses.augment_reduce(t, s, None, c, log_eta))
        np.testing.assert_allclose(bound - nll, shift - 1 + np.exp(-shift), rtol=1e-3)
        assert np.all(bound > nll)
    bound = losses.augment_reduce(t, s, None, c, f32(nll)[0])
    np.testing.assert_allclose(to_numpy(bound), nll, rtol=1e-5)


def test_augment_reduce_has_no_gradient_through_eta():
    t, s, c, log_eta = f32([0.3], [[0.1, 0.2]], [0.0, 0.0], [1.0])
    arrays = [log_eta, t]
    to_eta, to_true = gradients(
        lambda e, t: losses.augment_reduce(t, s, None, c, e) + 0.0 * e, arrays
    )
    assert to_eta[0] == 0 and to_true[0] != 0


def test_extreme_logits_do_not_overflow():
    true, sampled = np.array([200.0, -200.0]), np.array([[-200.0, 150.0], [200.0, 100.0]])
    counts = np.log(np.full(2, 1e-8))
    arguments = f32(true, sampled, np.log(np.full(2, 1e-8)), counts)
    ranking = [0.0, 400.0]
    np.testing.assert_allclose(to_numpy(losses.nce_ranking(*arguments)), ranking, rtol=1e-5)
    # softplus(-(s + 18.4)) + sum_j softplus(s_j + 18.4): only the large terms are left.
    binary = [150 + 18.420681, (200 - 18.420681) + (200 + 18.420681) + (100 + 18.420681)]
    np.testing.assert_allclose(to_numpy(losses.nce_binary(*arguments)), binary, rtol=1e-5)
    negative = [75.0, 200 + 150]
    result = losses.negative_sampling(*arguments)
    np.testing.assert_allclose(to_numpy(result), negative, rtol=1e-5)
    log_eta = f32([-32.0, 418.0])[0]  # near log(exp(150 - 200 + 18.4)), log(exp(200 + 200 + 18.4))
    t, s, _, c = arguments  # the first is its own best class: a loss of log eta - 1 + 1 / eta
    found = np.array([0.0, 418.420681])
    expected = [-33 + np.exp(32.0), 417 + np.exp(found[1] - 418)]
    result = to_numpy(losses.augment_reduce(t, s, None, c, log_eta))
    np.testing.assert_allclose(result, expected, rtol=1e-3)


OBJECTIVES = {
    "sampled_softmax": lambda t, s, tc, c: losses.sampled_softmax(t, s, None, c),
    "sampled_softmax corrected": losses.sampled_softmax,
    "nce_ranking": losses.nce_ranking,
    "nce_binary": losses.nce_binary,
    "nce_binary gamma": lambda t, s, tc, c: losses.nce_binary(t, s, tc, c, 0.7),
    "log_partition_penalty": lambda t, s, tc, c: losses.log_partition_penalty(s, c),
    "negative_sampling": losses.negative_sampling,
    "negative_sampling regularised": lambda *a: losses.negative_sampling(*a, 0.1),
    "gbce": lambda *a: losses.gbce(*a, 0.4),
    "one_vs_each": losses.one_vs_each,
    "augment_reduce": lambda *a: losses.augment_reduce(*a, 0.0 * a[0] + 1.5),
    "hinge": losses.hinge,
}


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("masked", ["one", "all", "cannot be drawn"])
def test_gradients_are_finite_and_zero_where_masked(batch, name, masked):
    if name == "log_partition_penalty" and masked == "all":
        pytest.skip("log 0 of no draws at all has no gradient")
    true, sampled, true_noise, noise = batch
    counts = log_counts(noise)
    if masked == "all":
        sampled[1] = -np.inf
    if masked == "cannot be drawn":
        counts[..., 3] = -np.inf
        sampled[0, 2] = sampled[4, 7] = 0.0
    t, s, tc, c = f32(true, sampled, log_counts(true_noise), counts)

    def objective(t, s):
        return OBJECTIVES[name](t, s, tc, c)

    values = to_numpy(objective(t, s))
    assert np.all(np.isfinite(values))
    if name == "log_partition_penalty":
        (to_sampled,) = gradients(lambda s: objective(t, s), [s])
        to_true = np.zeros(B)
    else:
        to_true, to_sampled = gradients(objective, [t, s])
    assert np.all(np.isfinite(to_true)) and np.all(np.isfinite(to_sampled))
    off = ~np.isfinite(sampled) | np.broadcast_to(~np.isfinite(counts), sampled.shape)
    assert np.all(to_sampled[off] == 0)
    if name == "hinge":  # only the best draw, and only where it is not beaten by the margin
        best = np.where(off, -np.inf, sampled).argmax(-1)
        expected = np.zeros_like(sampled)
        expected[np.arange(B), best] = values > 0
        np.testing.assert_array_equal(to_sampled, expected)
    else:
        assert np.all(to_sampled[~off] != 0)


@pytest.mark.parametrize("name", ["sampled_softmax corrected", "nce_ranking", "nce_binary"])
def test_a_true_class_that_noise_never_draws_costs_nothing(name):
    """q(y) -> 0 sends s - log(K q) to +inf: the noise cannot be the true class, the loss is 0."""
    t, s, tc, c = f32([0.3], [[0.1, -30.0]], [-np.inf], [-np.inf, 30.0])
    value = to_numpy(OBJECTIVES[name](t, s, tc, c))
    np.testing.assert_allclose(value, [0.0], atol=1e-6)

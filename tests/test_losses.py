"""The objectives against NumPy float64, and their gradients where draws are masked."""

import numpy as np
import pytest
import reference
from conftest import BACKEND, to_numpy
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


def test_extreme_logits_do_not_overflow():
    true, sampled = np.array([200.0, -200.0]), np.array([[-200.0, 150.0], [200.0, 100.0]])
    counts = np.log(np.full(2, 1e-8))
    arguments = f32(true, sampled, np.log(np.full(2, 1e-8)), counts)
    ranking = [0.0, 400.0]
    np.testing.assert_allclose(to_numpy(losses.nce_ranking(*arguments)), ranking, rtol=1e-5)
    # softplus(-(s + 18.4)) + sum_j softplus(s_j + 18.4): only the large terms are left.
    binary = [150 + 18.420681, (200 - 18.420681) + (200 + 18.420681) + (100 + 18.420681)]
    np.testing.assert_allclose(to_numpy(losses.nce_binary(*arguments)), binary, rtol=1e-5)


def gradients(function, arrays):
    if BACKEND == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            tape.watch(arrays)
            value = ops.sum(function(*arrays))
        return [to_numpy(g) for g in tape.gradient(value, arrays)]
    import jax

    every = tuple(range(len(arrays)))
    return [to_numpy(g) for g in jax.grad(lambda *a: ops.sum(function(*a)), every)(*arrays)]


OBJECTIVES = {
    "sampled_softmax": lambda t, s, tc, c: losses.sampled_softmax(t, s, None, c),
    "sampled_softmax corrected": losses.sampled_softmax,
    "nce_ranking": losses.nce_ranking,
    "nce_binary": losses.nce_binary,
    "nce_binary gamma": lambda t, s, tc, c: losses.nce_binary(t, s, tc, c, 0.7),
    "log_partition_penalty": lambda t, s, tc, c: losses.log_partition_penalty(s, c),
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
    assert np.all(to_sampled[off] == 0) and np.all(to_sampled[~off] != 0)


@pytest.mark.parametrize("name", ["sampled_softmax corrected", "nce_ranking", "nce_binary"])
def test_a_true_class_that_noise_never_draws_costs_nothing(name):
    """q(y) -> 0 sends s - log(K q) to +inf: the noise cannot be the true class, the loss is 0."""
    t, s, tc, c = f32([0.3], [[0.1, -30.0]], [-np.inf], [-np.inf, 30.0])
    value = to_numpy(OBJECTIVES[name](t, s, tc, c))
    np.testing.assert_allclose(value, [0.0], atol=1e-6)

"""The objectives against NumPy float64, and their gradients where draws are masked."""

import numpy as np
import pytest
import reference
from conftest import gradients, rejects, to_numpy
from keras import ops
from loss_cases import OBJECTIVES

from softbench import losses

B, M = 6, 9


@pytest.fixture(params=["per_example", "shared"])
def batch(request, rng):
    """True logit, sampled logits with two masked, and noise probabilities of both."""
    true, sampled = rng.normal(0, 3, B), rng.normal(0, 3, (B, M))
    sampled[0, 2] = sampled[4, 7] = -np.inf
    true[5] = 20.0  # the hinge loss of this one is 0
    shape = (B, M) if request.param == "per_example" else (M,)
    return true, sampled, rng.uniform(0.001, 0.2, B), rng.uniform(0.001, 0.2, shape)


def f32(*arrays):
    return [ops.convert_to_tensor(np.asarray(a, np.float32)) for a in arrays]


def log_counts(noise):
    return np.log(M * noise)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_values(batch, name):
    true, sampled, true_noise, noise = batch
    arguments = f32(true, sampled, log_counts(true_noise), log_counts(noise))
    found = to_numpy(OBJECTIVES[name].loss(*arguments))
    expected = OBJECTIVES[name].expected(true, sampled, true_noise, noise)
    assert found.shape == (B,)
    rtol = 1e-4 if name in ("augment_reduce", "log_partition_penalty") else 1e-5
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=1e-6)
    if name.startswith("hinge"):
        assert np.any(expected == 0) and np.any(expected > 0)


def test_parameters_of_each_example(batch, rng):
    true, sampled, true_noise, noise = batch
    t, s, tc, c = f32(true, sampled, log_counts(true_noise), log_counts(noise))
    gamma, eta = rng.normal(0, 2, B), np.exp(rng.normal(2, 3, B))
    found = losses.nce_binary(t, s, tc, c, log_partition=f32(gamma)[0])
    expected = reference.nce_binary(true, sampled, true_noise, noise, gamma)
    np.testing.assert_allclose(to_numpy(found), expected, rtol=1e-5)
    found = losses.augment_reduce(t, s, None, c, f32(np.log(eta))[0])
    expected = reference.augment_reduce(true, sampled, M * noise, eta)
    np.testing.assert_allclose(to_numpy(found), expected, rtol=1e-4)


def test_gbce_beta():
    """1 without calibration, m / (n - 1) with all of it, and never above 1."""
    assert losses.gbce_beta(41, 9, 0.0) == 1.0
    assert losses.gbce_beta(41, 9, 1.0) == pytest.approx(9 / 40)
    assert losses.gbce_beta(11, 25, 0.75) == 1.0  # more draws than classes


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


def test_one_vs_each_of_a_draw_that_its_counts_call_impossible():
    """e^658 is not a number of float32, nor is the square of its gradient: the weight is e^40."""
    t, s, c = f32(np.zeros(1), np.array([[0.0, 1.0]]), np.array([[-658.0, 0.0]]))
    expected = np.exp(40) * np.log(2) + np.log1p(np.e)
    found = to_numpy(losses.one_vs_each(t, s, None, c))
    np.testing.assert_allclose(found, [expected], rtol=1e-5)


def test_bounds_of_the_softmax_loss_computed_by_brute_force(rng):
    """One-vs-each, and augment and reduce at any eta, lie above it; at the best eta, on it."""
    n = 12
    logits, labels = rng.normal(0, 3, (B, n)), rng.integers(0, n, B)
    true = logits[np.arange(B), labels]
    sampled = np.where(np.arange(n) == labels[:, None], -np.inf, logits)
    t, s, c = f32(true, sampled, np.zeros(n))  # every other class once
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


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("masked", ["one", "all", "cannot be drawn"])
@pytest.mark.parametrize("batch", ["per_example"], indirect=True)
def test_gradients_are_finite_and_zero_where_masked(batch, name, masked):
    if masked == "all" and not OBJECTIVES[name].masks:
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
        return OBJECTIVES[name].loss(t, s, tc, c)

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
    if name.startswith("hinge"):  # the best draw alone, and only where the margin is not kept
        best = np.where(off, -np.inf, sampled).argmax(-1)
        expected = np.zeros_like(sampled)
        expected[np.arange(B), best] = values > 0
        np.testing.assert_array_equal(to_sampled, expected)
    else:
        assert np.all(to_sampled[~off] != 0)


# Losses of recommenders.


@pytest.fixture
def others(rng):
    """Logits of the labels (B,), and of all other classes once (B, n - 1)."""
    return rng.normal(0, 1, B).astype("float32"), rng.normal(0, 1, (B, M)).astype("float32")


def softmax_loss(true, sampled):
    return losses.sampled_softmax(true, sampled, None, np.zeros(M, "float32"))


def test_bsl_of_one_temperature_is_the_softmax_loss(others):
    found = losses.bsl(*others, None, np.zeros(M, "float32"), ratio=1.0)
    np.testing.assert_allclose(to_numpy(found), to_numpy(softmax_loss(*others)), rtol=1e-6)


def test_bsl_has_its_minimum_at_the_inverse_of_the_ratio():
    """p(y) = 1 / r: exp(o_y) = (n - 1) / (r - 1) where the others' logits are 0."""
    true, sampled = f32([np.log(M / 0.25)], np.zeros((1, M)))
    (to_true,) = gradients(
        lambda t: losses.bsl(t, sampled, None, f32(np.zeros(M))[0], 1.25), [true]
    )
    np.testing.assert_allclose(to_true, 0.0, atol=1e-6)


@pytest.mark.parametrize("activation", ["tanh", "atan", "relu"])
@pytest.mark.parametrize("tau", [0.05, 1.0, 30.0])
def test_psl_is_the_softmax_loss_to_first_order(activation, tau):
    """Equal logits: value log n, and the same gradients, whatever tau."""
    arrays = f32(np.full(1, 0.3), np.full((1, M), 0.3))

    def psl(true, sampled):
        return losses.psl(true, sampled, None, np.zeros(M, "float32"), tau, activation)

    np.testing.assert_allclose(to_numpy(psl(*arrays)), [np.log(M + 1)], rtol=1e-5)
    for found, expected in zip(
        gradients(psl, arrays), gradients(softmax_loss, arrays), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-4)


@pytest.mark.parametrize("activation", ["atan", "relu"])
def test_psl_takes_nothing_of_classes_far_below(activation):
    """sigma(d) is 0 from d = -1, or -tan 1, on: the loss is log 1, and nothing has a gradient."""
    arrays = f32([2.0, 1e4], [[0.0, -1.0], [-1e4, 0.0]])

    def psl(true, sampled):
        return losses.psl(true, sampled, None, np.zeros(2, "float32"), 1.0, activation)

    np.testing.assert_array_equal(to_numpy(psl(*arrays)), 0.0)
    for found in gradients(psl, arrays):
        np.testing.assert_array_equal(found, 0.0)


def test_sl_at_k_of_all_classes_is_the_softmax_loss(others):
    """K = n: beta is the lowest score, and the weight 1 up to the sigmoid's tail."""
    true, sampled = others
    counts = np.zeros(M, "float32")
    gap = true - np.minimum(true, sampled.min(-1))
    found = to_numpy(losses.sl_at_k(true, sampled, None, counts, M + 1, 1e-2))
    expected = to_numpy(softmax_loss(true, sampled)) * reference.sigmoid(gap / 1e-2)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert np.isclose(found, to_numpy(softmax_loss(true, sampled))).sum() >= B - 1


def test_the_kth_score_of_weighted_draws():
    """Scores 5, 4, 3, 2 of draws for 1, 6, 0.5 and 8 classes, and the label's 1: by counting."""
    true, sampled = f32([1.0], [[3.0, 5.0, 2.0, 4.0]])
    (counts,) = f32(-np.log([0.5, 1.0, 8.0, 6.0]))
    softmax = to_numpy(losses.sampled_softmax(true, sampled, None, counts))
    for k, threshold in ((1, 5), (2, 4), (6, 4), (8, 2), (15, 2), (16, 1), (1000, 1)):
        found = to_numpy(losses.sl_at_k(true, sampled, None, counts, k, 1.0)) / softmax
        np.testing.assert_allclose(found, reference.sigmoid(1.0 - threshold), rtol=1e-5)


def test_the_kth_score_where_each_draw_stands_for_k_classes():
    """The best draw, whatever the label's score; of one that cannot be drawn nothing counts."""
    masked = -np.inf
    rows = [[3.0, 5.0, 2.0, 9.0], [3.0, masked, 2.0, 9.0], [masked, masked, masked, masked]]
    true, sampled = f32([1.0, 6.0, 6.0], rows)
    (counts,) = f32([*-np.log([8.0, 6.0, 7.0]), -np.inf])
    softmax = to_numpy(losses.sampled_softmax(true, sampled, None, counts))
    for k, threshold in ((1, [5, 6, 6]), (2, [5, 3, 6]), (5, [5, 3, 6])):
        found = to_numpy(losses.sl_at_k(true, sampled, None, counts, k, 1.0))
        expected = reference.sigmoid(true - np.array(threshold)) * softmax
        np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("label", [1.0, -9.0])
def test_no_gradient_through_the_weight_of_sl_at_k(label):
    """The gradient is the softmax loss's, times the weight: a label far below is pushed up too."""
    arrays = f32([label], [[3.0, 2.0]])
    zeros = np.zeros(2, "float32")
    of_label, found = gradients(lambda t, s: losses.sl_at_k(t, s, None, zeros, 1, 2.0), arrays)
    p = np.exp([label, 3.0, 2.0]) / np.exp([label, 3.0, 2.0]).sum()
    weight = reference.sigmoid((label - 3.0) / 2.0)
    np.testing.assert_allclose([*of_label, *found[0]], weight * (p - [1, 0, 0]), rtol=1e-5)


@pytest.mark.parametrize(
    ("argument", "loss", "parameters"),
    [
        ("ratio", losses.bsl, {"ratio": 0.0}),
        ("tau", losses.psl, {"tau": -1.0}),
        ("activation", losses.psl, {"tau": 1.0, "activation": "exp"}),
        ("k", losses.sl_at_k, {"k": 0}),
        ("weight_temperature", losses.sl_at_k, {"weight_temperature": 0}),
    ],
)
def test_bad_parameters(others, argument, loss, parameters):
    rejects(argument, loss, *others, None, np.zeros(M, "float32"), **parameters)


@pytest.mark.parametrize("name", ["sampled_softmax corrected", "nce_ranking", "nce_binary"])
def test_a_true_class_that_noise_never_draws_costs_nothing(name):
    """q(y) -> 0 sends s - log(K q) to +inf: the noise cannot be the true class, the loss is 0."""
    t, s, tc, c = f32([0.3], [[0.1, -30.0]], [-np.inf], [-np.inf, 30.0])
    value = to_numpy(OBJECTIVES[name].loss(t, s, tc, c))
    np.testing.assert_allclose(value, [0.0], atol=1e-6)

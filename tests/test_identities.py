"""Identities of the papers, on both backends."""

import functools

import numpy as np
import pytest
import reference
from conftest import FixedSampler, gradient_function, head_gradients, on_table, to_numpy
from keras import ops
from scipy import optimize
from small import assert_all_close, labels_below, randomize, spec, training, vectors

from softbench import FullSoftmax, NoiseContrastive, SampledSoftmax, losses
from softbench.samplers import Samples

B, D, N = 8, 5, 13
OPTIONS = {
    "plain": {},
    "no bias": {"use_bias": False},
    "normalize": {"normalize": True, "temperature": 0.09},
    "everything": {"normalize": True, "absolute": True, "temperature": 0.3},
}


@pytest.fixture
def batch():
    return vectors(B, D), labels_below(N, B)


def with_weights(head, scale=1.0, width=D):
    """The head, built, with random kernel and bias that are the same in every test."""
    head.build((None, width))
    randomize(head.table, scale, seed=7)
    return head


def assert_same(left, right, tolerance=1e-5):
    assert_all_close([left[0], *left[1]], [right[0], *right[1]], tolerance, tolerance)


@functools.cache
def _full_gradients(options, hidden, labels):
    hidden, labels = np.array(hidden, "float32"), np.array(labels, "int32")
    head = with_weights(on_table(FullSoftmax, N, **OPTIONS[options]))
    return head_gradients(head, hidden, labels)


def full_gradients(options, hidden, labels):
    """Loss and gradients of the full softmax, computed once for the same arguments."""
    return _full_gradients(options, tuple(map(tuple, hidden.tolist())), tuple(labels.tolist()))


def reference_scores(head, hidden):
    table = head.table
    bias = None if table.bias is None else to_numpy(table.bias)
    options = (table.normalize, table.temperature, table.absolute)
    return reference.scores(hidden, to_numpy(table.kernel), bias, *options)


@pytest.mark.parametrize("options", OPTIONS)
def test_full_softmax_is_the_cross_entropy(batch, options):
    """Loss in NumPy; the gradient for h and b from p - onehot where the scores are plain."""
    hidden, labels = batch
    head = with_weights(on_table(FullSoftmax, N, **OPTIONS[options]))
    value, gradients = full_gradients(options, hidden, labels)
    scores = reference_scores(head, hidden)
    nll = reference.negative_log_likelihood(scores, labels)
    np.testing.assert_allclose(value, nll.mean(), rtol=1e-5)
    if options == "plain":
        error = (reference.softmax(scores) - np.eye(N)[labels]) / B
        expected = [error @ to_numpy(head.table.kernel), error.T @ hidden, error.sum(0)]
        assert_all_close(gradients, expected, 1e-5, 1e-6)


@pytest.mark.parametrize("options", OPTIONS)
def test_all_classes_sampled_once_is_the_full_softmax(batch, options):
    sampler = spec("uniform", unique=True)
    sampled = with_weights(on_table(SampledSoftmax, N, sampler, N, **OPTIONS[options]))
    assert_same(head_gradients(sampled, *batch), full_gradients(options, *batch))


@pytest.mark.parametrize("chunk", [None, 4])
def test_self_normalising_regulariser_of_the_full_softmax(batch, chunk):
    """Loss + alpha (log Z)^2, and its gradient for the bias: (p - y + 2 alpha log Z p) / B."""
    hidden, labels = batch
    alpha = 0.3
    head = with_weights(FullSoftmax(N, class_chunk=chunk, regularization=alpha))
    value, gradients = head_gradients(head, hidden, labels)
    scores = reference_scores(head, hidden)
    log_z, p = reference.logsumexp(scores), reference.softmax(scores)
    nll = reference.negative_log_likelihood(scores, labels)
    np.testing.assert_allclose(value, (nll + alpha * log_z**2).mean(), rtol=1e-5)
    to_bias = (p * (1 + 2 * alpha * log_z[:, None]) - np.eye(N)[labels]).mean(0)
    np.testing.assert_allclose(gradients[2], to_bias, rtol=1e-5, atol=1e-6)
    exact = to_numpy(head(hidden, labels))
    np.testing.assert_allclose(exact, nll, rtol=1e-5)


@pytest.mark.parametrize("num_sampled, options", [(7, "everything"), (1, "plain")])
def test_exp_gives_the_full_loss_for_any_draw(batch, options, num_sampled):
    """Stratos, appendix C: with q the softmax of the other classes no draw matters."""
    hidden, labels = batch
    head = with_weights(on_table(SampledSoftmax, N, "exp", num_sampled, seed=5, **OPTIONS[options]))
    expected = reference.negative_log_likelihood(reference_scores(head, hidden), labels)
    training_loss = training(head)
    for _ in range(2):
        loss = to_numpy(training_loss(hidden, labels))
        np.testing.assert_allclose(loss, expected, rtol=1e-5, atol=1e-5)


def gradient_statistics(sampler, num_sampled, hidden, labels, repeats=60):
    """Mean and standard error over independent draws of the gradient for h, kernel and bias."""
    copies = 500  # independent draws of each example in one call
    head = with_weights(SampledSoftmax(N, sampler, num_sampled, seed=0))
    many, many_labels = np.repeat(hidden, copies, 0), np.repeat(labels, copies, 0)

    def mean_loss(hidden, labels):
        return ops.mean(head(hidden, labels, training=True))

    function = gradient_function(mean_loss, head, [head.table.kernel, head.table.bias])
    rows = []
    for repeat in range(repeats):
        head.sampler.seed_generator.state.assign(np.array([repeat, 17], "uint32"))
        to_h, to_kernel, to_bias = function(many, many_labels)[1]
        to_h = to_h.reshape(len(hidden), copies, -1).sum(1)
        rows.append(np.concatenate([to_h.ravel(), to_kernel.ravel(), to_bias]))
    rows = np.array(rows, np.float64)
    assert np.mean(rows.std(0) > 1e-6) > 0.8, "the draws did not change"
    return rows.mean(0), rows.std(0, ddof=1) / np.sqrt(repeats)


def test_exp_gradient_is_unbiased_and_uniform_is_not(rng):
    """Rawat et al., theorem 1: every coordinate within 4 standard errors, or not.

    1e-6 is float32's: with exp the loss, and so the gradient for the label's logit, is the same for
    every draw (its standard error is 0).
    """
    hidden = rng.normal(0, 0.6, (2, D)).astype("float32")
    labels = np.array([1, 12], "int32")
    full = with_weights(FullSoftmax(N))
    p = reference.softmax(reference_scores(full, hidden))
    assert p.min() > 1e-4 and p.max() > 0.5, "not sharp, or too sharp for normal statistics"
    exact = np.concatenate([g.ravel() for g in head_gradients(full, hidden, labels)[1]])
    z = {}
    for sampler in ("exp", "uniform"):
        mean, error = gradient_statistics(sampler, 3, hidden, labels)
        z[sampler] = np.abs(mean - exact) / np.maximum(error, 1e-6)
        assert error.max() < 0.02 * np.abs(exact).max(), "too noisy to tell a bias"
    assert z["exp"].max() < 4
    assert np.mean(z["uniform"] > 4) > 0.5


# Ma & Collins section 4.3: x in {x1, x2}, y in {y1, y2}, s(x1, y1) = a, all other scores b.
JOINT = np.array([[1 / 8, 3 / 8], [1 / 4, 1 / 4]])
NOISE = np.array([0.5, 0.5])


def population_loss(objective, num_noise, theta):
    """Expectation of the objective over (x, y0) and K draws, exactly: by the number of y1 drawn.

    The objectives do not depend on the order of the draws, so there are K + 1 cases.
    """
    from scipy.stats import binom

    ones = np.arange(num_noise + 1)
    draws = (np.arange(num_noise) >= ones[:, None]).astype(int)  # (K + 1, K): y1 first
    scores = np.array([[theta[0], theta[1]], [theta[1], theta[1]]])
    weight = binom.pmf(ones, num_noise, NOISE[0])
    count = np.float32(np.log(num_noise * NOISE[0]))
    total, rows = 0.0, []
    for x, y in np.ndindex(2, 2):
        rows.append((np.full(num_noise + 1, scores[x, y]), scores[x][draws]))
        total += JOINT[x, y]
    true = np.concatenate([r[0] for r in rows]).astype("float32")
    sampled = np.concatenate([r[1] for r in rows]).astype("float32")
    weights = np.concatenate([JOINT[x, y] * weight for x, y in np.ndindex(2, 2)])
    loss = objective(
        ops.convert_to_tensor(true),
        ops.convert_to_tensor(sampled),
        ops.full(true.shape, count),
        ops.full(sampled.shape, count),
    )
    return float(np.dot(weights, to_numpy(loss).astype(np.float64)))


@pytest.mark.parametrize("num_noise", [1, 25])
@pytest.mark.parametrize("name, ratio", [("nce_binary", 3 / 7), ("nce_ranking", 1 / 3)])
def test_counterexample_of_ma_and_collins(name, ratio, num_noise):
    """p(y1|x1) / p(y2|x1) = e^(a - b) at the minimum: 3/7 for binary, the true 1/3 for ranking.

    At the paper's solution the loss is stationary, and it is the minimum.
    """
    objective = getattr(losses, name)
    # binary at gamma = 0: theta = (1/4, 7/12); ranking depends on theta_1 / theta_2 alone.
    solution = np.log([ratio * 7 / 12, 7 / 12])
    minimum = population_loss(objective, num_noise, solution)
    step = 0.05
    slopes = [
        (population_loss(objective, num_noise, solution + step * e)
         - population_loss(objective, num_noise, solution - step * e)) / (2 * step)
        for e in np.eye(2)
    ]  # fmt: skip
    curvature = population_loss(objective, num_noise, solution + step * np.eye(2)[0]) - minimum
    assert curvature > 0
    # Central differences are off by f''' step^2 / 6.
    np.testing.assert_allclose(slopes, 0.0, atol=5e-4)

    def along(gap):
        return population_loss(objective, num_noise, [solution[1] + gap, solution[1]])

    found = optimize.minimize_scalar(along, (-2.0, 0.0), method="brent", options={"xtol": 1e-3})
    np.testing.assert_allclose(np.exp(found.x), ratio, rtol=0.02)


@pytest.mark.parametrize("remove", [False, True])
@pytest.mark.parametrize("objective", ["binary", "ranking"])
def test_noise_contrastive_is_its_objective(batch, objective, remove):
    """The head against figure 1 of Ma & Collins, with gamma and the regulariser (section 5.2).

    A hit is masked among the noise alone, if at all: Z_hat sums over all classes, so the label
    stays among the draws of the regulariser.
    """
    hidden, labels = batch
    q = np.random.default_rng(3).dirichlet(np.ones(N))
    ids = np.append(labels[:3], [0, 5]).astype("int32")
    counts = np.log(5 * q).astype("float32")
    samples = Samples(ids[None], counts[ids[None]], counts[labels])
    binary = objective == "binary"
    head = NoiseContrastive(
        N,
        FixedSampler(samples),
        5,
        objective=objective,
        learn_log_partition=binary,
        regularization=0.2,
        regularization_samples=5,
        remove_accidental_hits=remove,
    )
    with_weights(head)
    if binary:
        head.log_partition.assign(0.8)
    scores, hits = reference_scores(head, hidden), ids == labels[:, None]
    assert hits.any() and not hits.all(-1).any()
    expected = getattr(reference, f"nce_{objective}")(
        scores[np.arange(B), labels],
        np.where(hits & remove, -np.inf, scores[:, ids]),
        q[labels],
        np.broadcast_to(q[ids], (B, 5)),
        *([0.8] if binary else []),
    )
    expected = expected + 0.2 * reference.log_partition_penalty(scores[:, ids], q[ids])
    np.testing.assert_allclose(to_numpy(head(hidden, labels, training=True)), expected, rtol=1e-5)

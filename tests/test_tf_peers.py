"""The heads against TensorFlow's own losses for the same candidates."""

import keras
import numpy as np
import pytest
from conftest import BACKEND, FixedSampler, to_numpy

from softbench import NoiseContrastive, SampledSoftmax
from softbench.samplers import Unigram

if BACKEND != "tensorflow":
    pytest.skip("tf.nn losses need the TensorFlow backend", allow_module_level=True)

import tensorflow as tf

B, D, N, M = 16, 6, 12, 9
SEED = 4


@pytest.fixture(params=["with replacement", "unique"])
def problem(request, rng):
    """A table, a batch, and our draws of candidates, with accidental hits among them.

    None of the hits is drawn twice: TensorFlow masks only one of two equal candidates.
    """
    table = rng.normal(size=(N, D)).astype("float32"), rng.normal(size=N).astype("float32")
    hidden = rng.normal(size=(B, D)).astype("float32")
    labels = rng.integers(0, N, B).astype("int32")
    counts = rng.integers(1, 50, N)
    unique = request.param == "unique"
    sampler = Unigram(counts, share_draws=True, unique=unique, seed=SEED)
    sampler.build((N, D), M)
    samples = sampler.sample(None, tf.constant(hidden), M, tf.constant(labels))
    drawn, times = np.unique(to_numpy(samples.ids), return_counts=True)
    hits = np.isin(drawn, labels)
    assert hits.any() and times[hits].max() == 1
    return table, hidden, labels, samples


def ours(head, problem):
    (kernel, bias), hidden, labels, _ = problem
    head.build((None, D))
    head.table.kernel.assign(kernel)
    head.table.bias.assign(bias)
    return to_numpy(head(hidden, labels, training=True))


def theirs(function, problem, remove_accidental_hits):
    (kernel, bias), hidden, labels, samples = problem
    candidates = (
        tf.cast(samples.ids[0], tf.int64),
        tf.exp(samples.true_log_expected_count)[:, None],
        tf.exp(samples.log_expected_count[0]),
    )
    return function(
        kernel,
        bias,
        labels[:, None],
        hidden,
        M,
        N,
        sampled_values=candidates,
        remove_accidental_hits=remove_accidental_hits,
    ).numpy()


@pytest.mark.parametrize("remove", [True, False])
def test_sampled_softmax_loss(problem, remove):
    head = SampledSoftmax(
        N,
        FixedSampler(problem[3]),
        M,
        correct_true_logit=True,
        remove_accidental_hits=remove,
    )
    expected = theirs(tf.nn.sampled_softmax_loss, problem, remove)
    np.testing.assert_allclose(ours(head, problem), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("remove", [True, False])
def test_nce_loss(problem, remove):
    head = NoiseContrastive(N, FixedSampler(problem[3]), M, remove_accidental_hits=remove)
    expected = theirs(tf.nn.nce_loss, problem, remove)
    np.testing.assert_allclose(ours(head, problem), expected, rtol=1e-5, atol=1e-5)


def test_log_uniform_is_the_distribution_of_the_candidate_sampler():
    """The expected counts that TensorFlow's own sampler reports, class by class."""
    from softbench.samplers import LogUniform

    ids = np.arange(N, dtype="int64")[:, None]
    _, true, _ = tf.random.log_uniform_candidate_sampler(ids, 1, M, False, N, seed=1)
    sampler = LogUniform()
    sampler.build((N, D), M)
    q = np.exp(to_numpy(sampler.log_prob(None, keras.ops.zeros((1, D)))))[0]
    np.testing.assert_allclose(M * q, true.numpy()[:, 0], rtol=1e-5)

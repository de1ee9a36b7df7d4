"""What single heads of the negative-sampling family do beyond the conformance tests."""

import keras
import numpy as np
import pytest
import reference
from conftest import (
    ConditionalNoise,
    compiled,
    rejects,
    thorough_but,
    to_numpy,
)
from head_zoo import COUNTS, NOISE, PER_EXAMPLE, UNIGRAM, WIDTH, D, N, built, data, numpy_scores
from small import labels_below, saved_and_loaded, spec, vectors

from softbench import (
    AugmentReduce,
    Classifier,
    NegativeSampling,
    NoiseContrastive,
    SampledSoftmax,
    diagnostics,
    losses,
)
from softbench.targets import Targets

B = 7


@pytest.fixture
def batch():
    """hidden, sampler inputs and labels."""
    return vectors(B, D), vectors(B, WIDTH, seed=1), labels_below(N, B)


def conditional(**options):
    return built(NegativeSampling(N, ConditionalNoise(NOISE), num_sampled=6, **options))


def test_sampler_inputs_decide_the_prediction(batch):
    """Scores, likelihood and top k with features that are not hidden, leading dims included."""
    hidden, x, labels = (a[:6].reshape(2, 3, *a.shape[1:]) for a in batch)
    head = conditional()
    expected = numpy_scores(head, hidden.reshape(6, D), x.reshape(6, WIDTH))

    def everything(hidden, x, labels):
        top = head.top_k(hidden, 3, sampler_inputs=x)
        nll = head(hidden, labels, sampler_inputs=x)
        return head(hidden, sampler_inputs=x), nll, *top

    scores, nll, best, ids = (to_numpy(a) for a in compiled(everything, head)(hidden, x, labels))
    np.testing.assert_allclose(scores.reshape(6, N), expected, rtol=1e-4, atol=1e-5)
    exact = reference.negative_log_likelihood(expected, labels.reshape(6))
    np.testing.assert_allclose(nll.reshape(6), exact, rtol=1e-4, atol=1e-5)
    best_expected, ids_expected = reference.top_k(expected, 3)
    np.testing.assert_array_equal(ids.reshape(6, 3), ids_expected)
    np.testing.assert_allclose(best.reshape(6, 3), best_expected, rtol=1e-4, atol=1e-5)


def test_without_sampler_inputs_the_sampler_gets_hidden(batch):
    hidden, _, labels = batch
    matrix = np.random.default_rng(1).normal(size=(D, N))
    head = built(NegativeSampling(N, ConditionalNoise(matrix)))
    expected = numpy_scores(head, hidden, hidden)
    np.testing.assert_allclose(to_numpy(head(hidden)), expected, rtol=1e-4, atol=1e-5)
    nll = reference.negative_log_likelihood(expected, labels)
    np.testing.assert_allclose(to_numpy(head(hidden, labels)), nll, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("sampler", [PER_EXAMPLE, UNIGRAM, ConditionalNoise(NOISE)])
def test_more_classes_than_one_pass_holds(batch, sampler, monkeypatch):
    """Streamed in chunks of 4, likelihood and top k are those of the dense scores."""
    from softbench import partition

    monkeypatch.setattr(partition, "class_chunk", lambda *_: 4)
    hidden, x, labels = batch
    head = built(NegativeSampling(N, sampler))
    expected = numpy_scores(head, hidden, x)
    nll = to_numpy(head(hidden, labels, sampler_inputs=x))
    exact = reference.negative_log_likelihood(expected, labels)
    np.testing.assert_allclose(nll, exact, rtol=1e-4, atol=1e-5)
    ids = to_numpy(head.top_k(hidden, 5, sampler_inputs=x)[1])
    np.testing.assert_array_equal(ids, reference.top_k(expected, 5)[1])


@pytest.mark.parametrize(
    "make",
    [conditional, lambda: built(NoiseContrastive(N, ConditionalNoise(NOISE), num_sampled=6))],
)
def test_sampler_inputs_of_wrong_shape(make, batch):
    hidden, x, labels = batch
    head = make()
    for wrong in (x[:3], x[:, :, None], x[0]):
        rejects("sampler_inputs", head, hidden, labels, sampler_inputs=wrong, training=True)
        rejects("sampler_inputs", head, hidden, sampler_inputs=wrong)
        rejects("sampler_inputs", head.top_k, hidden, 2, sampler_inputs=wrong)
    inputs = keras.Input((D,)), keras.Input((2, WIDTH))
    rejects("sampler_inputs", head, inputs[0], sampler_inputs=inputs[1])


@pytest.mark.parametrize("share_draws", [False, True])
@pytest.mark.parametrize("sampler", ["exp", "quadratic", "rff"])
def test_sampler_inputs_of_another_width_than_the_table(sampler, share_draws, batch):
    """Of use to a sampler with weights of its own, and to no sampler that follows the table."""
    hidden, x, labels = batch
    config = spec(sampler, share_draws=share_draws)
    head = built(SampledSoftmax(N, config, num_sampled=2, normalize=True))
    rejects("sampler_inputs", head, hidden, labels, sampler_inputs=x, training=True)
    rejects("sampler_inputs", diagnostics.proposal_quality, head, hidden, x)
    assert np.isfinite(to_numpy(head(hidden, labels, sampler_inputs=hidden, training=True))).all()


@pytest.mark.parametrize("from_encoder", thorough_but([False, True], True))
def test_classifier_with_sampler_inputs(from_encoder, tmp_path):
    x = keras.Input((WIDTH,))
    hidden = keras.layers.Dense(D)(x)
    outputs = {"hidden": hidden, "sampler_inputs": x} if from_encoder else hidden
    head = NegativeSampling(N, ConditionalNoise(NOISE), num_sampled=6)
    model = Classifier(keras.Model(x, outputs), head, inputs_to_sampler=not from_encoder)
    model.compile(keras.optimizers.Adagrad(0.3))
    x, y = data(40)
    model.fit(x, y, batch_size=20, epochs=2, verbose=0)
    encoded = model.encoder(x)
    hidden = to_numpy(encoded["hidden"] if from_encoder else encoded)
    scores = numpy_scores(model.head, hidden, x)
    results = model.evaluate(x, y, batch_size=40, verbose=0, return_dict=True)
    nll = reference.negative_log_likelihood(scores, y).mean()
    np.testing.assert_allclose(results["loss"], nll, rtol=1e-4)
    hits = (scores.argmax(-1) == y).mean()
    np.testing.assert_allclose(results["precision_at_1"], hits, rtol=1e-5)
    predicted = model.predict(x, verbose=0)
    np.testing.assert_allclose(predicted, scores, rtol=1e-4, atol=1e-4)
    loaded = saved_and_loaded(model, tmp_path)
    np.testing.assert_array_equal(loaded.predict(x, verbose=0), predicted)


def test_gbce_is_kept_in_the_config():
    head = NegativeSampling(N, "uniform", num_sampled=5, objective="gbce", t=0.5)
    again = NegativeSampling.from_config(head.get_config())
    assert (again.objective_name, again.t, again.num_sampled) == ("gbce", 0.5, 5)


# Bounds: the heads against brute force, and their estimates against their expectation.


def softmax_scores(head, hidden):
    return reference.scores(hidden, to_numpy(head.table.kernel), to_numpy(head.table.bias))


ALL = spec("uniform", unique=True)


SAMPLERS = {
    "per example": PER_EXAMPLE,
    "shared": UNIGRAM,
    "unique": spec("unigram", counts=COUNTS, unique=True),
}


@pytest.mark.parametrize("name", ["one_vs_each", "augment_reduce"])
@pytest.mark.parametrize("sampler", thorough_but(SAMPLERS, "shared"))
def test_estimates_of_the_bounds_are_unbiased(name, sampler):
    """Mean over independent draws within 4 standard errors, at an eta that is not the best."""
    rng = np.random.default_rng(4)
    hidden, label = rng.normal(0, 0.5, (1, D)).astype("float32"), np.array([3], "int32")
    head = built(SampledSoftmax(N, SAMPLERS[sampler], 4, seed=3))
    row = softmax_scores(head, hidden)[0]
    others = np.delete(row - row[3], 3)
    log_eta = np.log1p(np.exp(others).sum()) + 0.7
    if name == "one_vs_each":
        exact = np.logaddexp(0, others).sum()
    else:
        exact = log_eta - 1 + (1 + np.exp(others).sum()) * np.exp(-log_eta)

    def estimate(hidden, label):
        targets = Targets(label)
        ((draw,),) = head.draw(hidden, targets)
        true_rows, rows = (head.table.gather(ids) for ids in (label, draw.ids))
        true, sampled = head._logits(hidden, targets, true_rows, [[rows]])
        (sampled,) = head._masked(sampled, [draw], targets)
        extra = [0.0 * true + log_eta] if name == "augment_reduce" else []
        return getattr(losses, name)(true, sampled, None, draw.log_expected_count, *extra)

    function = compiled(estimate, head)
    repeats, copies = (40, 500) if sampler == "per example" else (1500, 1)
    many = np.repeat(hidden, copies, 0), np.repeat(label, copies, 0)
    found = np.concatenate([to_numpy(function(*many)) for _ in range(repeats)]).astype(float)
    error = found.std(ddof=1) / np.sqrt(len(found))
    assert 0 < error < 0.05 * exact
    assert abs(found.mean() - exact) < 4 * error


def run_augment_reduce(head, hidden, labels, ids, weight=None):
    """One training call; the losses."""
    arrays = [hidden, labels, np.array(ids, "int32")]
    return to_numpy(head(arrays[0], arrays[1], weight, None, arrays[2], training=True))


def test_eta_moves_with_decreasing_steps():
    """With every class drawn: eta is a weighted mean of the 1 / p(y) of its visits."""
    rng = np.random.default_rng(6)
    head = built(AugmentReduce(N, ALL, N, num_examples=5, step_power=0.8))
    eta, visits = np.zeros(5), np.zeros(5)
    for ids in ([0, 3], [3, 1], [0, 3], [3, 4]):
        hidden, labels = rng.normal(size=(2, D)).astype("float32"), rng.integers(0, N, 2)
        nll = reference.negative_log_likelihood(softmax_scores(head, hidden), labels)
        step = (1 + visits[ids]) ** -0.8
        eta[ids] = (1 - step) * eta[ids] + step * np.exp(nll)
        visits[ids] += 1
        found = run_augment_reduce(head, hidden, labels, ids)
        expected = np.log(eta[ids]) - 1 + np.exp(nll) / eta[ids]
        np.testing.assert_allclose(found, expected, rtol=1e-4)
        assert np.all(found >= nll - 1e-5), "not a bound"
    np.testing.assert_array_equal(to_numpy(head.visits), visits)
    seen = visits > 0
    np.testing.assert_allclose(to_numpy(head.log_eta)[seen], np.log(eta[seen]), rtol=1e-4)
    assert np.all(to_numpy(head.log_eta)[~seen] == 0)


def test_stale_eta_does_not_overflow():
    """After scores that change by 200, the loss is finite: exp(200) is in no term."""
    head = built(AugmentReduce(N, ALL, N, num_examples=1))
    hidden, labels = np.ones((1, D), "float32"), np.array([0], "int32")
    for size in (0.0, 200.0, 0.0):
        head.table.bias.assign(np.where(np.arange(N) == 1, size, 0.0))
        loss = run_augment_reduce(head, hidden, labels, [0])
        assert np.all(np.isfinite(loss)) and loss[0] < 250


def test_examples_of_weight_zero_and_unknown_ids_leave_eta_alone():
    head = built(AugmentReduce(N, "uniform", 5, num_examples=4))
    hidden, labels = np.ones((3, D), "float32"), np.array([0, 1, 2], "int32")
    run_augment_reduce(head, hidden, labels, [0, 1, 2], np.array([1, 0, 1], "float32"))
    np.testing.assert_array_equal(to_numpy(head.visits), [1, 0, 1, 0])
    before = to_numpy(head.log_eta).copy()

    def step(hidden, labels, ids):
        return head(hidden, labels, example_ids=ids, training=True)

    found = to_numpy(compiled(step, head)(hidden, labels, np.array([-1, 3, 4], "int32")))
    np.testing.assert_array_equal(np.isnan(found), [True, False, True])
    np.testing.assert_array_equal(to_numpy(head.visits), [1, 0, 1, 1])
    np.testing.assert_array_equal(to_numpy(head.log_eta)[:3], before[:3])


def test_example_ids(batch):
    hidden, _, labels = batch
    head = built(AugmentReduce(N, "uniform", 5, num_examples=10))
    ids = np.arange(B, dtype="int32")
    rejects("example_ids", head, hidden, labels, training=True)
    for wrong in (ids + 4, ids - 1, ids.astype("float32"), ids[:3], ids[:, None]):
        rejects("example_ids", head, hidden, labels, example_ids=wrong, training=True)
    symbolic = keras.Input((D,)), keras.Input((), dtype="int32"), keras.Input(())
    rejects("example_ids", head, *symbolic[:2], example_ids=symbolic[2])
    # Not needed outside of training.
    nll = reference.negative_log_likelihood(softmax_scores(head, hidden), labels)
    np.testing.assert_allclose(to_numpy(head(hidden, labels)), nll, rtol=1e-4)
    assert head(hidden).shape == (B, N) and head.top_k(hidden, 2)[1].shape == (B, 2)

"""Steps that are not there: labels that say so, shapes of labels, and work for the others alone."""

import keras
import numpy as np
import pytest
from conftest import BACKEND, compiled, rejects, to_numpy
from head_zoo import HEADS, D, N, built, numpy_nll
from small import assert_all_close, classifier, spec, training

from softbench import AugmentReduce, FullSoftmax, SampledSoftmax
from softbench.metrics import Perplexity

RNG = np.random.default_rng(4)
HIDDEN = RNG.normal(size=(2, 4, D)).astype("float32")
LABELS = np.array([[3, 7, 1, 0], [5, 9, 2, 10]], "int32")
THERE = np.array([[1, 1, 0, 0], [1, 0, 0, 0]], bool)
PADDED = np.where(THERE, LABELS, -1)


def model_of(name, **options):
    """hidden (B, T, d), labels (B, T), weights -> losses, compiled to train."""
    keras.utils.set_random_seed(4)
    head = built(HEADS[name](name="head", **options))
    hidden, labels = keras.Input((4, D)), keras.Input((4,), dtype="int32")
    weight = keras.Input((4,))
    model = keras.Model([hidden, labels, weight], head(hidden, labels, sample_weight=weight))
    model.compile(keras.optimizers.SGD(0.1))
    return model


def after_a_step(model, labels, weight=THERE):
    loss = model.train_on_batch([HIDDEN, labels, np.asarray(weight, "float32")])
    return [np.asarray(loss), *(to_numpy(v) for v in model.variables)]


def assert_same(one, other):
    assert all(np.all(np.isfinite(a)) for a in one)
    assert_all_close(one, other, 1e-5, 1e-6)


def test_ignored_labels_in_a_classifier():
    """Arrays are checked before the first step; metrics leave these steps out."""
    model = classifier(FullSoftmax(N, ignore_index=-1), (4, D), top_k=(2,))
    model.fit(HIDDEN, PADDED, verbose=0)
    found = model.evaluate(HIDDEN, PADDED, verbose=0, return_dict=True)
    nll = numpy_nll(model.head, HIDDEN[THERE], LABELS[THERE])
    assert found["perplexity"] == pytest.approx(np.exp(nll.mean()), rel=1e-5)
    best = np.argsort(-model.predict(HIDDEN, verbose=0)[THERE], axis=-1)[:, :2]
    hits = (best == LABELS[THERE][:, None]).any(-1)
    assert found["precision_at_2"] == pytest.approx(hits.mean() / 2, rel=1e-6)
    rejects("labels", model.fit, HIDDEN, np.where(THERE, LABELS, -2), verbose=0)
    rejects("labels", built(FullSoftmax(N)), HIDDEN, PADDED)
    assert FullSoftmax.from_config(model.head.get_config()).ignore_index == -1


def test_what_counts_in_uneven_batches():
    """Sequences of 4 to 0 steps: a classifier's loss is a mean over steps, not over batches.

    That of another model is Keras' mean over batches; `Perplexity` of its losses is that of steps.
    """
    steps = np.arange(4) < np.array([4, 4, 1, 0, 3])[:, None]
    hidden = RNG.normal(size=(5, 4, D)).astype("float32")
    labels = np.where(steps, RNG.integers(0, N, (5, 4)), -1).astype("int32")
    model = classifier(FullSoftmax(N, ignore_index=-1), (4, D), top_k=())
    fit = {"validation_data": (hidden, labels), "validation_batch_size": 2, "verbose": 0}
    last = model.fit(hidden, labels, batch_size=2, epochs=2, **fit).history["val_loss"][-1]
    nll = numpy_nll(model.head, hidden[steps], labels[steps]).mean()
    found = model.evaluate(hidden, labels, batch_size=2, verbose=0, return_dict=True)
    assert found["loss"] == pytest.approx(nll, rel=1e-5)
    assert found["perplexity"] == pytest.approx(np.exp(nll), rel=1e-5)
    assert last == pytest.approx(nll, rel=1e-5)
    x, y = keras.Input((4, D)), keras.Input((4,), dtype="int32")
    plain = keras.Model([x, y], model.head(x, y))
    perplexity = Perplexity()
    perplexity.update_state(plain.predict([hidden, labels], verbose=0), labels >= 0)
    assert float(perplexity.result()) == pytest.approx(np.exp(nll), rel=1e-5)


def test_labels_wider_than_the_step_are_not_taken_for_padding():
    head = built(FullSoftmax(N, ignore_index=-1))
    rejects("labels", head, HIDDEN[0], np.array([2**32 - 1, 0, 1, 2], "int64"))
    labels = np.array([10, 0, 1, 2], "uint8")
    expected = numpy_nll(head, HIDDEN[0], labels)
    np.testing.assert_allclose(to_numpy(head(HIDDEN[0], labels)), expected, rtol=1e-4)


@pytest.mark.parametrize("training", [True, False])
def test_a_mask_of_the_labels(training):
    head = built(FullSoftmax(N))
    plain = numpy_nll(head, HIDDEN.reshape(-1, D), LABELS.ravel()).reshape(2, 4)
    found = to_numpy(head(HIDDEN, PADDED, training=training, labels_mask=THERE, hidden_mask=THERE))
    np.testing.assert_allclose(found, np.where(THERE, plain, 0), rtol=1e-4)


@pytest.mark.parametrize("name", ["full", "augment reduce"])
def test_labels_of_one_column(name):
    """(B, 1) for vectors (B, d), (B, T, 1) for (B, T, d), weights of either shape, as in Keras."""
    head = built(HEADS[name]())
    hidden, labels = HIDDEN[0], LABELS[0]
    expected = to_numpy(head(hidden, labels))
    np.testing.assert_allclose(expected, numpy_nll(head, hidden, labels), rtol=1e-4)
    weight = np.array([1, 0, 2, 1], "float32")
    np.testing.assert_array_equal(to_numpy(head(hidden, labels[:, None])), expected)
    for own in (weight, weight[:, None]):
        found = to_numpy(head(hidden, labels[:, None], sample_weight=own))
        np.testing.assert_allclose(found, expected * weight, rtol=1e-6)
    found = to_numpy(head(HIDDEN, LABELS[..., None]))
    np.testing.assert_allclose(found, to_numpy(head(HIDDEN, LABELS)), rtol=1e-6)
    if name == "full":
        x, y = keras.Input((D,)), keras.Input((1,), dtype="int32")
        model = classifier(head, D)
        before = model.evaluate(hidden, labels[:, None], verbose=0, return_dict=True)
        assert before["loss"] == pytest.approx(expected.mean(), rel=1e-5)
        trained = keras.Model([x, y], head(x, y))
        found = trained.predict([hidden, labels[:, None]], verbose=0)
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_steps_that_are_masked_have_no_part_in_shared_draws():
    """Whatever their vectors hold, the losses of the others are the same."""
    head = built(SampledSoftmax(N, spec("exp", share_draws=True), 6, seed=2))
    train, found = training(head), []
    for scale in (1.0, 5.0):
        head.sampler.seed_generator.state.assign(np.array([2, 0], "uint32"))
        hidden = np.where(THERE[..., None], HIDDEN, scale * HIDDEN)
        found.append(to_numpy(train(hidden, LABELS, THERE.astype("float32"))))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5, atol=1e-6)


# Work for the steps that are there alone.

FEW = {"max_valid": 0.5}  # 4 of 8 steps; 3 are there
MANY = np.array([[1, 1, 0, 1], [1, 1, 0, 1]], bool)  # 6: more than that


@pytest.mark.parametrize("name", ["full", "sampled rows", "hierarchical rows"])
def test_the_same_losses_and_updates_for_those_that_are_there_alone(name):
    """Draws that the batch shares: equal to the step on all, for few steps and for too many."""
    if "rows" in name and BACKEND == "jax":
        rejects("max_valid", HEADS[name], **FEW)  # it would copy the table
        return
    plain, own = model_of(name), model_of(name, **FEW)
    for there in (THERE, MANY):
        assert_same(after_a_step(own, LABELS, there), after_a_step(plain, LABELS, there))


def test_the_likelihood_of_those_that_are_there_alone():
    head = built(FullSoftmax(N, **FEW))
    evaluate = compiled(lambda h, y, w: head(h, y, w), head)
    expected = numpy_nll(head, HIDDEN.reshape(-1, D), LABELS.ravel()).reshape(2, 4)
    for there in (THERE, MANY):
        found = to_numpy(evaluate(HIDDEN, LABELS, there.astype("float32")))
        np.testing.assert_allclose(found, np.where(there, expected, 0), rtol=1e-4)


def test_the_work_is_for_as_many_as_said():
    sizes = []

    class Counting(FullSoftmax):
        def training_loss(self, hidden, targets):
            sizes.append(hidden.shape[0])
            return super().training_loss(hidden, targets)

    head = built(Counting(N, max_valid=4))
    train = training(head)
    train(HIDDEN, LABELS, THERE.astype("float32"))
    assert set(sizes) == {4, 8}  # both are compiled, one is run
    sizes.clear()
    training(head)(HIDDEN, LABELS)
    assert sizes == [8]  # nothing says that a step may be missing


def test_draws_of_each_example():
    """Drawn anew for those that are there, at every step."""
    head = built(SampledSoftmax(N, "quadratic", 6, seed=1, **FEW))
    train = training(head)
    seen = [to_numpy(train(HIDDEN, PADDED, THERE.astype("float32"))) for _ in range(2)]
    for losses in seen:
        np.testing.assert_array_equal(losses > 0, THERE)
    assert np.any(seen[0] != seen[1]), "two steps drew the same classes"


@pytest.mark.thorough
def test_augment_reduce_of_those_that_are_there_alone():
    found = []
    for options in ({}, FEW):
        every = spec("unigram", counts=[1] * N, unique=True)
        head = built(AugmentReduce(N, every, N, num_examples=8, **options))
        train = compiled(
            lambda h, y, w, i, head=head: head(h, y, w, example_ids=i, training=True), head
        )
        ids = np.arange(8, dtype="int32").reshape(2, 4)
        losses = to_numpy(train(HIDDEN, LABELS, THERE.astype("float32"), ids))
        found.append([losses, to_numpy(head.log_eta), to_numpy(head.visits)])
    assert_same(*found)

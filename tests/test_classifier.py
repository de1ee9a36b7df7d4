"""`Classifier` and `predictor`: what people pass to `compile` and `fit`, and what comes back."""

import keras
import numpy as np
import pytest
import reference
from conftest import rejects, to_numpy
from head_zoo import HEADS, WIDTH, D, N, data, models, numpy_nll, numpy_scores
from small import assert_all_close, classifier, saved_and_loaded, values

import softbench
from softbench import FullSoftmax, metrics

LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def make_classifier(optimizer="sgd", **options):
    return classifier(FullSoftmax(N, **options), WIDTH, D, optimizer, top_k=(1, 2))


def test_classifier(tmp_path):
    """Loss, perplexity and precision@k against NumPy, with weights and without; saved."""
    model = classifier(HEADS["sampled rows"](), WIDTH, D, keras.optimizers.Adagrad(0.3))
    x, y = data(100)
    before = model.evaluate(x, y, verbose=0, return_dict=True)
    history = model.fit(x, y, batch_size=25, epochs=6, verbose=0).history
    assert np.all(np.isfinite(history["loss"]))
    x, y = data(30, seed=1)
    hidden = to_numpy(model.encoder(x))
    nll = numpy_nll(model.head, hidden, y)
    ids = reference.top_k(numpy_scores(model.head, hidden), 5)[1]
    given = np.random.default_rng(1).integers(0, 3, 30).astype("float32")
    evaluate = {"batch_size": 10, "verbose": 0, "return_dict": True}
    for weight in (None, given):
        results = model.evaluate(x, y, sample_weight=weight, **evaluate)
        assert results["loss"] < before["loss"]
        mean = np.average(nll, weights=weight)
        np.testing.assert_allclose(results["loss"], mean, rtol=1e-4)
        np.testing.assert_allclose(results["perplexity"], np.exp(mean), rtol=1e-4)
        for k in (1, 3, 5):
            hits = (ids[:, :k] == y[:, None]).any(-1) / k
            expected = np.average(hits, weights=weight)
            np.testing.assert_allclose(results[f"precision_at_{k}"], expected, rtol=1e-5)
    scores = model.predict(x, verbose=0)
    np.testing.assert_allclose(scores, numpy_scores(model.head, hidden), rtol=1e-4, atol=1e-4)
    loaded = saved_and_loaded(model, tmp_path)
    np.testing.assert_array_equal(loaded.predict(x, verbose=0), scores)


def test_classifier_checks_its_labels():
    model = classifier(HEADS["sampled rows"](), WIDTH, D)
    x, y = data(8)
    rejects("labels", model.fit, x, y + N, verbose=0)
    rejects("labels", model.fit, x, y.astype("float32"), verbose=0)
    rejects("labels", model.evaluate, x, y - N, verbose=0)
    rejects("y", model.fit, x, verbose=0)


# Class weights.


def test_class_weight_is_a_weight_of_each_example():
    x, y = data(12)
    weight = {i: 0.5 * (i % 3) for i in range(N)}
    after = []
    model = make_classifier(keras.optimizers.SGD(0.5))
    model.build(x.shape)
    start = model.get_weights()
    for given in (
        {"class_weight": weight},
        {"sample_weight": np.array([weight[i] for i in y], "float32")},
    ):
        model.set_weights(start)
        model.fit(x, y, batch_size=6, shuffle=False, verbose=0, **given)
        after.append(values(model.trainable_variables))
    assert_all_close(*after)


def test_class_weight_of_other_labels_is_an_error():
    model = make_classifier()
    x, y = data(8)
    labels = np.stack([y, y], axis=1)
    rejects("class_weight", model.fit, x, labels, class_weight={0: 2.0}, verbose=0)
    model = make_classifier(multi_label="mean")
    rejects("class_weight", model.fit, x, labels, class_weight={0: 2.0}, verbose=0)


# Losses and metrics of `compile`; callbacks.


@pytest.mark.parametrize(
    "given",
    [
        {"loss": "sparse_categorical_crossentropy"},
        {"loss_weights": [1.0]},
        {"metrics": ["accuracy"]},
        {"weighted_metrics": [keras.metrics.Mean()]},
    ],
    ids=lambda given: next(iter(given)),
)
def test_compile_says_what_it_does_not_take(given):
    rejects(next(iter(given)), make_classifier().compile, "sgd", **given)


def test_a_loaded_classifier_is_compiled(tmp_path):
    x, y = data(8)
    model = make_classifier()
    model.compile(keras.optimizers.Adam(0.01), jit_compile=False)
    model.fit(x, y, verbose=0)
    loaded = saved_and_loaded(model, tmp_path)
    assert loaded.evaluate(x, y, verbose=0) == pytest.approx(model.evaluate(x, y, verbose=0))
    assert float(loaded.optimizer.iterations) == 1


def test_callbacks_know_which_way_is_better():
    """The perplexity gets worse in every epoch, so training stops after the second."""
    x, y = data(24)
    model = make_classifier(keras.optimizers.SGD(1.0))
    stop = keras.callbacks.EarlyStopping("val_perplexity", patience=0)
    best = keras.callbacks.EarlyStopping("val_precision_at_2", patience=9)
    other = keras.callbacks.EarlyStopping("val_loss", patience=9)
    wrong = (y + 1) % N  # what training makes less and less likely
    options = {"validation_data": (x, wrong), "callbacks": [stop, best, other], "verbose": 0}
    model.fit(x, y, epochs=3, **options)
    assert (stop.mode, best.mode, other.mode) == ("min", "max", "auto")
    assert stop.stopped_epoch == 1 and best.monitor_op is keras.ops.greater


def test_callbacks_know_the_direction_of_compiled_metrics():
    x, y = data(8)
    model = softbench.predictor(make_classifier())
    model.compile("sgd", LOSS, metrics=[metrics.ScorePerplexity()])
    stop = keras.callbacks.EarlyStopping("val_perplexity")
    model.fit(x, y, validation_data=(x, y), callbacks=[stop], verbose=0)
    assert stop.monitor_op is keras.ops.less


# Prediction without labels.


@pytest.mark.parametrize("name", ["sampled", "negative conditional", "augment reduce"])
def test_predictor_of_a_functional_model(name):
    """The inputs that the scores need, and no others; the same weights."""
    model, expected, _ = models(HEADS[name]())
    x, _ = data(5)
    found = softbench.predictor(model)
    assert len(found.inputs) == 1
    np.testing.assert_array_equal(found.predict(x, verbose=0), expected.predict(x, verbose=0))


def test_predictor_of_a_model_of_named_inputs():
    inputs = {"a": keras.Input((D,)), "b": keras.Input((D,)), "y": keras.Input((), dtype="int32")}
    hidden = keras.layers.Add()([inputs["a"], inputs["b"]])
    head = FullSoftmax(N)
    model = keras.Model(inputs, head(hidden=hidden, labels=inputs["y"]))
    x = np.ones((2, D), "float32")
    scores = softbench.predictor(model).predict({"a": x, "b": x}, verbose=0)
    np.testing.assert_allclose(scores, numpy_scores(head, 2 * x), rtol=1e-4, atol=1e-5)


def test_predictor_of_a_classifier_takes_metrics(tmp_path):
    x, y = data(10)
    model = make_classifier()
    found = model.evaluate(x, y, verbose=0, return_dict=True)
    scores = softbench.predictor(model)
    scores.compile(loss=LOSS, metrics=[metrics.ScorePerplexity(), metrics.PrecisionAtK(2)])
    other = scores.evaluate(x, y, verbose=0, return_dict=True)
    for name in ("loss", "perplexity", "precision_at_2"):
        assert other[name] == pytest.approx(found[name], rel=1e-5)
    loaded = saved_and_loaded(scores, tmp_path)
    np.testing.assert_array_equal(loaded.predict(x, verbose=0), model.predict(x, verbose=0))


def test_predictor_of_another_model():
    x = keras.Input((D,))
    rejects("model", softbench.predictor, keras.Model(x, keras.layers.Dense(2)(x)))
    rejects("model", softbench.predictor, keras.Model(x, FullSoftmax(N)(x)))

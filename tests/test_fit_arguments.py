"""What people pass to `compile`, `fit` and the constructors, as they are used to from Keras."""

import keras
import numpy as np
import pytest
import reference
from conftest import compiled, on_table, rejects, to_numpy
from head_zoo import COUNTS, HEADS, WIDTH, D, N, built, data, models, numpy_scores

import softbench
from softbench import Classifier, FullSoftmax, OneVsEach, SampledSoftmax, metrics

LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
ALL = {"class_name": "unigram", "config": {"counts": [1] * N, "unique": True}}


def make_classifier(**options):
    encoder = keras.Sequential([keras.Input((WIDTH,)), keras.layers.Dense(D)])
    return Classifier(encoder, FullSoftmax(N, **options), top_k=(1, 2))


# Label smoothing.


@pytest.mark.parametrize(
    "make",
    [
        lambda **o: FullSoftmax(N, **o),
        lambda **o: FullSoftmax(N, class_chunk=4, normalize=True, temperature=0.3, **o),
        lambda **o: SampledSoftmax(N, ALL, N, **o),
    ],
    ids=["full", "chunked", "all classes drawn"],
)
def test_label_smoothing(make):
    head = built(make(label_smoothing=0.2))
    hidden, labels = np.random.default_rng(1).normal(size=(6, D)).astype("float32"), data(6)[1]
    expected = reference.smoothed_loss(numpy_scores(head, hidden), labels, 0.2)
    train = compiled(lambda h, y: head(h, y, training=True), head)
    np.testing.assert_allclose(to_numpy(train(hidden, labels)), expected, rtol=1e-4)
    nll = reference.negative_log_likelihood(numpy_scores(head, hidden), labels)
    np.testing.assert_allclose(to_numpy(head(hidden, labels)), nll, rtol=1e-4)


def test_the_mean_logit_is_estimated_without_bias():
    """Of draws with replacement, with their own frequencies: the mean of many estimates."""
    rng = np.random.default_rng(2)
    logits, q = rng.normal(size=N).astype("float32"), np.array(COUNTS[1:]) / sum(COUNTS[1:])
    draws = 1 + rng.choice(N - 1, size=(20_000, 5), p=q)  # class 0 is the label
    count = np.log(5 * q[draws - 1]).astype("float32")
    true = np.full(20_000, logits[0], "float32")
    found = to_numpy(softbench.losses.mean_logit(true, logits[draws], None, count, N))
    error = found.std() / np.sqrt(len(found))
    assert abs(found.mean() - logits.mean()) < 4 * error


def test_label_smoothing_out_of_range():
    for value in (-0.1, 1.0, float("nan"), "0.1"):
        rejects("label_smoothing", FullSoftmax, N, label_smoothing=value)
    rejects("label_smoothing", on_table, FullSoftmax, N, label_smoothing=0.1, absolute=True)
    options = {"label_smoothing": 0.1}
    rejects("label_smoothing", SampledSoftmax, N, ALL, N, correct_true_logit=True, **options)
    rejects("label_smoothing", SampledSoftmax, N, ALL, N, remove_accidental_hits=False, **options)


# Class weights.


def test_class_weight_is_a_weight_of_each_example():
    x, y = data(12)
    weight = {i: 0.5 * (i % 3) for i in range(N)}
    after = []
    model = make_classifier()
    model.compile(keras.optimizers.SGD(0.5))
    model.build(x.shape)
    start = [to_numpy(v) for v in model.trainable_variables]
    for given in (
        {"class_weight": weight},
        {"sample_weight": np.array([weight[i] for i in y], "float32")},
    ):
        for variable, value in zip(model.trainable_variables, start, strict=True):
            variable.assign(value)
        model.fit(x, y, batch_size=6, shuffle=False, verbose=0, **given)
        after.append([to_numpy(v) for v in model.trainable_variables])
    for a, b in zip(*after, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_class_weight_of_other_labels_is_an_error():
    model = make_classifier()
    model.compile("sgd")
    x, y = data(8)
    labels = np.stack([y, y], axis=1)
    rejects("class_weight", model.fit, x, labels, class_weight={0: 2.0}, verbose=0)
    model = make_classifier(multi_label="mean")
    model.compile("sgd")
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
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.evaluate(x, y, verbose=0) == pytest.approx(model.evaluate(x, y, verbose=0))
    assert float(loaded.optimizer.iterations) == 1


def test_callbacks_know_which_way_is_better():
    """The perplexity gets worse in every epoch, so training stops after the second."""
    x, y = data(24)
    model = make_classifier()
    model.compile(keras.optimizers.SGD(1.0))
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
    model.compile("sgd")
    found = model.evaluate(x, y, verbose=0, return_dict=True)
    scores = softbench.predictor(model)
    scores.compile(loss=LOSS, metrics=[metrics.ScorePerplexity(), metrics.PrecisionAtK(2)])
    other = scores.evaluate(x, y, verbose=0, return_dict=True)
    for name in ("loss", "perplexity", "precision_at_2"):
        assert other[name] == pytest.approx(found[name], rel=1e-5)
    scores.save(tmp_path / "scores.keras")
    loaded = keras.models.load_model(tmp_path / "scores.keras")
    np.testing.assert_array_equal(loaded.predict(x, verbose=0), model.predict(x, verbose=0))


def test_predictor_of_another_model():
    x = keras.Input((D,))
    rejects("model", softbench.predictor, keras.Model(x, keras.layers.Dense(2)(x)))
    rejects("model", softbench.predictor, keras.Model(x, FullSoftmax(N)(x)))


# Defaults that suit each other.


def test_the_default_sampler_suits_the_scores():
    assert type(SampledSoftmax(N, normalize=True).sampler).__name__ == "RandomFourierKernel"
    head = SampledSoftmax(N, num_sampled=6, seed=1)
    assert type(head.sampler).__name__ == "Codebook"
    again = SampledSoftmax.from_config(head.get_config())
    assert type(again.sampler).__name__ == "Codebook"


def test_what_a_sampler_needs_is_named():
    message = rejects("counts", OneVsEach, N, "unigram")
    assert "`sampler` 'unigram' needs `counts`" in message and "class_name" in message

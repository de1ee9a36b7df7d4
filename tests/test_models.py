"""Encoders against NumPy float64, carried state, and the schedule of Zaremba et al."""

import keras
import numpy as np
import pytest
import reference
from conftest import rejects
from small import saved_and_loaded

from softbench import models

RNG = np.random.default_rng(0)


def numpy_language_model(model, tokens):
    table, *rest = (np.asarray(w.numpy(), np.float64) for w in model.trainable_weights)
    hidden = table[tokens]
    for layer in range(len(rest) // 3):
        hidden = reference.lstm(hidden, *rest[3 * layer : 3 * layer + 3])
    return hidden


def small(**kwargs):
    given = dict(batch_size=3, num_steps=4, units=5, num_layers=2, init_scale=0.5, seed=1)
    return models.lstm_language_model(20, **{**given, **kwargs})


class Halves(keras.utils.PyDataset):
    """A text in two consecutive batches."""

    def __init__(self, tokens, target):
        super().__init__()
        self.parts = [(tokens[:, :4], target), (tokens[:, 4:], target)]

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return self.parts[index]


def test_language_model_carries_state_between_batches():
    model = small()
    tokens = RNG.integers(20, size=(3, 8))
    expected = numpy_language_model(model, tokens)
    parts = [model.predict_on_batch(tokens[:, :4]), model.predict_on_batch(tokens[:, 4:])]
    np.testing.assert_allclose(np.concatenate(parts, 1), expected, atol=1e-5)
    models.reset_states(model)
    np.testing.assert_allclose(model.predict_on_batch(tokens[:, :4]), expected[:, :4], atol=1e-5)


def test_carry_state_resets_in_fit_and_evaluate():
    model = small()
    tokens = RNG.integers(20, size=(3, 8))
    target = np.zeros((3, 4, 5), "float32")
    text = Halves(tokens, target)
    expected = np.square(numpy_language_model(model, tokens)).mean()
    model.compile(keras.optimizers.SGD(0.0), loss="mse")
    history = model.fit(
        text,
        validation_data=text,
        epochs=2,
        shuffle=False,
        verbose=0,
        callbacks=[models.CarryState()],
    ).history
    np.testing.assert_allclose(history["loss"], expected, rtol=1e-4)
    np.testing.assert_allclose(history["val_loss"], expected, rtol=1e-4)
    stale = model.evaluate(text, verbose=0)
    fresh = model.evaluate(text, verbose=0, callbacks=[models.CarryState()])
    assert fresh == pytest.approx(expected, rel=1e-4)
    assert abs(stale - expected) > 1e-4 * expected


def test_language_model_initial_weights_and_training():
    model = small(units=30, init_scale=0.1)
    for weight in model.trainable_weights:  # biases too: no forget bias
        value = weight.numpy()
        assert np.abs(value).max() <= 0.1 and value.std() == pytest.approx(0.0577, abs=0.01)
    kernels = [w.numpy() for w in model.trainable_weights if w.shape == (30, 120)]
    assert len(kernels) == 4
    assert all((kernels[0] != other).any() for other in kernels[1:])
    np.testing.assert_array_equal(
        kernels[0], [w.numpy() for w in small(units=30, init_scale=0.1).trainable_weights][1]
    )
    model.compile(keras.optimizers.SGD(1.0), loss="mse")
    tokens = RNG.integers(20, size=(3, 4))
    losses = [model.train_on_batch(tokens, np.ones((3, 4, 30))) for _ in range(5)]
    assert losses[-1] < losses[0]


def test_dropout_is_on_non_recurrent_connections():
    model = small(keep_prob=0.5)
    kinds = [type(layer).__name__ for layer in model.layers[1:]]
    assert kinds == ["Embedding", "Dropout"] + ["CarriedLSTM", "Dropout"] * 2
    assert {layer.rate for layer in model.layers if hasattr(layer, "rate")} == {0.5}
    cells = [layer.lstm for layer in model.layers if hasattr(layer, "lstm")]
    assert all(cell.dropout == cell.recurrent_dropout == 0.0 for cell in cells)


def test_presets_and_schedule():
    small_preset, medium, large = (models.PRESETS[k] for k in ("small", "medium", "large"))
    assert (small_preset.units, medium.units, large.units) == (200, 650, 1500)
    assert small_preset.num_steps == 20 and medium.num_steps == large.num_steps == 35
    rates = [models.zaremba_learning_rate("small", epoch) for epoch in range(6)]
    assert rates == [1.0, 1.0, 1.0, 1.0, 0.5, 0.25]
    assert models.zaremba_learning_rate("medium", 7) == pytest.approx(0.64)
    assert models.zaremba_learning_rate("large", 14) == pytest.approx(1 / 1.15)


def bags():
    ids = np.array([[1, 4, 0], [2, 0, 0], [0, 0, 0]], np.int32)
    weights = np.array([[0.5, -2.0, 0.0], [1.0, 3.0, 0.0], [0.0, 0.0, 0.0]], np.float32)
    return ids, weights


@pytest.mark.parametrize("normalize", [False, True])
def test_sparse_bag_equals_dense_product(normalize):
    ids, weights = bags()
    model = models.sparse_bag_encoder(6, 4, normalize)
    table = np.asarray(model.get_weights()[0], np.float64)
    dense = np.zeros((3, 6))
    np.add.at(dense, (np.arange(3)[:, None], ids), weights)
    expected = dense @ table
    if normalize:
        norm = np.linalg.norm(expected, axis=1, keepdims=True)
        expected = np.divide(expected, norm, out=np.zeros_like(expected), where=norm > 0)
    np.testing.assert_allclose(model.predict([ids, weights], verbose=0), expected, atol=1e-6)


def test_sparse_bag_gradient_at_an_empty_bag_is_finite():
    ids, weights = bags()
    model = models.sparse_bag_encoder(6, 4, normalize=True)
    model.compile(keras.optimizers.SGD(0.1), loss="mse")
    before = model.get_weights()[0]
    model.train_on_batch([ids, weights], np.ones((3, 4), "float32"))
    after = model.get_weights()[0]
    assert np.isfinite(after).all()
    changed = (before != after).any(axis=1)
    np.testing.assert_array_equal(changed, [True, True, True, False, True, False])


def test_linear_encoder():
    x = RNG.normal(size=(4, 3)).astype("float32")
    identity = models.linear_encoder(3)
    np.testing.assert_array_equal(identity.predict(x, verbose=0), x)
    model = models.linear_encoder(3, 2)
    kernel, bias = model.get_weights()
    np.testing.assert_allclose(model.predict(x, verbose=0), x @ kernel + bias, atol=1e-6)


@pytest.mark.parametrize(
    "build, inputs",
    [
        (lambda: small(keep_prob=0.8), RNG.integers(20, size=(3, 4))),
        (lambda: models.sparse_bag_encoder(6, 4, True), list(bags())),
        (lambda: models.linear_encoder(3, 2, "relu"), np.ones((2, 3), "float32")),
    ],
    ids=["lstm", "bag", "linear"],
)
def test_encoders_survive_saving(build, inputs, tmp_path):
    model = build()
    again = saved_and_loaded(model, tmp_path)
    expected = model.predict_on_batch(inputs)
    np.testing.assert_allclose(again.predict_on_batch(inputs), expected, atol=1e-6)


def test_bad_arguments():
    rejects("preset", models.lstm_language_model, 10, "tiny")
    rejects("units", small, units=0)
    rejects("keep_prob", small, keep_prob=0.0)
    rejects("num_features", models.sparse_bag_encoder, 0, 4)

"""Row-updated encoder tables against dense optimizers, and the encoders of pairs and sessions."""

import keras
import numpy as np
import pytest
from conftest import rejects, slow_but, to_numpy
from keras import layers
from small import assert_all_equal, saved_and_loaded, values

import softbench
from softbench import models

RNG = np.random.default_rng(0)
ROWS, DIM, BATCH, WIDTH = 11, 4, 3, 5
OPTIMIZERS = {
    "sgd": (softbench.RowSGD, keras.optimizers.SGD),
    "adagrad": (softbench.RowAdagrad, keras.optimizers.Adagrad),
}


class OneHotTable(layers.Layer):
    """The same embedding as a product with one-hot rows: its gradient is dense and summed."""

    def __init__(self, values):
        super().__init__()
        self.values = values

    def build(self, ids_shape):
        self.table = self.add_weight(shape=self.values.shape, initializer="zeros", name="table")
        self.table.assign(self.values)

    def call(self, ids):
        return keras.ops.one_hot(ids, ROWS, dtype="float32") @ self.table


def batches(count):
    """Ids with many duplicates, and targets."""
    for _ in range(count):
        ids = RNG.integers(0, ROWS - 3, (BATCH, WIDTH)).astype("int32")
        yield ids, RNG.normal(size=(BATCH, 2)).astype("float32")


def network(table, ids):
    """A few layers after the table, so that the gradient is not that of the output."""
    hidden = layers.Flatten()(table(ids))
    dense = layers.Dense(2, activation="tanh", kernel_initializer=keras.initializers.Ones())
    scale = layers.Rescaling(0.1)
    return keras.Model(ids, dense(scale(hidden)))


def make_row_model(optimizer):
    ids = keras.Input(batch_shape=(BATCH, WIDTH), dtype="int32")
    table = models.RowEmbedding(ROWS, DIM, optimizer)
    model = network(table, ids)
    model.compile(keras.optimizers.SGD(0.3), loss="mse")
    return model, table


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_row_updates_equal_a_dense_optimizer(name):
    row, dense = OPTIMIZERS[name]
    model, table = make_row_model(row(0.5))
    ids = keras.Input(batch_shape=(BATCH, WIDTH), dtype="int32")
    start = to_numpy(table.table.kernel)
    one_hot = OneHotTable(start)
    expected = network(one_hot, ids)
    # Keras has one optimizer for all weights: the rest is held fixed in both.
    for other in (model, expected):
        other.layers[-1].trainable = False
        other.compile(dense(0.5), loss="mse")
    data = list(batches(6))
    for x, y in data:
        losses = [m.train_on_batch(x, y) for m in (model, expected)]
        assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    x = data[0][0]
    np.testing.assert_allclose(
        model.predict(x, verbose=0), expected.predict(x, verbose=0), atol=1e-5
    )
    found = to_numpy(table.table.kernel)
    np.testing.assert_allclose(found, to_numpy(one_hot.table), atol=1e-5)
    assert int(to_numpy(table.table.iterations)) == 6
    np.testing.assert_array_equal(found[ROWS - 3 :], start[ROWS - 3 :])


def test_an_update_is_made_once(tmp_path):
    """Lazy Adam would move again on a zero gradient; a saved model keeps what is pending."""
    model, table = make_row_model(softbench.RowAdam(0.1))
    x, y = next(batches(1))
    model.fit(x, y, batch_size=BATCH, epochs=2, verbose=0)
    assert int(to_numpy(table.pending)) == 1
    model.save(tmp_path / "model.keras")
    first = model.predict(x, verbose=0)
    state = values(table.table.variables)
    np.testing.assert_array_equal(model.predict(x, verbose=0), first)
    assert model.evaluate(x, y, batch_size=BATCH, verbose=0) > 0
    assert_all_equal(state, table.table.variables)
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(again.predict(x, verbose=0), first, atol=1e-6)


def test_row_embedding_rejects_bad_arguments():
    rejects("row_optimizer", models.RowEmbedding, 3, 2, "adam")
    layer = models.RowEmbedding(3, 2, softbench.RowSGD(0.1))
    rejects("ids", layer, keras.Input((4,), dtype="int32"))


def train_steps(encoder, inputs, head):
    model = softbench.Classifier(encoder, head, top_k=())
    model.compile(optimizer=keras.optimizers.Adam(0.05))
    labels = np.array([0, 1, 2], "int32")
    history = model.fit(
        inputs, labels, batch_size=BATCH, epochs=30, verbose=0, shuffle=False
    ).history["loss"]
    return history, model


ENCODERS = slow_but(["bag", "pair", "mlp", "lstm"], "pair", thorough=["lstm"])


@pytest.mark.parametrize("name", ENCODERS)
def test_encoders_with_row_tables_train_with_any_head(name, tmp_path):
    row = softbench.RowAdagrad(0.3)
    ids = np.array([[1, 4, 0], [2, 0, 0], [3, 5, 6]], "int32")
    weights = np.array([[0.5, -2.0, 0.0], [1.0, 3.0, 0.0], [1.0, 0.0, 0.0]], "float32")
    pair = [ids[:, 0], ids[:, 1] % 3]
    encoder, inputs = {
        "bag": lambda: (models.sparse_bag_encoder(9, DIM, True, row, (3, 3)), [ids, weights]),
        "pair": lambda: (models.pair_encoder(9, 3, DIM, row_optimizer=row, batch_size=3), pair),
        "mlp": lambda: (models.pair_encoder(9, 3, DIM, 8, 0.1, row, 3), pair),
        "lstm": lambda: (
            models.lstm_language_model(9, batch_size=3, num_steps=3, units=4, row_optimizer=row),
            ids,
        ),
    }[name]()
    (table,) = [x for x in encoder._flatten_layers() if isinstance(x, models.RowEmbedding)]
    before = to_numpy(table.table.kernel)
    if name == "lstm":
        encoder.compile(keras.optimizers.Adam(0.05), loss="mse")
        target = np.ones((3, 3, 4), "float32")
        losses = [float(encoder.train_on_batch(inputs, target)) for _ in range(30)]
    else:
        head = softbench.SampledSoftmax(3, "uniform", 2, row_optimizer=softbench.RowAdagrad(0.3))
        losses, _ = train_steps(encoder, inputs, head)
    assert losses[-1] < 0.6 * losses[0]
    expected = encoder.predict(inputs, batch_size=3, verbose=0)
    after = to_numpy(table.table.kernel)
    changed = (before != after).any(axis=1)
    assert changed[1:7].any() and not changed[7:].any()
    if name != "lstm":  # the carried state moves on
        again = saved_and_loaded(encoder, tmp_path)
        np.testing.assert_allclose(
            again.predict(inputs, batch_size=3, verbose=0), expected, atol=1e-6
        )


def test_pair_encoder_by_hand():
    model = models.pair_encoder(5, 3, 4)
    heads, relations = np.array([4, 0], "int32"), np.array([2, 1], "int32")
    entities, kinds = model.get_weights()
    np.testing.assert_allclose(
        model.predict([heads, relations], verbose=0), entities[heads] + kinds[relations], atol=1e-6
    )
    model = models.pair_encoder(5, 3, 4, hidden_units=6)
    entities, kinds, w1, b1, w2, b2 = model.get_weights()
    joined = np.concatenate([entities[heads], kinds[relations]], axis=1)
    expected = np.maximum(joined @ w1 + b1, 0) @ w2 + b2
    np.testing.assert_allclose(model.predict([heads, relations], verbose=0), expected, atol=1e-5)

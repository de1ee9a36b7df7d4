"""Heads on rows that a model computes from features."""

import importlib.util
import math

import keras
import numpy as np
import pytest
import reference
from conftest import (
    BACKEND,
    FixedSampler,
    compiled,
    gradient_function,
    rejects,
    thorough_but,
    to_numpy,
)
from small import (
    assert_all_close,
    classifier,
    functional,
    saved_and_loaded,
    spec,
    training,
    vectors,
)

import softbench
from softbench import item_tower
from softbench.experiments.step_time import towers
from softbench.samplers import Samples

N, F, D, HIDDEN = 40, 5, 3, 6
FORMS = {
    "plain": {},
    "no cap": {"use_bias": True, "normalize": True, "temperature": 0.5},
    "all": {"use_bias": True, "normalize": True, "temperature": 0.5, "logit_soft_cap": 1.5},
}


def mlp(columns=D, dropout=0.0):
    layers = [keras.layers.Dense(HIDDEN, activation="tanh"), keras.layers.Dense(columns)]
    return keras.Sequential(
        [layers[0], *[keras.layers.Dropout(dropout)] * (dropout > 0), layers[1]]
    )


def make_tower(units=N, model=None, **options):
    columns = D + options.get("use_bias", False)
    return softbench.ItemTower(model or mlp(columns), vectors(units, F), **options)


def sampled(sampler="uniform", num_sampled=8, **options):
    """A head on a tower of its own."""
    return softbench.SampledSoftmax(None, sampler, num_sampled, table=make_tower(), **options)


@keras.saving.register_keras_serializable("softbench_tests")
class CountRows(keras.layers.Layer):
    """Counts the rows that it sees."""

    def build(self, shape):
        self.rows = self.add_weight(shape=(), dtype="int32", trainable=False, name="rows")

    def call(self, x):
        self.rows.assign_add(keras.ops.shape(x)[0])
        return x


class SizesSeen(keras.layers.Layer):
    """Keeps the numbers of rows that it is called with, where these are fixed."""

    def call(self, x):
        sizes = self.__dict__.setdefault("sizes", set())
        sizes.update({x.shape[0]} if isinstance(x.shape[0], int) else ())
        return x


# ------------------------------------------------------------------------------ gradients


def oracle_scores(weights, form, hidden):
    """Scores (B, n) of all items in float64, for weights of `mlp` by themselves."""
    first, offset, second, last = weights
    rows = np.tanh(vectors(N, F).astype(float) @ first + offset) @ second + last
    rows, bias = (rows[:, :-1], rows[:, -1]) if form.get("use_bias") else (rows, None)
    options = form.get("normalize", False), form.get("temperature", 1.0)
    scores, cap = reference.scores(hidden, rows, bias, *options), form.get("logit_soft_cap")
    return scores if cap is None else cap * np.tanh(scores / cap)


def head_and_oracle_gradients(head, form, labels, loss_of_scores, xla=False):
    """Both of the mean training loss, by hidden and by the weights of the tower."""
    weights = head.table.model.trainable_variables
    hidden = vectors(len(labels), D, seed=1)
    mean = lambda h, y: keras.ops.mean(head(h, y, training=True))  # noqa: E731
    value, found = gradient_function(mean, head, weights, xla)(hidden, labels)
    arrays = [hidden.astype(float), *(to_numpy(w).astype(float) for w in weights)]
    loss = lambda a: loss_of_scores(oracle_scores(a[1:], form, a[0])).mean()  # noqa: E731
    assert value == pytest.approx(loss(arrays), rel=1e-5)
    return found, reference.differences(loss, arrays)


XLA = {"shared, XLA": (1, True)} if BACKEND == "tensorflow" else {}
DRAWS = {"shared": (1, False), "per example": (7, False), **XLA}


# Each form and each way of drawing; the others are their products.
PAIRS = [("plain", "per example"), ("all", "shared"), *(("all", name) for name in XLA)]


@pytest.mark.parametrize(("form", "draws"), PAIRS)
def test_gradients_are_those_of_all_rows_with_the_same_draws(form, draws):
    """Labels and draws repeat each other and themselves: a row gets the sum of its gradients."""
    (rows, xla), generator = DRAWS[draws], np.random.default_rng(3)
    labels = np.array([4, 9, 4, 30, 2, 9, 39], "int32")
    ids = generator.integers(0, N, (rows, 12)).astype("int32")
    ids[:, :3] = [4, 17, 17]
    log_count = generator.normal(size=ids.shape).astype("float32")
    sampler = FixedSampler(Samples(ids, log_count, None))
    table = make_tower(**FORMS[form])
    head = softbench.SampledSoftmax(None, sampler, 12, table=table)
    head.build((None, D))

    def losses(scores):
        example = np.arange(7)
        true = scores[example, labels]
        drawn = np.broadcast_to(ids, (7, 12))
        others = scores[example[:, None], drawn] - log_count
        others = np.where(drawn == labels[:, None], -np.inf, others)
        return np.logaddexp(true, np.logaddexp.reduce(others, axis=1)) - true

    found, expected = head_and_oracle_gradients(head, FORMS[form], labels, losses, xla)
    assert_all_close(found, expected, rtol=1e-5, atol=1e-5)


CHUNKS = [("all", 7, 0.0, False), ("plain", 7, 0.1, BACKEND == "tensorflow")]
CHUNKS += [("all", N, 0.1, False)]


@pytest.mark.parametrize(("form", "chunk", "smoothing", "xla"), CHUNKS)
def test_gradients_of_the_full_softmax(form, chunk, smoothing, xla, monkeypatch):
    """In chunks, the last one not full, whose gradient computes each again; and at once."""
    monkeypatch.setattr(item_tower, "CHUNK", chunk)
    labels = np.array([4, 9, 4, 30], "int32")
    tower = make_tower(**FORMS[form])
    head = softbench.FullSoftmax(table=tower, label_smoothing=smoothing)
    head.build((None, D))

    def losses(scores):
        return reference.smoothed_loss(scores, labels, smoothing)

    found, expected = head_and_oracle_gradients(head, FORMS[form], labels, losses, xla)
    assert_all_close(found, expected, rtol=1e-5, atol=1e-5)


# ------------------------------------------------------------------------------ what is computed


SHARED = spec("uniform", share_draws=True)
# Sampler, draws, labels, items; rows that a step computes, and on JAX, whose shapes are fixed.
STEPS = {
    "one label": (SHARED, 10, np.full(30, 7), 2000, range(2, 12), 20),
    "in-batch negatives": ("in_batch", 40, np.arange(100, 140), 2000, range(40, 41), 40),
    "few repetitions": (SHARED, 50, np.arange(100, 140), 2000, range(80, 91), 90),
    "more draws than items": (SHARED, 90, np.arange(5), 11, range(5, 12), 11),
}


@pytest.mark.parametrize("case", STEPS)
def test_a_step_computes_the_distinct_rows_alone(case):
    """Of 2,000 items the labels and the draws, each once; on JAX as many as there may be."""
    sampler, num_sampled, labels, units, found, on_jax = STEPS[case]
    counter = CountRows()
    tower = make_tower(units, keras.Sequential([counter, keras.layers.Dense(D)]))
    head = softbench.SampledSoftmax(None, sampler, num_sampled, table=tower)
    functional(head, D).train_on_batch([vectors(len(labels), D), labels.astype("int32")])
    assert int(counter.rows) in ([on_jax] if BACKEND == "jax" else found)


def test_the_products_beside_a_step_are_those_of_as_many_distinct_rows():
    """What `configs/item_tower.py` times without a head, against NumPy."""
    own = {"features": F, "hidden": HIDDEN}
    tower, size, draws = towers.item_tower(own, N, D, seed=3), 4, 6
    layer, table = towers.Products(tower, draws), to_numpy(tower.rows(np.arange(N)))
    labels = np.array([7, 1, 2, 3], "int32")
    rows = to_numpy(layer(vectors(size, D), labels))
    distances = np.abs(rows[:, None] - table).max(-1)  # (B + m, n)
    np.testing.assert_allclose(distances.min(1), 0.0, atol=1e-6)
    assert len(set(distances.argmin(1))) == size + draws and distances[0].argmin() == 7
    (loss,) = layer.losses
    assert_all_close([loss], [np.sum(rows.astype(np.float64) ** 2)], rtol=1e-5)
    weights = tower.model.trainable_variables
    assert len(weights) == 4

    def loss_of(hidden, labels):
        return keras.ops.sum(keras.ops.square(layer(hidden, labels)))

    _, found = gradient_function(loss_of, layer, weights)(vectors(size, D), labels)
    assert all(np.abs(gradient).max() > 0 for gradient in found[1:])


def test_no_more_than_a_chunk_is_held_of_the_inner_layers(monkeypatch):
    """Of 40 items never more than 16 at once: scores, best items, an index, a codebook, a loss."""
    monkeypatch.setattr(item_tower, "CHUNK", 16)
    seen = SizesSeen()
    tower = make_tower(model=keras.Sequential([keras.layers.Dense(HIDDEN), seen]))
    assert tower.width == HIDDEN
    head, hidden = softbench.FullSoftmax(table=tower), vectors(4, HIDDEN)
    labels = np.arange(4, dtype="int32")
    head(hidden)
    head(hidden, labels)
    head.top_k(hidden, 3)
    softbench.serving.Index(head, num_cells=3)
    functional(head, HIDDEN).train_on_batch([hidden, labels])
    follows = softbench.SampledSoftmax(None, spec("codebook", share_draws=True), 4, table=tower)
    follows.build((None, HIDDEN))
    training(follows)(hidden, labels)
    assert max(vars(seen)["sizes"]) == 16


@pytest.mark.skipif(BACKEND != "jax", reason="constants of a program are JAX's")
def test_features_are_no_constants_of_a_compiled_step():
    import jax

    head = sampled()
    head.build((None, D))
    variables = head.variables

    def step(values, hidden, labels):
        with keras.StatelessScope(zip(variables, values, strict=True)):
            return head(hidden, labels, training=True)

    program = jax.make_jaxpr(step)([v.value for v in variables], vectors(4, D), np.arange(4))
    assert max((math.prod(np.shape(c)) for c in program.consts), default=0) < N


def test_the_model_is_in_training_mode_for_the_loss_alone():
    """Batch normalisation: moving means of labels and draws in a step, of nothing elsewhere."""
    norm = keras.layers.BatchNormalization(momentum=0.0)
    tower = make_tower(model=keras.Sequential([norm, keras.layers.Dense(D)]))
    labels = np.array([3, 3, 5, 5], "int32")
    exact = softbench.SampledSoftmax(None, "codebook", 8, table=tower)
    functional(exact, D).evaluate([vectors(4, D), labels], verbose=0)
    exact.sampler.refresh(tower)
    np.testing.assert_array_equal(to_numpy(norm.moving_mean), np.zeros(F))
    ids = np.array([[5, 5, 3, 3, 3, 3, 3, 3]], "int32")
    sampler = FixedSampler(Samples(ids, np.zeros((1, 8), "float32"), None))
    head = softbench.SampledSoftmax(None, sampler, 8, table=tower)
    functional(head, D).train_on_batch([vectors(4, D), labels])
    means = vectors(N, F)[[3, 5]].mean(axis=0)  # each once
    np.testing.assert_allclose(to_numpy(norm.moving_mean), means, rtol=1e-5)


def test_dropout_is_of_training_alone():
    head = softbench.FullSoftmax(table=make_tower(model=mlp(dropout=0.5)))
    hidden, labels = vectors(4, D), np.arange(4, dtype="int32")
    exact = [to_numpy(head(hidden, labels)) for _ in range(2)]
    trained = [to_numpy(head(hidden, labels, training=True)) for _ in range(2)]
    np.testing.assert_array_equal(*exact)
    assert np.abs(trained[0] - trained[1]).max() > 1e-3


@pytest.mark.parametrize("kind", ["dropout", "losses"])
def test_what_chunks_cannot_give_is_refused(kind, monkeypatch):
    monkeypatch.setattr(item_tower, "CHUNK", 7)
    model = mlp(dropout=0.5)
    if kind == "losses":
        model = keras.layers.Dense(D, activity_regularizer="l2")
    head = softbench.FullSoftmax(table=make_tower(model=model))
    hidden, labels = vectors(4, D), np.arange(4, dtype="int32")
    head(hidden, labels)
    rejects("table", head, hidden, labels, training=True)


def test_losses_of_the_model_count():
    """An activity regularizer: the sum of squares of the rows that a step computes."""
    layer = keras.layers.Dense(D, activity_regularizer=keras.regularizers.L2(1.0))
    tower = make_tower(model=layer)
    ids = np.array([[5, 3, 5, 3]], "int32")
    sampler = FixedSampler(Samples(ids, np.zeros((1, 4), "float32"), None))
    head = softbench.SampledSoftmax(None, sampler, 4, table=tower)
    model = functional(head, D, optimizer=keras.optimizers.SGD(0.0))
    hidden, labels = vectors(2, D), np.array([3, 5], "int32")
    total = model.train_on_batch([hidden, labels])
    each = to_numpy(head(hidden, labels, training=True)).mean()
    rows = to_numpy(tower.rows(np.array([3, 5])))
    added = np.square(rows).sum() / 2  # Keras divides by the rows that the layer was called with
    assert total == pytest.approx(each + added, rel=1e-5)


# ------------------------------------------------------------------------------ samplers, saving

# What keeps something of the rows, or of the steps.
SAMPLERS = {
    "in_batch": "in_batch",
    "codebook": spec("codebook", num_codewords=4, refresh_every=2),
    "top_and_tail": spec("top_and_tail", num_top=4, counts=list(range(1, N + 1)), share_draws=4),
    "rff": spec("rff", num_features=16, refresh_every=2),
}


# A codebook takes TensorFlow twice as long to compile.
QUICK = ("in_batch", "codebook") if BACKEND == "jax" else ("in_batch",)


@pytest.mark.parametrize("name", thorough_but(SAMPLERS, *QUICK))
def test_every_sampler_trains_and_is_saved(name, tmp_path):
    """With a bias, which kernels and codebooks weigh items by. Loaded, the next steps are equal."""
    tower = make_tower(use_bias=True)
    head = softbench.SampledSoftmax(None, SAMPLERS[name], 8, table=tower, seed=2)
    model = functional(head, D, optimizer=keras.optimizers.Adam(0.05))
    labels = np.arange(32, dtype="int32") % N
    batch = [4 * vectors(32, D), labels]
    before = model.evaluate(batch, verbose=0)
    for _ in range(40):
        model.train_on_batch(batch)
    assert model.evaluate(batch, verbose=0) < before - 0.2
    loaded = saved_and_loaded(model, tmp_path)
    assert loaded.evaluate(batch, verbose=0) == model.evaluate(batch, verbose=0)
    for _ in range(3):
        assert loaded.train_on_batch(batch) == model.train_on_batch(batch)


def test_samplers_that_follow_the_table_pass_over_it_at_their_turn():
    """After a refresh the draws are by the rows as they are."""
    head = sampled(spec("rff", num_features=16, refresh_every=3))
    head.build((None, D))
    for variable in head.table.model.trainable_variables:
        variable.assign(3 * to_numpy(variable))
    hidden, labels = vectors(4, D), np.arange(4, dtype="int32")
    log_prob = compiled(lambda h: head.sampler.log_prob(head.table, h), head)
    stale = to_numpy(log_prob(hidden))
    training(head)(hidden, labels)  # the first step of three
    stepped = to_numpy(log_prob(hidden))
    assert np.abs(stepped - stale).max() > 1e-2
    head.sampler.refresh(head.table)
    np.testing.assert_allclose(stepped, to_numpy(log_prob(hidden)), rtol=1e-3, atol=1e-3)


def test_features_are_saved_once_and_not_trained(tmp_path):
    tower = softbench.ItemTower(
        keras.Sequential([keras.Input((F,)), mlp()]), vectors(N, F), normalize=True
    )
    second = softbench.SampledSoftmax(None, "uniform", 8, table=tower)
    heads = [softbench.FullSoftmax(table=tower), second]
    x, y = keras.Input((D,)), keras.Input((), dtype="int32")
    model = keras.Model([x, y], [head(x, y) for head in heads])
    model.compile("adam")
    batch = [vectors(8, D), np.arange(8, dtype="int32")]
    model.train_on_batch(batch)
    assert [tuple(w.shape) for w in model.weights].count((N, F)) == 1
    assert len(model.trainable_weights) == 4
    np.testing.assert_array_equal(to_numpy(tower.features), vectors(N, F))
    loaded = saved_and_loaded(model, tmp_path)
    assert len(loaded.weights) == len(model.weights)
    tables = {id(layer.table) for layer in loaded.layers if hasattr(layer, "table")}
    assert len(tables) == 1
    assert loaded.train_on_batch(batch) == model.train_on_batch(batch)
    with pytest.raises(ValueError, match="share"):
        keras.models.clone_model(model)


def test_a_copy_without_features_is_refused():
    head = sampled()
    copy = softbench.SampledSoftmax.from_config(head.get_config())
    copy.build((None, D))
    rejects("features", copy, vectors(2, D))
    rejects("features", copy.table.extended, vectors(2, F))
    rejects("features", copy.table.precomputed)


def test_a_classifier_with_half_precision(tmp_path):
    policy = keras.dtype_policies.DTypePolicy("mixed_bfloat16")
    model = keras.Sequential([keras.layers.Dense(HIDDEN, dtype=policy), keras.layers.Dense(D)])
    tower = softbench.ItemTower(model, vectors(N, F), dtype=policy)
    head = softbench.SampledSoftmax(None, "uniform", 8, table=tower, dtype=policy)
    model = classifier(head, 4, D, "adam")
    x, y = vectors(16, 4), np.arange(16, dtype="int32")
    model.fit(x, y, verbose=0)
    loaded = saved_and_loaded(model, tmp_path)
    np.testing.assert_array_equal(loaded.predict(x, verbose=0), model.predict(x, verbose=0))


# ------------------------------------------------------------------------------ all items


@pytest.mark.parametrize("form", FORMS)
def test_scores_top_k_and_index_are_of_all_items(form, monkeypatch):
    monkeypatch.setattr(item_tower, "CHUNK", 16)
    head = softbench.FullSoftmax(table=make_tower(**FORMS[form]))
    hidden = vectors(6, D, seed=1)
    scores = to_numpy(head(hidden))
    weights = [to_numpy(w).astype(float) for w in head.table.model.weights]
    expected = oracle_scores(weights, FORMS[form], hidden.astype(float))
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-5)
    best = np.argsort(-expected, axis=1)[:, :5]
    np.testing.assert_array_equal(to_numpy(head.top_k(hidden, 5)[1]), best)
    fresh = softbench.FullSoftmax(table=head.table)  # never called
    np.testing.assert_array_equal(to_numpy(fresh.top_k(hidden, 5)[1]), best)
    ready = softbench.FullSoftmax(table=head.table.precomputed())
    np.testing.assert_allclose(to_numpy(ready(hidden)), expected, rtol=1e-5, atol=1e-5)
    assert not ready.trainable_weights
    if "logit_soft_cap" in FORMS[form]:
        rejects("logit_soft_cap", softbench.serving.Index, head)
        return
    fresh = softbench.FullSoftmax(table=head.table)
    for each in (head, ready, fresh):
        index = softbench.serving.Index(each, num_cells=4)
        options = {"approximate": index, "num_candidates": N}
        np.testing.assert_array_equal(to_numpy(each.top_k(hidden, 5, **options)[1]), best)


def test_new_items_are_found_by_their_content(tmp_path):
    """300 items of 10 topics. 15 of them, no label and no draw of the training, are recommended to
    those whose topic they are of: among 15 new items at random it would be about 1 in 10.
    """
    generator = np.random.default_rng(0)
    units, topics = 300, 10
    topic = generator.integers(0, topics, units)
    features = np.eye(topics)[topic] + generator.normal(0, 0.2, (units, topics))
    known = 285
    layers = [keras.layers.Dense(32, activation="relu"), keras.layers.Dense(16)]
    tower = softbench.ItemTower(keras.Sequential(layers), features[:known])
    head = softbench.SampledSoftmax(None, spec("uniform", share_draws=True), 100, table=tower)
    users = generator.integers(0, topics, 2000)
    taken = [generator.choice(np.flatnonzero(topic[:known] == t)) for t in users]
    hidden = np.eye(topics)[users].astype("float32")
    model = classifier(head, topics, 16, keras.optimizers.Adam(0.01))
    model.fit(hidden, np.array(taken, "int32"), batch_size=100, epochs=10, verbose=0)
    model = saved_and_loaded(model, tmp_path)
    more = model.head.table.extended(features[known:])
    encoded = model.encoder(np.eye(topics, dtype="float32"))
    whole = softbench.FullSoftmax(table=more)
    scores = to_numpy(whole(encoded))
    assert scores.shape == (topics, units)
    np.testing.assert_allclose(scores[:, :known], to_numpy(model.head(encoded)), atol=1e-5)
    best_new = known + np.argmax(scores[:, known:], axis=1)
    has_new = np.isin(np.arange(topics), topic[known:])
    right = topic[best_new] == np.arange(topics)
    assert has_new.sum() >= 5 and right[has_new].mean() >= 0.7
    found = to_numpy(whole.top_k(encoded, 40)[1])
    of_topic = [
        np.isin(np.flatnonzero(topic[known:] == t) + known, found[t]).mean()
        for t in np.flatnonzero(has_new)
    ]
    assert np.mean(of_topic) >= 0.8  # at random 40 of 300


def test_extended_twice_and_saved(tmp_path):
    """Of features by name, an id among them; training goes on with a new head."""
    ids = keras.Input((), dtype="int32", name="id")
    content = keras.Input((F,), name="content")
    joined = keras.layers.Concatenate()([keras.layers.Embedding(N, 4)(ids), content])
    model = keras.Model({"id": ids, "content": content}, keras.layers.Dense(D)(joined))
    features = {"id": np.arange(N), "content": vectors(N, F)}
    tower = softbench.ItemTower(model, features, temperature=0.3)
    more = tower.extended({"id": [0, 0], "content": vectors(2, F, seed=7)})
    more = more.extended({"content": vectors(1, F, seed=8), "id": np.array([0], "int64")})
    assert more.units == N + 3 and more.model is model and more.temperature == 0.3
    rows = to_numpy(more.rows(np.arange(N + 3)))
    np.testing.assert_allclose(rows[:N], to_numpy(tower.rows(np.arange(N))), atol=1e-6)
    expected = model({"id": np.zeros(1, "int32"), "content": vectors(1, F, seed=8)})
    np.testing.assert_allclose(rows[-1:], to_numpy(expected), atol=1e-6)
    head = softbench.SampledSoftmax(None, "uniform", 8, table=more)
    trained = functional(head, D, "adam")
    batch = [vectors(4, D), np.array([N + 2, 0, 1, N], "int32")]
    trained.train_on_batch(batch)
    loaded = saved_and_loaded(trained, tmp_path)
    assert loaded.train_on_batch(batch) == trained.train_on_batch(batch)
    rejects("features", more.extended, {"content": vectors(1, F)})
    rejects("features", more.extended, {"id": [0], "content": vectors(1, F + 1)})
    rejects("features", more.extended, {"id": [0.5], "content": vectors(1, F)})
    rejects("features", more.extended, vectors(1, F))


def test_the_tower_reads_histories_too(tmp_path):
    """`TiedEmbedding`: the rows of a user's items are the input, and get both gradients."""
    tower = make_tower()
    history, label = keras.Input((4,), dtype="int32"), keras.Input((), dtype="int32")
    rows = softbench.TiedEmbedding(tower)(history)
    hidden = keras.layers.GlobalAveragePooling1D()(rows)
    model = keras.Model([history, label], softbench.FullSoftmax(table=tower)(hidden, label))
    model.compile(keras.optimizers.SGD(0.1))
    items, labels = np.arange(12, dtype="int32").reshape(3, 4), np.array([1, 4, 8], "int32")
    features = vectors(N, F).astype(float)
    weights = [to_numpy(w).astype(float) for w in tower.model.trainable_variables]

    def loss(arrays):
        first, offset, second, last = arrays
        rows = np.tanh(features @ first + offset) @ second + last
        scores = rows[items].mean(axis=1) @ rows.T
        return (np.logaddexp.reduce(scores, axis=1) - scores[np.arange(3), labels]).mean()

    expected = [
        w - 0.1 * g for w, g in zip(weights, reference.differences(loss, weights), strict=True)
    ]
    model.train_on_batch([items, labels])
    assert_all_close(tower.model.trainable_variables, expected)
    loaded = saved_and_loaded(model, tmp_path)
    assert len(loaded.weights) == len(model.weights)
    assert loaded.train_on_batch([items, labels]) == model.train_on_batch([items, labels])


def test_frozen():
    """`trainable=False` on the head stops the tower, and only it."""
    head = sampled()
    model = functional(head, D, keras.optimizers.SGD(1.0), keras.layers.Dense(D))
    batch = [vectors(4, D), np.arange(4, dtype="int32")]
    model.train_on_batch(batch)
    head.trainable = False
    model.compile(keras.optimizers.SGD(1.0))
    before = [to_numpy(w).copy() for w in head.table.model.weights]
    encoder = to_numpy(model.trainable_weights[0]).copy()
    model.train_on_batch(batch)
    assert_all_close(head.table.model.weights, before, rtol=0, atol=0)
    assert np.abs(to_numpy(model.trainable_weights[0]) - encoder).max() > 0


HEADS = {
    "nce": lambda t: softbench.NoiseContrastive(
        table=t, sampler="log_uniform", num_sampled=8, regularization=0.1, regularization_samples=4
    ),
    "bucketed": lambda t: softbench.BucketedSoftmax(table=t),
    "max_valid": lambda t: softbench.SampledSoftmax(
        None, "uniform", 8, table=t, max_valid=0.5, ignore_index=-1
    ),
}


@pytest.mark.parametrize("name", HEADS)
def test_other_heads_train_the_tower(name):
    head = HEADS[name](make_tower(model=mlp(dropout=0.1)))
    model = functional(head, D, keras.optimizers.Adam(0.05))
    labels = np.arange(32, dtype="int32") % N
    if name == "max_valid":
        labels[:20] = -1
    before = [to_numpy(w).copy() for w in head.table.model.trainable_variables]
    losses = [model.train_on_batch([4 * vectors(32, D), labels]) for _ in range(30)]
    assert np.mean(losses[-5:]) < np.mean(losses[:5])
    for weight, old in zip(head.table.model.trainable_variables, before, strict=True):
        assert np.abs(to_numpy(weight) - old).max() > 1e-3


# ------------------------------------------------------------------------------ refusals


def test_row_optimizers_are_refused_with_the_reason():
    rows = softbench.RowAdagrad(0.1)
    options = {"table": make_tower(), "row_optimizer": rows}
    assert "computes its rows" in rejects("row_optimizer", softbench.SampledSoftmax, **options)
    tower = rejects("row_optimizer", softbench.ItemTower, mlp(), vectors(N, F), row_optimizer=rows)
    assert "computes its rows" in tower


def test_refusals():
    make = softbench.ItemTower
    rejects("model", make, lambda x: x, vectors(N, F))
    rejects("model", make, keras.layers.Reshape((F, 1)), vectors(N, F))
    rejects("model", make, keras.layers.Dense(1), vectors(N, F), use_bias=True)
    rejects("model", make, keras.layers.Identity(), {"a": vectors(N, F)})
    for wrong in ([], {}, {1: vectors(N, F)}, np.array(["red", "blue"]), 3.0, np.zeros((0, 4))):
        rejects("features", make, mlp(), wrong)
    rejects("features", make, mlp(), {"a": vectors(3, F), "b": vectors(4, F)})
    assert "features['a']" in rejects("features['a']", make, mlp(), {"a": [np.nan, 1.0]})
    rejects("features", make, mlp(), np.array([[1e300]]))
    rejects("features", make, mlp(), np.array([[2**40]]))
    rejects("temperature", make, mlp(), vectors(N, F), temperature=0)
    rejects("normalize", softbench.FullSoftmax, table=make_tower(), normalize=True)
    rejects("hidden", softbench.FullSoftmax(table=make_tower()), vectors(2, D + 1))


# ------------------------------------------------------------------------------ keras-rs

HAS_RS = importlib.util.find_spec("keras_rs") is not None


@pytest.mark.skipif(not HAS_RS, reason="keras_rs is not installed: pip install softbench[test]")
def test_with_layers_of_keras_rs(tmp_path):
    """Its embedding of several tags an item in the tower, and its retrieval layer at the end."""
    import keras_rs

    tags = keras.Input((3,), dtype="int32", name="tags")
    content = keras.Input((F,), name="content")
    embedded = keras_rs.layers.EmbedReduce(20, 4, combiner="mean")(tags)
    crossed = keras_rs.layers.FeatureCross()(keras.layers.Concatenate()([embedded, content]))
    model = keras.Model({"tags": tags, "content": content}, keras.layers.Dense(D)(crossed))
    generator = np.random.default_rng(0)
    features = {"tags": generator.integers(0, 20, (N, 3)), "content": vectors(N, F)}
    tower = softbench.ItemTower(model, features, normalize=True, temperature=0.1)
    head = softbench.SampledSoftmax(None, "in_batch", 16, table=tower)
    trained = functional(head, D, keras.optimizers.Adam(0.05))
    batch = [vectors(16, D), np.arange(16, dtype="int32")]
    before = trained.evaluate(batch, verbose=0)
    trained.fit(batch, epochs=30, verbose=0)
    assert trained.evaluate(batch, verbose=0) < before - 0.5
    retrieval = keras_rs.layers.BruteForceRetrieval(head.index_vectors(), k=5)
    scores, ids = (to_numpy(x) for x in retrieval(head.index_queries(batch[0])))
    best, expected = (to_numpy(x) for x in head.top_k(batch[0], 5))
    np.testing.assert_array_equal(ids, expected)
    np.testing.assert_allclose(scores, best, rtol=1e-4)
    loaded = saved_and_loaded(trained, tmp_path)
    assert loaded.evaluate(batch, verbose=0) == trained.evaluate(batch, verbose=0)

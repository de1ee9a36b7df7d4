"""Heads on the rows of a Keras embedding layer: equal to its own reverse projection."""

import importlib.util

import keras
import numpy as np
import pytest
from conftest import rejects, thorough_but, to_numpy
from small import saved_and_loaded

import softbench

N, D, T, ROWS = 50, 8, 6, 16
LAYERS = {
    "embedding": lambda: keras.layers.Embedding(N, D),
    "tied": lambda: keras.layers.ReversibleEmbedding(N, D),
    "untied": lambda: keras.layers.ReversibleEmbedding(N, D, tie_weights=False),
    "soft cap": lambda: keras.layers.ReversibleEmbedding(N, D, logit_soft_cap=0.05),
    "lora": lambda: keras.layers.ReversibleEmbedding(N, D, lora_rank=2),
}


class Reverse(keras.layers.Layer):
    """The scores (..., n) that the layer itself makes of hidden vectors."""

    def __init__(self, embedding):
        super().__init__()
        self.embedding = embedding

    def call(self, hidden):
        if not isinstance(self.embedding, keras.layers.ReversibleEmbedding):
            return keras.ops.matmul(hidden, keras.ops.transpose(self.embedding.embeddings))
        return self.embedding(hidden, reverse=True)


def models(name):
    """(a model with the head, a Keras model that makes all scores, the layer): equal weights."""

    def parts():
        keras.utils.set_random_seed(3)
        embedding = LAYERS[name]()
        tokens = keras.Input((T,), dtype="int32")
        return embedding, tokens, keras.layers.Dense(D, activation="tanh")(embedding(tokens))

    embedding, tokens, hidden = parts()
    labels = keras.Input((T,), dtype="int32")
    head = softbench.FullSoftmax(table=embedding)
    ours = keras.Model([tokens, labels], head(hidden, labels))
    ours.compile(keras.optimizers.SGD(0.5, momentum=0.9))
    other, tokens, hidden = parts()
    plain = keras.Model(tokens, Reverse(other)(hidden))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    plain.compile(keras.optimizers.SGD(0.5, momentum=0.9), loss=loss)
    return ours, plain, head


@pytest.fixture(scope="module")
def batch():
    generator = np.random.default_rng(0)
    return generator.integers(0, N, (2, ROWS, T)).astype("int32")


def assert_equal_weights(model, other, **tolerance):
    weights = {w.path.split("/", 1)[1]: to_numpy(w) for w in model.trainable_weights}
    others = {w.path.split("/", 1)[1]: to_numpy(w) for w in other.trainable_weights}
    assert weights.keys() == others.keys()
    for path, value in weights.items():
        np.testing.assert_allclose(value, others[path], **tolerance)


@pytest.mark.parametrize("name", thorough_but(LAYERS, "soft cap", "untied"))
def test_trains_as_the_layer_itself_and_is_saved_once(name, batch, tmp_path):
    """Twenty steps: losses and weights, of which the rows get both gradients; loaded as one."""
    ours, plain, head = models(name)
    before = to_numpy(ours.trainable_weights[0])
    for _ in range(20):
        loss = ours.train_on_batch(list(batch))
        np.testing.assert_allclose(loss, plain.train_on_batch(*batch), rtol=1e-5)
    assert_equal_weights(ours, plain, rtol=1e-5, atol=1e-6)
    assert np.abs(to_numpy(ours.trainable_weights[0]) - before).max() > 1e-4
    assert len(ours.weights) == len(plain.weights)  # one variable for both uses
    hidden = np.random.default_rng(1).normal(size=(4, D)).astype("float32")
    scores = to_numpy(head(hidden))
    np.testing.assert_allclose(scores, Reverse(head.table.embedding)(hidden), atol=1e-5)
    best = np.argsort(-scores, axis=1, kind="stable")[:, :3]
    np.testing.assert_array_equal(to_numpy(head.top_k(hidden, 3)[1]), best)
    loaded = saved_and_loaded(ours, tmp_path)
    if name == "lora":  # Keras saves the effective rows, and begins anew what is added to them
        assert loaded.test_on_batch(list(batch)) == ours.test_on_batch(list(batch))
        return
    for _ in range(2):
        assert loaded.train_on_batch(list(batch)) == ours.train_on_batch(list(batch))
    assert_equal_weights(loaded, ours, rtol=0)


def sampled(name, embedding):
    """A head of a sampler's name, or the one that looks for the best classes of directions."""
    if name == "bucketed":
        return softbench.BucketedSoftmax(table=embedding, num_buckets=8, bucket_classes=40, seed=1)
    return softbench.SampledSoftmax(None, name, 20, table=embedding, seed=1)


QUICK = (("rff", "untied"), ("codebook", "lora"))
# Of "untied" and "lora" samplers pass over all classes, by themselves.
TRAINED = [*QUICK, ("in_batch", "tied"), ("bucketed", "lora")]


@pytest.mark.parametrize(("name", "kind"), thorough_but(TRAINED, *QUICK))
def test_sampled_losses_train_the_rows(name, kind, batch, tmp_path):
    """Of "untied" and "lora" the rows are computed, and of no variable (n, d)."""
    options = {"embeddings_initializer": "random_normal", "tie_weights": kind != "untied"}
    options |= {"lora_rank": 6} if kind == "lora" else {}
    embedding = keras.layers.ReversibleEmbedding(N, D, **options)
    head = sampled(name, embedding)
    tokens, labels = (keras.Input((T,), dtype="int32") for _ in range(2))
    model = keras.Model([tokens, labels], head(embedding(tokens), labels))
    model.compile(keras.optimizers.Adam(0.05))
    batch = [batch[0], batch[0]]  # each token its own label
    first = model.evaluate(batch, verbose=0)
    for _ in range(20):
        model.train_on_batch(batch)
    assert model.evaluate(batch, verbose=0) < 0.7 * first
    loaded = saved_and_loaded(model, tmp_path)
    assert loaded.evaluate(batch, verbose=0) == model.evaluate(batch, verbose=0)


def test_two_heads_on_one_layer(batch):
    embedding = keras.layers.ReversibleEmbedding(N, D)
    tokens, labels = (keras.Input((T,), dtype="int32") for _ in range(2))
    hidden = embedding(tokens)
    heads = [softbench.FullSoftmax(table=embedding) for _ in range(2)]
    model = keras.Model([tokens, labels], [head(hidden, labels) for head in heads])
    assert [tuple(w.shape) for w in model.weights] == [(N, D)]
    both = to_numpy(model(list(batch))[0]), to_numpy(model(list(batch))[1])
    np.testing.assert_array_equal(*both)


def test_reverse_dtype_is_that_of_the_products():
    layer = keras.layers.ReversibleEmbedding(N, D, reverse_dtype="bfloat16")
    assert softbench.EmbeddingTable(layer).compute_dtype == "bfloat16"


@pytest.mark.parametrize("normalize", [False, True])
def test_the_soft_cap_of_a_class_table(normalize):
    """score = L tanh(<h, c> / (L T) + b / L), and its loss."""
    table = softbench.ClassTable(
        N, D, temperature=0.5, normalize=normalize, logit_soft_cap=2.0, seed=0
    )
    table.bias.assign(np.linspace(-1, 1, N))
    hidden = np.random.default_rng(0).normal(size=(5, D)).astype("float32")
    rows, vectors = to_numpy(table.kernel).astype("float64"), hidden.astype("float64")
    if normalize:
        rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    scores = 2 * np.tanh((vectors @ rows.T / 0.5 + np.linspace(-1, 1, N)) / 2)
    head = softbench.FullSoftmax(table=table)
    np.testing.assert_allclose(to_numpy(head(hidden)), scores, rtol=1e-5, atol=1e-5)
    labels = np.arange(5)
    expected = np.log(np.exp(scores).sum(1)) - scores[np.arange(5), labels]
    for training in (True, False):
        losses = to_numpy(head(hidden, labels, training=training))
        np.testing.assert_allclose(losses, expected, rtol=1e-5)


def test_refusals():
    rejects("table", softbench.FullSoftmax, table=keras.layers.Dense(3))
    rejects("units", softbench.FullSoftmax, 3, table=keras.layers.Embedding(N, D))
    rejects("embedding", softbench.EmbeddingTable, keras.layers.Dense(3))
    rejects("logit_soft_cap", softbench.ClassTable, 3, logit_soft_cap=0.0)
    layer = keras.layers.ReversibleEmbedding(N, D, logit_soft_cap=1.0)
    head = softbench.FullSoftmax(table=layer)
    head(np.zeros((2, D), "float32"))
    rejects("logit_soft_cap", head.index_vectors)


def test_a_quantised_layer_is_refused():
    layer = keras.layers.Embedding(N, D)
    layer.build()
    head = softbench.FullSoftmax(table=layer)
    head(np.zeros((2, D), "float32"))
    layer.quantize("int8")
    rejects("embedding", head, np.zeros((2, D), "float32"))
    rejects("embedding", softbench.EmbeddingTable, layer)


HAS_HUB = importlib.util.find_spec("keras_hub") is not None


def backbone(name):
    """A small language model of KerasHub with random weights."""
    import keras_hub

    keras.utils.set_random_seed(1)
    options = {"vocabulary_size": 300, "num_layers": 1, "hidden_dim": 16, "intermediate_dim": 32}
    if name == "GPT2":
        options |= {"num_heads": 2, "max_sequence_length": 16, "dropout": 0.0}
        return keras_hub.models.GPT2Backbone(**options)
    options |= {"num_query_heads": 2, "num_key_value_heads": 1, "head_dim": 8}
    return keras_hub.models.GemmaBackbone(**options, final_logit_soft_cap=5.0)


@pytest.mark.skipif(not HAS_HUB, reason="keras_hub is not installed: pip install softbench[hub]")
@pytest.mark.parametrize("name", thorough_but(["GPT2", "Gemma"], "Gemma"))
def test_a_language_model_of_keras_hub(name, tmp_path):
    """Its own training with its masks, without the scores: 20 steps, then saved and loaded."""
    import keras_hub

    generator = np.random.default_rng(0)
    tokens = generator.integers(0, 300, (8, 13))
    mask = np.arange(12) < generator.integers(3, 13, (8, 1))
    inputs = {"token_ids": tokens[:, :-1], "padding_mask": mask.astype("int32")}
    data = (inputs, tokens[:, 1:], mask.astype("float32"))
    # By the weights, as a mean over what counts is; by default Keras divides by all positions.
    options = {"from_logits": True, "reduction": "mean_with_sample_weight"}
    loss = keras.losses.SparseCategoricalCrossentropy(**options)
    whole = getattr(keras_hub.models, f"{name}CausalLM")(backbone=backbone(name), preprocessor=None)
    whole.compile(keras.optimizers.SGD(0.01), loss=loss, weighted_metrics=[])
    encoder = backbone(name)
    model = softbench.Classifier(encoder, softbench.FullSoftmax(table=encoder.token_embedding))
    model.compile(keras.optimizers.SGD(0.01))
    for _ in range(20):
        value = whole.train_on_batch(*data)
        np.testing.assert_allclose(model.train_on_batch(*data), value, rtol=1e-5)
    for weight, other in zip(encoder.weights, whole.backbone.weights, strict=True):
        np.testing.assert_allclose(to_numpy(weight), to_numpy(other), atol=1e-5)
    scores = model.predict(inputs, verbose=0)
    np.testing.assert_allclose(scores, whole.predict(inputs, verbose=0), atol=1e-4)
    loaded = saved_and_loaded(model, tmp_path)
    assert len(loaded.weights) == len(model.weights) == len(encoder.weights)
    assert loaded.train_on_batch(*data) == model.train_on_batch(*data)

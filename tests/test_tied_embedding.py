"""An input layer on the class table: the gradients of both sides are one."""

import keras
import numpy as np
import pytest
import reference
from conftest import rejects, slow_but, thorough_but, to_numpy
from small import assert_all_close, assert_all_equal, saved_and_loaded, spec, values

from softbench import (
    AugmentReduce,
    BucketedSoftmax,
    Classifier,
    FullSoftmax,
    HierarchicalSoftmax,
    NoiseContrastive,
    RowAdagrad,
    RowAdam,
    RowSGD,
    SampledSoftmax,
    TiedEmbedding,
)

N, D, B, T = 11, 4, 6, 3
SHARED = spec("uniform", share_draws=True)
OPTIMIZERS = {
    "sgd": (RowSGD, keras.optimizers.SGD),
    "adagrad": (RowAdagrad, keras.optimizers.Adagrad),
}


def batches(count, seed=0):
    """Ids that often are the labels too."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        yield [rng.integers(0, 7, (B, T)).astype("int32"), rng.integers(0, 7, B).astype("int32")]


def tied_model(head, optimizer, dense=True, **options):
    """The mean of the rows, a layer after it, and the head on the same rows."""
    ids = keras.Input(batch_shape=(B, T), dtype="int32")
    labels = keras.Input(batch_shape=(B,), dtype="int32")
    hidden = TiedEmbedding(head, dim=D, **options)(ids)
    hidden = keras.layers.GlobalAveragePooling1D()(hidden)
    rng = np.random.default_rng(2)
    if dense:
        layer = keras.layers.Dense(D, activation="tanh", name="encoder")
        hidden = layer(hidden)
        layer.set_weights([rng.normal(size=(D, D)), rng.normal(size=D)])
    extra = {"example_ids": labels} if isinstance(head, AugmentReduce) else {}
    model = keras.Model([ids, labels], head(hidden, labels, **extra))
    head.table.kernel.assign(rng.normal(size=(N, D)))
    if hasattr(head, "sampler"):
        head.sampler.refresh(head.table)
    model.compile(optimizer)
    return model


def test_an_ordinary_table_gets_the_sum_of_both_sides():
    """In NumPy float64: the mean of the rows of a batch against the full softmax, by SGD."""
    head = FullSoftmax(N, use_bias=False)
    model = tied_model(head, keras.optimizers.SGD(0.5), dense=False)
    kernel = to_numpy(head.table.kernel).astype(float)
    for ids, labels in batches(3):
        loss = float(model.train_on_batch([ids, labels]))
        hidden = kernel[ids].mean(1)
        scores = hidden @ kernel.T
        expected = reference.negative_log_likelihood(scores, labels).mean()
        assert loss == pytest.approx(expected, rel=1e-5)
        p = (reference.softmax(scores) - np.eye(N)[labels]) / B
        to_inputs = np.repeat((p @ kernel)[:, None] / T, T, axis=1)
        gradient = p.T @ hidden + reference.sum_rows((N, D), ids.ravel(), to_inputs.reshape(-1, D))
        kernel -= 0.5 * gradient
        np.testing.assert_allclose(to_numpy(head.table.kernel), kernel, rtol=1e-5, atol=1e-5)


HEADS = {
    "per example": lambda o, **kw: SampledSoftmax(N, "uniform", 5, row_optimizer=o, seed=1, **kw),
    "shared": lambda o, **kw: SampledSoftmax(
        N, SHARED, 5, row_optimizer=o, seed=1, normalize=True, temperature=0.5, **kw
    ),
    "two sets": lambda o, **kw: NoiseContrastive(
        N,
        "uniform",
        num_sampled=5,
        row_optimizer=o,
        seed=1,
        regularization=0.1,
        regularization_samples=3,
        **kw,
    ),
    "examples": lambda o, **kw: AugmentReduce(
        N, "uniform", 5, num_examples=N, row_optimizer=o, seed=1, **kw
    ),
}


PAIRS = list(zip(HEADS, [*OPTIMIZERS] * 2, strict=True))


@pytest.mark.parametrize(("name", "optimizer"), thorough_but(PAIRS, *PAIRS[:2]))
def test_rows_equal_a_dense_optimizer_on_the_tied_table(name, optimizer):
    rows, dense = OPTIMIZERS[optimizer]
    found = []
    for own in (rows(0.2), None):
        head = HEADS[name](own)
        model = tied_model(head, dense(0.2), normalize=name == "shared")
        losses = [float(model.train_on_batch(batch)) for batch in batches(5)]
        model.evaluate(next(batches(1)), verbose=0, batch_size=B)
        weights = [head.table.kernel, *model.get_layer("encoder").weights]
        weights.append(head.table.bias)
        found.append([np.array(losses), *map(to_numpy, weights)])
    for own, other in zip(*found, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-5, atol=1e-5)


RFF = spec("rff", num_features=8, block_size=2)
COUNTS = {"counts": list(range(1, N + 1))}
SAMPLERS = {
    "unique": spec("unigram", **COUNTS, unique=True),
    "in_batch": "in_batch",
    "rff": RFF,
    "exp": "exp",
    "codebook": spec("codebook", num_codewords=2, share_draws=2),
    "top_and_tail": spec("top_and_tail", **COUNTS, num_top=2, share_draws=2),
    "mixed": spec("mixed", first=SHARED, second=RFF),
}


@pytest.mark.parametrize("name", slow_but(SAMPLERS, "rff", "in_batch"))
def test_every_sampler_is_told_of_the_one_update(name):
    """The rows move by the sum that was held, and what a sampler keeps of them follows."""
    head = SampledSoftmax(N, SAMPLERS[name], 5, row_optimizer=RowSGD(0.3), seed=1)
    model = tied_model(head, keras.optimizers.SGD(0.1))
    for batch in batches(2):
        model.train_on_batch(batch)
    kernel, side = to_numpy(head.table.kernel).astype(float), head.tie.input_side
    held = reference.sum_rows((N, D), to_numpy(head.tie.ids), to_numpy(head.tie.gradients[0]))
    back = to_numpy(side.row_gradient).reshape(-1, D)
    np.testing.assert_array_equal(to_numpy(side.ids), batch[0])
    assert np.abs(held).max() > 1e-4 and np.abs(back).max() > 1e-4
    model.evaluate(batch, verbose=0, batch_size=B)
    kernel -= 0.3 * (held + reference.sum_rows((N, D), batch[0].ravel(), back))
    np.testing.assert_allclose(to_numpy(head.table.kernel), kernel, rtol=1e-5, atol=1e-6)
    assert int(to_numpy(head.table.iterations)) == 2
    if name == "rff":
        sums = values(head.sampler.blocks.sums)
        head.sampler.refresh(head.table)
        assert_all_close(sums, head.sampler.blocks.sums, 1e-4, 1e-5)


def test_the_update_is_made_once_and_before_any_other_call():
    """By the embedding, by the head alone, by `update_rows`; lazy Adam would move again."""
    head = SampledSoftmax(N, "uniform", 5, row_optimizer=RowAdam(0.1), seed=1)
    model = tied_model(head, keras.optimizers.SGD(0.1))
    hidden = keras.Input((D,))
    scores = keras.Model(hidden, head(hidden))
    vectors = np.ones((2, D), "float32")
    (batch,) = batches(1)
    for make in (
        lambda: model.predict(batch, verbose=0, batch_size=B),
        lambda: scores.predict(vectors, verbose=0),
        lambda: head.top_k(vectors, 2),
        head.table.update_rows,
    ):
        model.train_on_batch(batch)
        before = to_numpy(head.table.kernel).copy()
        make()
        after = to_numpy(head.table.kernel).copy()
        assert np.any(before != after)
        make()
        model.evaluate(batch, verbose=0, batch_size=B)
        np.testing.assert_array_equal(after, to_numpy(head.table.kernel))
    assert int(to_numpy(head.table.iterations)) == 4


def state_of(table):
    """All variables but those in which updates wait."""
    waiting = [] if table.tie is None else table.tie.variables
    return [v for v in table.variables if all(v is not other for other in waiting)]


def test_a_batch_in_which_nobody_counts_moves_nothing():
    head = SampledSoftmax(N, "uniform", 5, row_optimizer=RowAdam(0.1), seed=1)
    ids = keras.Input(batch_shape=(B, D), dtype="int32")
    rows = keras.layers.Flatten()(TiedEmbedding(head, dim=D)(ids))
    encoder = keras.Model(ids, keras.layers.Dense(D)(rows))
    model = Classifier(encoder, head, top_k=())
    model.compile("sgd")
    x, y = np.ones((B, D), "int32"), np.zeros(B, "int32")
    model.train_on_batch(x, y)
    head.table.update_rows()
    before = [to_numpy(v).copy() for v in state_of(head.table)]
    model.train_on_batch(x, y, sample_weight=np.zeros(B, "float32"))
    head.table.update_rows()
    assert_all_equal(before, state_of(head.table))


@pytest.mark.parametrize("row_optimizer", [None, RowAdagrad(0.2)], ids=["ordinary", "rows"])
def test_one_table_is_saved_and_stays_shared(row_optimizer, tmp_path):
    head = SampledSoftmax(N, "uniform", 5, row_optimizer=row_optimizer, seed=1)
    model = tied_model(head, keras.optimizers.Adagrad(0.2))
    first, second = batches(2)
    model.train_on_batch(first)  # with rows, the update of it is saved while it is pending
    assert sum(tuple(v.shape) == (N, D) for v in model.trainable_weights) == (not row_optimizer)
    assert len({id(v) for v in model.weights}) == len(model.weights)
    loaded = saved_and_loaded(model, tmp_path)
    (embedding,) = [part for part in loaded.layers if isinstance(part, TiedEmbedding)]
    again = loaded.layers[-1]
    assert embedding.table is again.table
    assert len(loaded.weights) == len(model.weights)
    again.sampler.seed_generator.state.assign(to_numpy(head.sampler.seed_generator.state))
    losses = [float(each.train_on_batch(second)) for each in (model, loaded)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    for each in (model, loaded):
        each.predict(first, verbose=0, batch_size=B)
    np.testing.assert_allclose(
        to_numpy(head.table.kernel), to_numpy(again.table.kernel), rtol=1e-6, atol=1e-6
    )


def test_a_copy_without_its_head_is_refused():
    model = tied_model(SampledSoftmax(N, "uniform", 5), "sgd")
    rejects("TiedEmbedding", keras.models.clone_model, model)


FROZEN = [("head", RowAdam(0.2)), ("embedding", RowAdam(0.2)), ("embedding", None)]


@pytest.mark.parametrize(("which", "row_optimizer"), FROZEN)
def test_a_frozen_table_is_frozen_on_both_sides(which, row_optimizer):
    head = SampledSoftmax(N, "uniform", 5, row_optimizer=row_optimizer, seed=1)
    model = tied_model(head, keras.optimizers.SGD(0.1))
    model.train_on_batch(next(batches(1)))
    if row_optimizer is not None:
        head.table.update_rows()
    frozen = head if which == "head" else model.layers[1]
    frozen.trainable = False
    model.compile(keras.optimizers.SGD(0.1))
    before = [to_numpy(v).copy() for v in state_of(head.table)]
    encoder = to_numpy(model.get_layer("encoder").kernel).copy()
    for batch in batches(2):
        model.train_on_batch(batch)
    model.evaluate(batch, verbose=0, batch_size=B)
    assert_all_equal(before, state_of(head.table))
    assert np.any(encoder != to_numpy(model.get_layer("encoder").kernel))


def test_rows_as_stored_or_normalised_and_masked():
    head = SampledSoftmax(N, "uniform", 5)
    ids = np.array([[3, 0, 1], [2, 2, 0]], "int32")
    rows = to_numpy(TiedEmbedding(head, dim=D)(ids))
    kernel = to_numpy(head.table.kernel)
    np.testing.assert_array_equal(rows, kernel[ids])
    layer = TiedEmbedding(head, normalize=True, mask_zero=True)
    norms = np.linalg.norm(kernel.astype(float), axis=1, keepdims=True)
    np.testing.assert_allclose(to_numpy(layer(ids)), (kernel / norms)[ids], rtol=1e-5)
    np.testing.assert_array_equal(to_numpy(layer.compute_mask(ids)), ids != 0)
    assert TiedEmbedding(head).compute_mask(ids) is None
    half = TiedEmbedding(head, dtype="mixed_bfloat16")(ids)
    assert keras.backend.standardize_dtype(half.dtype) == "bfloat16"


def test_what_it_cannot_do_is_named():
    ids = keras.Input((T,), dtype="int32")
    rejects("table", TiedEmbedding, HierarchicalSoftmax(N))
    rejects("dim", TiedEmbedding, FullSoftmax(N), dim=0)
    rejects("dim", TiedEmbedding(FullSoftmax(N)), ids)
    full = FullSoftmax(N)
    TiedEmbedding(full, dim=D)(ids)
    rejects("hidden", full, np.ones((2, D + 1), "float32"))
    rejects("dim", TiedEmbedding(full, dim=D + 1), ids)

    def head(**options):
        return SampledSoftmax(N, "uniform", 5, row_optimizer=RowSGD(0.1), **options)

    rejects("multi_label", TiedEmbedding, head(multi_label="mean"))
    rejects("head", TiedEmbedding, BucketedSoftmax(N, row_optimizer=RowSGD(0.1)))
    # On JAX the head itself refuses it.
    rejects("max_valid", lambda: TiedEmbedding(head(max_valid=0.5)))

    built = head()
    built.build((B, D))
    rejects("head", TiedEmbedding, built)
    rejects("ids", TiedEmbedding(head(), dim=D), ids)
    own = head()
    TiedEmbedding(own, dim=D)
    rejects("table", TiedEmbedding, own)
    rejects("hidden", own, keras.Input((D,)), keras.Input((), dtype="int32"))
    own = head()
    scaled = TiedEmbedding(own, dim=D, dtype="mixed_float16")
    own.build((B, D))
    rejects("dtype", scaled, np.zeros((B, T), "int32"), training=True)


def test_calls_that_would_lose_a_gradient_are_refused():
    head = SampledSoftmax(N, "uniform", 5, row_optimizer=RowSGD(0.1), seed=1)
    embedding = TiedEmbedding(head, dim=D)
    ids = keras.Input(batch_shape=(B, T), dtype="int32")
    labels = keras.Input(batch_shape=(B,), dtype="int32")
    pool = keras.layers.GlobalAveragePooling1D()
    hidden = pool(embedding(ids))
    twice = keras.Model([ids, labels], [head(hidden, labels), head(2.0 * hidden, labels)])
    twice.compile("sgd")
    rejects("labels", twice.train_on_batch, next(batches(1)))
    more = keras.Model([ids, labels], head(hidden + pool(embedding(ids + 1)), labels))
    more.compile("sgd")
    rejects("ids", more.train_on_batch, next(batches(1)))

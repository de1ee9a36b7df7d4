"""Constructors of the heads, and class tables that heads and input layers are given."""

import gc
import inspect

import keras
import numpy as np
import pytest
from conftest import on_table, rejects, to_numpy

import softbench
from softbench import (
    AdaptiveSoftmax,
    BucketedSoftmax,
    ClassTable,
    FullSoftmax,
    HierarchicalSoftmax,
    NoiseContrastive,
    RowAdagrad,
    RowSGD,
    SampledSoftmax,
    TiedEmbedding,
    heads,
)
from softbench.bench.training import build

N, D, B, T = 11, 4, 6, 3
OF_TABLE = ["table", "use_bias", "normalize", "temperature", "row_optimizer"]
OF_ALL = ["remove_accidental_hits", "ignore_index", "multi_label", "max_valid", "seed"]
OF_OBJECTIVE = {
    "SampledSoftmax": ["correct_true_logit", "label_smoothing"],
    "NoiseContrastive": [
        "objective",
        "learn_log_partition",
        "regularization",
        "regularization_samples",
    ],
    "NegativeSampling": ["objective", "t", "regularization"],
    "OneVsEach": [],
    "AugmentReduce": ["num_examples", "step_power"],
    "SampledHinge": ["margin"],
}
OPTIMIZERS = {"ordinary": None, "rows": RowSGD(0.3)}
KERNEL = {"class_name": "positive", "config": {"num_features": 8, "block_size": 2, "seed": 1}}


def sampled_heads():
    """The names of the public heads that draw from a sampler."""
    classes = {name: getattr(heads, name) for name in heads.__all__ if name != "SampledHead"}
    return [name for name, cls in classes.items() if issubclass(cls, heads.SampledHead)]


@pytest.mark.parametrize("name", sampled_heads())
def test_arguments_of_the_sampled_heads_are_in_one_order(name):
    cls = getattr(softbench, name)
    parameters = inspect.signature(cls).parameters
    names = [*OF_TABLE, *OF_OBJECTIVE.get(name, vars(cls).get("arguments", ())), *OF_ALL]
    assert list(parameters) == ["units", "sampler", "num_sampled", *names, "kwargs"]
    kinds = [parameter.kind for parameter in parameters.values()]
    single = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    assert kinds == [single[0]] * 3 + [single[1]] * len(names) + [inspect.Parameter.VAR_KEYWORD]


@pytest.mark.parametrize(
    ("cls", "positional"),
    [
        (FullSoftmax, ["units"]),
        (BucketedSoftmax, ["units"]),
        (HierarchicalSoftmax, ["units", "leaf_order"]),
        (AdaptiveSoftmax, ["units", "cutoffs"]),
        (ClassTable, ["units", "dim"]),
    ],
)
def test_all_else_is_given_by_name(cls, positional):
    parameters = inspect.signature(cls).parameters.values()
    assert [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD] == positional


def test_a_head_takes_the_options_of_its_table():
    table = ClassTable(N, normalize=True, temperature=0.5, kernel_initializer="ones")
    head = SampledSoftmax(table=table, sampler="uniform", num_sampled=5)
    assert head.table is table and head.units == N
    assert type(SampledSoftmax(table=table).sampler).__name__ == "RandomFourierKernel"
    np.testing.assert_allclose(to_numpy(head(np.ones((1, D), "float32"))), 2.0, rtol=1e-5)
    assert HierarchicalSoftmax(5, table=ClassTable(7)).nodes.units == 7
    assert BucketedSoftmax(table=ClassTable(N, row_optimizer=RowSGD(0.1))).units == N
    assert ClassTable(N, D).width == D


def test_arguments_that_a_table_has_are_left_out():
    table = ClassTable(N)
    for cls in (SampledSoftmax, FullSoftmax, BucketedSoftmax):
        rejects("units", cls)
        rejects("units", cls, N + 1, table=table)
        rejects("table", cls, table="table")
        for options in ({"use_bias": False}, {"normalize": True}, {"temperature": 0.5}):
            rejects(next(iter(options)), cls, table=table, **options)
        message = rejects("kernel_initializer", cls, N, kernel_initializer="zeros")
        assert "softbench.ClassTable" in message
    rejects("row_optimizer", SampledSoftmax, table=table, row_optimizer=RowSGD(0.1))
    rejects("table", FullSoftmax, table=ClassTable(N, row_optimizer=RowSGD(0.1)))
    assert "ClassTable(15)" in rejects("table", HierarchicalSoftmax, N, table=table)
    nodes = ClassTable(15, normalize=True)
    rejects("table", HierarchicalSoftmax, N, table=nodes)
    rejects("use_bias", HierarchicalSoftmax, N, table=ClassTable(15), use_bias=False)
    rejects("hidden", SampledSoftmax(table=ClassTable(N, D + 1)).build, (None, D))


def data(seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(B, D)).astype("float32")
    return [x, rng.integers(0, N, B).astype("int32")]


def two_heads(row_optimizer=None):
    """Two objectives on one table, of the same hidden vectors."""
    table = ClassTable(N, D, row_optimizer=row_optimizer)
    kernel = np.random.default_rng(3).normal(size=(N, D))
    table.kernel.assign(kernel)
    first = SampledSoftmax(table=table, sampler=KERNEL, num_sampled=5, seed=1)
    second = NoiseContrastive(table=table, sampler=KERNEL, num_sampled=5, seed=2)
    x, y = keras.Input((D,)), keras.Input((), dtype="int32")
    hidden = keras.layers.Dense(D, name="hidden")(x)
    model = keras.Model([x, y], [first(hidden, y), second(2.0 * hidden, y)])
    model.compile(keras.optimizers.SGD(0.3))
    return model, first, second


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_two_heads_train_one_table(name):
    """It is one weight; and each sampler follows the updates that the other head makes."""
    model, first, second = two_heads(OPTIMIZERS[name])
    table = first.table
    assert len({id(v) for v in model.variables}) == len(model.variables)
    assert sum(tuple(v.shape) == (N, D) for v in model.variables) == 1
    before = to_numpy(table.kernel).copy()
    for seed in range(3):
        model.train_on_batch(data(seed))
    assert np.any(to_numpy(table.kernel) != before)
    if OPTIMIZERS[name] is None:
        return
    assert int(to_numpy(table.iterations)) == 6
    assert table.trackers == [first.sampler, second.sampler]
    for sampler in table.trackers:
        sums = [to_numpy(v).copy() for v in sampler.blocks.sums]
        sampler.refresh(table)
        for followed, fresh in zip(sums, sampler.blocks.sums, strict=True):
            np.testing.assert_allclose(followed, to_numpy(fresh), rtol=1e-4, atol=1e-5)


def test_gradients_of_both_heads_move_the_rows():
    """By SGD of rows, as by that of Keras where the heads touch different rows."""
    moved = []
    for row_optimizer in (RowSGD(0.5), None):
        table = ClassTable(N, D, use_bias=False, row_optimizer=row_optimizer)
        table.kernel.assign(np.random.default_rng(3).normal(size=(N, D)))
        draws = {"class_name": "in_batch", "config": {"counts": [1] * N}}  # of a head's labels
        made = [SampledSoftmax(table=table, sampler=draws, num_sampled=9) for _ in range(2)]
        inputs = [keras.Input((D,)), *(keras.Input((), dtype="int32") for _ in made)]
        outputs = [head(inputs[0], y) for head, y in zip(made, inputs[1:], strict=True)]
        model = keras.Model(inputs, outputs)
        model.compile(keras.optimizers.SGD(0.5))
        labels = [np.arange(B, dtype="int32") % 3 + shift for shift in (0, 5)]
        model.train_on_batch([data()[0], *labels])
        moved.append(to_numpy(table.kernel))
    np.testing.assert_allclose(*moved, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_two_heads_share_their_table_after_loading(name, tmp_path):
    model, *_ = two_heads(OPTIMIZERS[name])
    model.train_on_batch(data())
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    first, second = loaded.layers[-2:]
    assert first.table is second.table and len(loaded.weights) == len(model.weights)
    losses = [each.train_on_batch(data(1)) for each in (model, loaded)]
    assert float(losses[0]) == pytest.approx(float(losses[1]), rel=1e-6)
    trained, again = ([to_numpy(v) for v in m.layers[-1].table.variables] for m in (model, loaded))
    for value, other in zip(trained, again, strict=True):
        np.testing.assert_allclose(value, other, rtol=1e-6, atol=1e-6)


def test_a_copy_of_one_user_of_a_shared_table_is_refused():
    model, first, second = two_heads()
    for head in (first, second):
        rejects("table", type(head).from_config, head.get_config())
    rejects("table", keras.models.clone_model, model)
    embedding = TiedEmbedding(ClassTable(N, D))
    assert TiedEmbedding.from_config(embedding.get_config()).table is not embedding.table


def tied(table, head):
    ids = keras.Input(batch_shape=(B, T), dtype="int32")
    labels = keras.Input(batch_shape=(B,), dtype="int32")
    hidden = keras.layers.GlobalAveragePooling1D()(TiedEmbedding(table)(ids))
    model = keras.Model([ids, labels], head(hidden, labels))
    model.compile(keras.optimizers.SGD(0.3))
    return model


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_embedding_of_a_table(name, tmp_path):
    """The layer is made of the table alone, before there is a head; both sides move its rows."""
    values = np.random.default_rng(3).normal(size=(N, D))
    batch = np.arange(B * T, dtype="int32").reshape(B, T) % N, np.arange(B, dtype="int32")
    kernels = []
    for row_optimizer in (OPTIMIZERS[name], None):
        table = ClassTable(N, D, row_optimizer=row_optimizer)
        table.kernel.assign(values)
        model = tied(table, SampledSoftmax(table=table, sampler="uniform", num_sampled=5, seed=1))
        for _ in range(3):
            model.train_on_batch(batch)
        table.update_rows()
        kernels.append(to_numpy(table.kernel))
    np.testing.assert_allclose(*kernels, rtol=1e-5, atol=1e-5)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    (embedding,) = [part for part in loaded.layers if isinstance(part, TiedEmbedding)]
    assert embedding.table is loaded.layers[-1].table


def test_one_head_where_rows_wait_for_an_embedding():
    table = ClassTable(N, D, row_optimizer=RowSGD(0.1))
    TiedEmbedding(table)
    SampledSoftmax(table=table, sampler="uniform", num_sampled=5).build((B, D))
    second = SampledSoftmax(table=table, sampler="uniform", num_sampled=5)
    rejects("table", second.build, (B, D))
    table = ClassTable(N, D, row_optimizer=RowSGD(0.1))
    TiedEmbedding(table)
    rejects("head", BucketedSoftmax(table=table).build, (B, D))


def test_a_sampler_that_is_gone_is_told_of_nothing():
    table = ClassTable(N, D, row_optimizer=RowSGD(0.1))
    head = SampledSoftmax(table=table, sampler=KERNEL, num_sampled=5)
    head.build((None, D))
    table.add_tracker(head.sampler)
    assert table.trackers == [head.sampler]
    del head
    gc.collect()
    assert table.trackers == []


def test_a_config_gives_a_table_what_the_head_does_not_take():
    counts, options = np.ones(N), {"absolute": True, "kernel_initializer": "ones"}
    rows = {"name": "adagrad", "learning_rate": 0.2}
    kwargs = {"sampler": "uniform", "num_sampled": 5, "row_optimizer": rows, **options}
    head = build.head({"head": "SampledSoftmax", "kwargs": kwargs}, N, counts, seed=7)
    assert head.table.absolute and isinstance(head.table.row_optimizer, RowAdagrad)
    assert head.seed == head.table.seed == 7
    head.build((None, D))
    np.testing.assert_array_equal(to_numpy(head.table.kernel), 1.0)
    ones = {"kernel_initializer": "ones"}
    tree = build.head({"head": "HierarchicalSoftmax", "kwargs": ones}, N, counts, seed=7)
    tree.build((None, D))
    np.testing.assert_array_equal(to_numpy(tree.nodes.kernel), np.ones((15, D)))
    config = {"head": "AdaptiveSoftmax", "kwargs": {"cutoffs": [3], **ones}}
    adaptive = build.head(config, N, counts, seed=7)
    adaptive.build((None, D))
    np.testing.assert_array_equal(to_numpy(adaptive.shortlist.kernel), 1.0)
    assert on_table(FullSoftmax, N, **ones).get_config()["table"]["config"]["units"] == N

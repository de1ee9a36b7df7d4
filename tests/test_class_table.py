"""Class tables: given to heads and input layers, shared by them, and kept in bfloat16."""

import gc
import warnings
from contextlib import nullcontext

import keras
import numpy as np
import pytest
import reference
from conftest import BACKEND, compiled, on_table, rejects, to_numpy
from small import (
    assert_all_close,
    functional,
    labels_below,
    saved_and_loaded,
    spec,
    values,
    vectors,
)
from test_rows import apply_all, gradient_steps

from softbench import (
    BucketedSoftmax,
    ClassTable,
    FullSoftmax,
    HierarchicalSoftmax,
    NoiseContrastive,
    RowAdagrad,
    RowAdam,
    RowSGD,
    SampledSoftmax,
    TiedEmbedding,
    rounding,
)
from softbench.bench.training import build
from softbench.ops import on_cpu
from softbench.rounding import rounded

N, D, B, T = 11, 4, 6, 3
OPTIMIZERS = {"ordinary": None, "rows": RowSGD(0.3)}
KERNEL = spec("positive", num_features=8, block_size=2, seed=1)


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
    return [vectors(B, D, seed=seed), labels_below(N, B, seed=seed)]


def two_heads(row_optimizer=None):
    """Two objectives on one table, of the same hidden vectors."""
    table = ClassTable(N, D, row_optimizer=row_optimizer)
    table.kernel.assign(vectors(N, D, seed=3))
    first = SampledSoftmax(table=table, sampler=KERNEL, num_sampled=5, seed=1)
    second = NoiseContrastive(table=table, sampler=KERNEL, num_sampled=5, seed=2)
    x, y = keras.Input((D,)), keras.Input((), dtype="int32")
    hidden = keras.layers.Dense(D, name="hidden")(x)
    model = keras.Model([x, y], [first(hidden, y), second(2.0 * hidden, y)])
    model.compile(keras.optimizers.SGD(0.3))
    return model, first, second


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_two_heads_train_one_table(name, tmp_path):
    """It is one weight, loaded too; each sampler follows the updates that the other head makes."""
    model, first, second = two_heads(OPTIMIZERS[name])
    table = first.table
    assert len({id(v) for v in model.variables}) == len(model.variables)
    assert sum(tuple(v.shape) == (N, D) for v in model.variables) == 1
    before = to_numpy(table.kernel).copy()
    for seed in range(3):
        model.train_on_batch(data(seed))
    assert np.any(to_numpy(table.kernel) != before)
    loaded = saved_and_loaded(model, tmp_path)
    one, two = loaded.layers[-2:]
    assert one.table is two.table and len(loaded.weights) == len(model.weights)
    losses = [each.train_on_batch(data(3)) for each in (model, loaded)]
    assert float(losses[0]) == pytest.approx(float(losses[1]), rel=1e-6)
    assert_all_close(table.variables, one.table.variables, 1e-6, 1e-6)
    if OPTIMIZERS[name] is None:
        return
    assert int(to_numpy(table.iterations)) == 8
    assert table.trackers == [first.sampler, second.sampler]
    for sampler in table.trackers:
        sums = values(sampler.blocks.sums)
        sampler.refresh(table)
        assert_all_close(sums, sampler.blocks.sums, 1e-4)


def test_gradients_of_both_heads_move_the_rows():
    """By SGD of rows, as by that of Keras where the heads touch different rows."""
    moved = []
    for row_optimizer in (RowSGD(0.5), None):
        table = ClassTable(N, D, use_bias=False, row_optimizer=row_optimizer)
        table.kernel.assign(vectors(N, D, seed=3))
        draws = spec("in_batch", counts=[1] * N)  # of a head's labels
        made = [SampledSoftmax(table=table, sampler=draws, num_sampled=9) for _ in range(2)]
        inputs = [keras.Input((D,)), *(keras.Input((), dtype="int32") for _ in made)]
        outputs = [head(inputs[0], y) for head, y in zip(made, inputs[1:], strict=True)]
        model = keras.Model(inputs, outputs)
        model.compile(keras.optimizers.SGD(0.5))
        labels = [np.arange(B, dtype="int32") % 3 + shift for shift in (0, 5)]
        model.train_on_batch([data()[0], *labels])
        moved.append(to_numpy(table.kernel))
    np.testing.assert_allclose(*moved, rtol=1e-5, atol=1e-5)


def test_a_copy_of_one_user_of_a_shared_table_is_refused():
    model, first, second = two_heads()
    for head in (first, second):
        rejects("table", type(head).from_config, head.get_config())
    rejects("table", keras.models.clone_model, model)
    embedding = TiedEmbedding(ClassTable(N, D))
    assert TiedEmbedding.from_config(embedding.get_config()).table is not embedding.table


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


# In bfloat16, rounded at random, and one Adagrad accumulator per row.

ROUNDED = {"table_dtype": "bfloat16"}
RFF = spec("rff", num_features=16, nu=1.0, block_size=4)
WIDTH = 3  # of the gradients of test_rows.py


ROWS = 12


def rounded_table(row_optimizer, units=ROWS, seed=3, **options):
    table = ClassTable(units, WIDTH, row_optimizer=row_optimizer, seed=seed, **options)
    table.kernel.assign(vectors(units, WIDTH))
    return table


def dtype_of(variable):
    return keras.backend.standardize_dtype(variable.dtype)


def neighbours(x):
    """The bfloat16 next to float32 x towards zero and away from it, as float64."""
    bits = x.view("uint32")
    below = bits & np.uint32(0xFFFF0000)
    return [b.view("float32").astype(float) for b in (below, below + np.uint32(0x10000))]


def test_rounding_is_unbiased():
    """Each result is a neighbour, and the mean of 4,000 is x within five of its deviations."""
    x = np.random.default_rng(0).normal(size=60).astype("float32")
    x = np.concatenate([x, [1.0, 1 + 2.0**-12, -3.0e-6, 2.0e30, 0.0, -0.75]]).astype("float32")
    seed = keras.random.SeedGenerator(7).next()
    tiled = keras.ops.convert_to_tensor(np.tile(x, (4000, 1)))
    found = to_numpy(keras.ops.cast(rounded(tiled, seed), "float32")).astype(float)
    low, high = neighbours(x)
    assert np.all((found == low) | (found == high))
    share = (x - low) / (high - low)
    deviation = np.abs(high - low) * np.sqrt(share * (1 - share) / len(found))
    assert np.all(np.abs(found.mean(axis=0) - x) <= 5 * deviation)
    odd = np.array([np.inf, -np.inf, np.nan], "float32")
    kept = to_numpy(keras.ops.cast(rounded(keras.ops.convert_to_tensor(odd), seed), "float32"))
    np.testing.assert_array_equal(kept, odd)


@pytest.mark.parametrize("options", [ROUNDED, {"dtype": "bfloat16"}], ids=["table", "policy"])
def test_small_changes_add_up(options):
    """64 changes of 2^-12 to 1.0, whose next bfloat16 is 1 + 2^-7: 1 + 2^-6 on average."""
    count = 2000
    table = rounded_table(RowSGD(1.0), count, use_bias=False, **options)
    table.kernel.assign(np.ones((count, WIDTH)))
    ids, gradient = np.arange(count, dtype="int32"), np.full((count, WIDTH), -(2.0**-12), "float32")
    step = compiled(lambda i, g: table.apply_row_gradients(i, [g]), table)
    for _ in range(64):
        step(ids, gradient)
    found = to_numpy(keras.ops.cast(table.kernel, "float32")).astype(float)
    deviation = 2.0**-7 * np.sqrt(64 * 2.0**-5 / found.size)
    assert abs(found.mean() - (1 + 2.0**-6)) < 5 * deviation


def kernels(*tables):
    return [to_numpy(keras.ops.cast(table.kernel, "float32")) for table in tables]


@pytest.mark.parametrize("optimizer", [RowAdagrad, RowAdam])
def test_the_seed_decides_the_rounding(optimizer):
    """Equal for equal seeds, near the float32 table for all; bias and untouched rows stay exact."""
    exact = rounded_table(optimizer(0.1))
    tables = [rounded_table(optimizer(0.1), seed=seed, **ROUNDED) for seed in (1, 1, 2)]
    start = kernels(tables[0])[0]
    exact.kernel.assign(start)
    for table in (exact, *tables):
        apply_all(table, gradient_steps())
    found, *others = kernels(tables[0], tables[1], tables[2], exact)
    np.testing.assert_array_equal(found, others[0])
    assert np.any(found != others[1])
    np.testing.assert_allclose(found, others[2], atol=0.1)  # about 1 ulp of 4 for each step
    np.testing.assert_allclose(to_numpy(tables[0].bias), to_numpy(exact.bias), rtol=1e-5)
    np.testing.assert_array_equal(found[7:], start[7:])
    slots = tables[0].row_slots
    assert {dtype_of(v) for v in (tables[0].kernel, *slots[0])} == {"bfloat16"}
    assert {dtype_of(v) for v in (tables[0].bias, *slots[1])} == {"float32"}


def test_one_accumulator_per_row():
    """FBGEMM's row-wise Adagrad: the mean of the squares of a row; a bias is a row of one."""
    table = rounded_table(RowAdagrad(0.3, per_row=True), ROWS)
    assert [tuple(v.shape) for (v,) in table.row_slots] == [(ROWS,), (ROWS,)]
    kernel, bias = (to_numpy(v).astype(float) for v in (table.kernel, table.bias))
    apply_all(table, gradient_steps())
    sums, state = np.full(ROWS, 0.1), {}
    for ids, to_kernel, to_bias in gradient_steps():
        gradient = reference.sum_rows(kernel.shape, ids, to_kernel)
        sums += np.mean(gradient**2, axis=1)
        kernel -= 0.3 * gradient / (np.sqrt(sums) + 1e-7)[:, None]
        bias = reference.adagrad(bias, reference.sum_rows(bias.shape, ids, to_bias), state, 0.3)
    np.testing.assert_allclose(to_numpy(table.kernel), kernel, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(to_numpy(table.bias), bias, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(to_numpy(table.row_slots[0][0]), sums, rtol=1e-5)


@pytest.mark.parametrize("sampler", [RFF, "exp"], ids=["rff", "exp"])
def test_samplers_follow_what_is_stored(sampler):
    """log q of the sums that followed the rounded rows is that of sums made anew from them."""
    options = {"row_optimizer": RowAdagrad(0.5), "use_bias": False, "seed": 1, **ROUNDED}
    head = on_table(SampledSoftmax, N, sampler, 6, **options)
    model = functional(head, D)
    before = kernels(head.table)[0]
    for seed in range(3):
        model.train_on_batch(data(seed))
    assert np.any(kernels(head.table)[0] != before)
    hidden = keras.ops.convert_to_tensor(data()[0])
    followed = to_numpy(head.sampler.log_prob(head.table, hidden))
    head.sampler.refresh(head.table)
    fresh = to_numpy(head.sampler.log_prob(head.table, hidden))
    np.testing.assert_allclose(followed, fresh, rtol=1e-4, atol=1e-4)
    scores = to_numpy(hidden).astype(float) @ kernels(head.table)[0].astype(float).T
    np.testing.assert_allclose(to_numpy(head(hidden)), scores, rtol=1e-5, atol=1e-5)
    if sampler == "exp":
        np.testing.assert_allclose(np.exp(followed), reference.softmax(scores), rtol=1e-4)


def test_a_bfloat16_table_needs_a_row_optimizer():
    rejects("table_dtype", on_table, SampledSoftmax, N, "uniform", 6, **ROUNDED)
    rejects("table_dtype", on_table, FullSoftmax, N, **ROUNDED)
    rejects("table_dtype", ClassTable, N, row_optimizer=RowSGD(), table_dtype="float16")


def test_a_large_table_that_would_be_copied_warns(monkeypatch):
    """JAX on a CPU, without the flag that a config of the benchmark sets."""
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    monkeypatch.setattr(rounding, "LARGE", ROWS * WIDTH)
    copied = BACKEND == "jax" and on_cpu()
    with pytest.warns(UserWarning, match="XLA_FLAGS") if copied else nullcontext():
        rounded_table(RowSGD(0.1), **ROUNDED)
    monkeypatch.setenv("XLA_FLAGS", "--xla_disable_hlo_passes=float-normalization-bf16")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rounded_table(RowSGD(0.1), **ROUNDED)

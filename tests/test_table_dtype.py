"""Class tables in bfloat16, rounded at random, and one Adagrad accumulator per row."""

import warnings
from contextlib import nullcontext

import keras
import numpy as np
import pytest
import reference
from conftest import compiled, on_table, to_numpy
from test_rows import D, N, apply_all, data, gradient_steps, make_model, make_table

from softbench import ClassTable, FullSoftmax, RowAdagrad, RowAdam, RowSGD, SampledSoftmax, rounding
from softbench.ops import on_cpu
from softbench.rounding import rounded

ROUNDED = {"table_dtype": "bfloat16"}
RFF = {"class_name": "rff", "config": {"num_features": 16, "nu": 1.0, "block_size": 4}}


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
    table = make_table(RowSGD(1.0), n=count, use_bias=False, seed=3, **options)
    table.kernel.assign(np.ones((count, D)))
    ids, gradient = np.arange(count, dtype="int32"), np.full((count, D), -(2.0**-12), "float32")
    step = compiled(lambda i, g: table.apply_row_gradients(i, [g]), table)
    for _ in range(64):
        step(ids, gradient)
    found = to_numpy(keras.ops.cast(table.kernel, "float32")).astype(float)
    deviation = 2.0**-7 * np.sqrt(64 * 2.0**-5 / found.size)
    assert abs(found.mean() - (1 + 2.0**-6)) < 5 * deviation


def values(*tables):
    return [to_numpy(keras.ops.cast(table.kernel, "float32")) for table in tables]


@pytest.mark.parametrize("optimizer", [RowAdagrad, RowAdam])
def test_the_seed_decides_the_rounding(optimizer):
    """Equal for equal seeds, near the float32 table for all; bias and untouched rows stay exact."""
    exact = make_table(optimizer(0.1))
    tables = [make_table(optimizer(0.1), seed=seed, **ROUNDED) for seed in (1, 1, 2)]
    start = values(tables[0])[0]
    exact.kernel.assign(start)
    for table in (exact, *tables):
        apply_all(table, gradient_steps())
    found, *others = values(tables[0], tables[1], tables[2], exact)
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
    table = make_table(RowAdagrad(0.3, per_row=True))
    assert [tuple(v.shape) for (v,) in table.row_slots] == [(N,), (N,)]
    kernel, bias = (to_numpy(v).astype(float) for v in (table.kernel, table.bias))
    apply_all(table, gradient_steps())
    sums, state = np.full(N, 0.1), {}
    for ids, to_kernel, to_bias in gradient_steps():
        gradient = reference.sum_rows(kernel.shape, ids, to_kernel)
        sums += np.mean(gradient**2, axis=1)
        kernel -= 0.3 * gradient / (np.sqrt(sums) + 1e-7)[:, None]
        bias = reference.adagrad(bias, reference.sum_rows(bias.shape, ids, to_bias), state, 0.3)
    np.testing.assert_allclose(to_numpy(table.kernel), kernel, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(to_numpy(table.bias), bias, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(to_numpy(table.row_slots[0][0]), sums, rtol=1e-5)


def test_a_loaded_model_goes_on_to_the_bit(tmp_path):
    """The table, its slots and the state of the rounding are saved."""
    optimizer = RowAdagrad(0.2, per_row=True)
    head = on_table(SampledSoftmax, N, "uniform", 6, row_optimizer=optimizer, seed=1, **ROUNDED)
    model = make_model(head)
    model.fit(data(), batch_size=8, shuffle=False, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    table = loaded.layers[-1].table
    assert table.row_optimizer.per_row and dtype_of(table.kernel) == "bfloat16"
    for each in (model, loaded):
        each.fit(data(), batch_size=8, shuffle=False, verbose=0)
    np.testing.assert_array_equal(*values(head.table, table))
    np.testing.assert_array_equal(*(to_numpy(t.row_slots[0][0]) for t in (head.table, table)))


@pytest.mark.parametrize("sampler", [RFF, "exp"], ids=["rff", "exp"])
def test_samplers_follow_what_is_stored(sampler):
    """log q of the sums that followed the rounded rows is that of sums made anew from them."""
    optimizer = RowAdagrad(0.5)
    options = {"row_optimizer": optimizer, "use_bias": False, "seed": 1, **ROUNDED}
    head = on_table(SampledSoftmax, N, sampler, 6, **options)
    model = make_model(head)
    head.sampler.refresh(head.table)
    before = values(head.table)[0]
    model.fit(data(), batch_size=8, verbose=0)
    assert np.any(values(head.table)[0] != before)
    hidden = keras.ops.convert_to_tensor(data()[0][:4, :D])
    followed = to_numpy(head.sampler.log_prob(head.table, hidden))
    head.sampler.refresh(head.table)
    np.testing.assert_allclose(
        followed, to_numpy(head.sampler.log_prob(head.table, hidden)), rtol=1e-4, atol=1e-4
    )
    scores = to_numpy(hidden).astype(float) @ values(head.table)[0].astype(float).T
    np.testing.assert_allclose(to_numpy(head(hidden)), scores, rtol=1e-5, atol=1e-5)
    if sampler == "exp":
        np.testing.assert_allclose(np.exp(followed), reference.softmax(scores), rtol=1e-4)


def test_a_bfloat16_table_needs_a_row_optimizer():
    for make in (
        lambda: on_table(SampledSoftmax, N, "uniform", 6, **ROUNDED),
        lambda: on_table(FullSoftmax, N, **ROUNDED),
        lambda: ClassTable(N, row_optimizer=RowSGD(), table_dtype="float16"),
    ):
        with pytest.raises(ValueError, match=r"`table_dtype`.*Received: table_dtype="):
            make()


def test_a_large_table_that_would_be_copied_warns(monkeypatch):
    """JAX on a CPU, without the flag that a config of the benchmark sets."""
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    monkeypatch.setattr(rounding, "LARGE", N * D)
    copied = keras.backend.backend() == "jax" and on_cpu()
    with pytest.warns(UserWarning, match="XLA_FLAGS") if copied else nullcontext():
        make_table(RowSGD(0.1), **ROUNDED)
    monkeypatch.setenv("XLA_FLAGS", "--xla_disable_hlo_passes=float-normalization-bf16")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_table(RowSGD(0.1), **ROUNDED)

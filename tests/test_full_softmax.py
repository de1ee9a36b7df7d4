"""The task "full_softmax": its methods compute the same gradients, memory is measured, its page."""

import sys

import keras
import numpy as np
import pytest
import reference
from conftest import to_numpy
from report_records import make_record
from shipped import config_path

from softbench.bench import app, matrix
from softbench.experiments.full_softmax import memory, page, run, steps

MODEL = {"batch_size": 6, "dim": 5, "dtype": "float32"}
UNITS = 40
ROW = {"head": "FullSoftmax", "kwargs": {"use_bias": False}}
METHODS = {
    "keras": {"keras": True},
    "softbench": ROW,
    "softbench_8": {**ROW, "chunks": 8},
    "softbench_256": {**ROW, "chunks": 256},  # more than classes
    "keras_graph": {"keras": True, "jit_compile": False},
    "softbench_graph": {**ROW, "jit_compile": False},
}


def numpy_inputs():
    """Hidden vectors, labels and rows, as `make_step` draws them: logits of deviation 4."""
    hidden, labels = map(to_numpy, steps.make_inputs(MODEL, UNITS, 0))
    rows = np.random.default_rng(1).standard_normal((UNITS, 5), "float32") * 4 / np.sqrt(5)
    return hidden.astype(float), labels, rows.astype(float)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_gives_the_gradients_of_the_cross_entropy(name):
    hidden, labels, rows = numpy_inputs()
    step = steps.make_step(METHODS[name], MODEL, UNITS, 0)
    to_hidden, to_rows = map(to_numpy, step(*steps.make_inputs(MODEL, UNITS, 0)))
    error = (reference.softmax(hidden @ rows.T) - np.eye(UNITS)[labels]) / 6
    to_rows = to_rows.T if "keras" in name else to_rows
    np.testing.assert_allclose(to_hidden, error @ rows, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(to_rows, error.T @ hidden, rtol=1e-4, atol=1e-6)


def test_products_are_three():
    hidden, _, rows = numpy_inputs()
    step = steps.make_step({"product": True}, MODEL, UNITS, 0)
    to_hidden, to_rows = keras.tree.flatten(step(*steps.make_inputs(MODEL, UNITS, 0)))
    scores = hidden @ rows.T
    np.testing.assert_allclose(to_numpy(to_hidden), scores @ rows, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(to_numpy(to_rows), scores.T @ hidden, rtol=1e-4, atol=1e-4)


def test_the_peak_of_memory_begins_anew():
    size = 2**26
    np.ones(2 * size, "uint8")  # a peak before, which does not count
    memory.lower_peak()
    before = memory.resident()[0]
    np.ones(size, "uint8")
    now, peak = memory.resident()
    assert now < before + size / 2
    assert size * 0.9 < peak - before < size * 1.5


@pytest.mark.thorough
def test_memory_of_a_process_of_its_own(monkeypatch):
    """Scores of 64 MiB are there at once in plain Keras alone."""
    model = {"batch_size": 1024, "dim": 8, "dtype": "float32"}
    problem = {"model": model, "num_classes": 16_384, "seed": 0}
    plain = run.in_a_process(method=METHODS["keras"], **problem)
    streamed = run.in_a_process(method=METHODS["softbench_256"], **problem)
    assert plain["peak_mib"] > 60 and streamed["peak_mib"] < 40
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(RuntimeError, match="exit code 1 of softbench"):
        run.in_a_process(method=METHODS["keras"], **problem)


def test_the_page_has_ratios_and_operations():
    """6 x 8 x 10,000 x 100 operations in 0.5 ms are 0.096 TFLOP/s."""
    record = make_record(cell="one")
    model = {"batch_size": 8, "dim": 100, "dtype": "float32", "peak_tflops": 0.96}
    record["config"] |= {"task": "full_softmax", "model": model, "methods": METHODS}
    times = {"products": 0.5, "keras": 1.0, "softbench": 0.75}
    record["steps"] = {
        name: {"step_ms": {"median": ms, "p20": ms, "p80": ms, "count": 9}}
        for name, ms in times.items()
    }
    record["memory"] = {"keras": {"peak_mib": 7.0}, "softbench": {"peak_mib": 3.0}}
    rows = {row["method"]: row for row in page.VIEW.rows(record)}
    assert {k: r["over_products"] for k, r in rows.items()} == {
        "products": 1.0,
        "keras": 2.0,
        "softbench": 1.5,
    }
    assert [rows[name]["over_keras"] for name in times] == [0.5, 1.0, 0.75]
    np.testing.assert_allclose(rows["products"]["tflops"], 0.096)
    assert [rows[name]["peak_mib"] for name in times] == [None, 7.0, 3.0]


def test_the_peak_of_a_device_can_be_given_to_every_problem():
    line = [f"--config={config_path('full_softmax')}", "--config.model.peak_tflops=989.0"]
    for preset in ("", "accelerator"):
        config = app.read_config(app.parse(["softbench", *line, f"--config.preset={preset}"]))
        assert {cell.config["model"]["peak_tflops"] for cell in matrix.cells(config)} == {989.0}

"""Class tables over several devices: `keras.distribution` on JAX, on virtual CPU devices."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
from small import spec

import softbench
from softbench.distribution import collective_bytes, collectives, layout_map

HERE = Path(__file__).parent
JAX = keras.backend.backend() == "jax"
needs_jax = pytest.mark.skipif(not JAX, reason="`keras.distribution` works on JAX alone")
N, D = 1024, 32  # of sharding_worker.py
WHOLE = {"starts", "level_0", "bounds", "edges"}  # of n / 8 rows or more, and on every device

# Seconds each; all others are slow.
FAST = ("in_batch:adagrad@2x2", "full chunked@4", "saved", "classifier", "embedding")
SAMPLED = "uniform log_uniform unigram in_batch exp quadratic rff sorf positive maclaurin codebook"
SAMPLED = [*SAMPLED.split(), "top_and_tail", "mixed"]
OTHERS = ["nce", "negative", "one vs each", "hinge", "buckets", "augment reduce"]
SLOW = [
    *(f"{name}{rows}@4" for name in (*SAMPLED, *OTHERS) for rows in ("", ":adagrad")),
    *(
        f"{name}@4"
        for name in ("full", "full several", "adaptive", "hierarchical", "hierarchical:adam")
    ),
    *("uniform:sgd@2x2", "codebook:adam@2x2", "rff@2x2", "in_batch:adam@data", "full@data"),
]


def started(script, *arguments):
    """A child process with this repository's package."""
    path = os.pathsep.join([str(Path(softbench.__file__).parents[1]), str(HERE)])
    environment = {**os.environ, "PYTHONPATH": path, "KERAS_BACKEND": "jax"}
    command = [sys.executable, str(HERE / script), *map(str, arguments)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def lines(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def cases(folder, names):
    """What the cases print. XLA aborts a process, seldom, whose virtual devices miss each other."""
    for _ in range(2):
        child = started("sharding_worker.py", folder, *names)
        found = {line["case"]: line for line in lines(child.communicate()[0])}
        if child.returncode != -signal.SIGABRT:
            break
    assert child.returncode == 0
    return found


@pytest.fixture(scope="module")
def fast(tmp_path_factory):
    """All of `FAST` from one child process: it alone has four devices."""
    return cases(tmp_path_factory.mktemp("sharding"), FAST)


def check(found):
    """Several devices do what one does, and no collective has the numbers of a class table."""
    np.testing.assert_allclose(found["losses"], found["one"], rtol=1e-4, atol=1e-4)
    assert np.ptp(found["one"]) > 1e-3
    evaluation = found["evaluation"]
    for name, expected in evaluation.get("by_numpy", {}).items():
        np.testing.assert_allclose(evaluation[name], expected, rtol=1e-4, atol=1e-4)
    where, what = found["case"].split("@")[1], found["case"].split("@")[0].split(":")[0]
    parts = {"data": 1, "4": 4, "2x2": 2}[where]
    tables = [path for path in found["share"] if "/table/" in path]
    assert (len(tables) >= 2) == (what not in ("hierarchical", "adaptive"))
    assert all(found["share"][path] == 1 / parts for path in tables)
    if parts > 1 and tables:
        whole = {path.split("/")[-1] for path, part in found["share"].items() if part == 1}
        assert whole <= WHOLE
    if where != "data" and tables:  # data-parallel gradients of a replicated table are of its size
        assert found["step"]["bytes"]  # it does run on several devices
        # Without a row optimizer devices add up the dense gradients of the part that they share.
        dense = where == "2x2" and ":" not in found["case"]
        assert found["step"]["largest"] <= N * D // (2 if dense else 3)
        assert evaluation["largest"] < N * D // 16
        assert evaluation["looped"] == 0


@needs_jax
@pytest.mark.parametrize("name", FAST[:2])
def test_four_devices_train_as_one(fast, name):
    check(fast[name])


@needs_jax
def test_a_saved_model_goes_on_with_other_devices(fast):
    found = fast["saved"]
    for place in ("1", "2"):
        np.testing.assert_allclose(found[place], found["4"], rtol=1e-4)
        assert list(found[f"share {place}"].values()) == [1 / int(place)]


@needs_jax
def test_a_classifier_fits_and_evaluates_on_four_devices(fast):
    found = fast["classifier"]
    one = found["none"]
    assert one["losses"][-1] < one["losses"][0]
    np.testing.assert_allclose(found["2x2"]["losses"], one["losses"], rtol=1e-4)
    assert found["2x2"]["scores"] == pytest.approx(one["scores"], rel=1e-4)
    assert list(found["share 2x2"].values()) == [1 / 2]


@needs_jax
def test_the_rows_of_an_embedding_layer_are_divided(fast):
    """Each of four has its rows alone: equal losses, and no device gets another's rows."""
    found = fast["embedding"]
    np.testing.assert_allclose(found["four"], found["one"], rtol=1e-6)
    assert found["one"][-1] < found["one"][0] and found["rows"] == N // 4
    kinds, largest = zip(*((kind, size) for kind, size, *_ in found["collectives"]), strict=True)
    # At most the hidden vectors, 48 of 32 numbers; the table has 1,024 rows of them.
    assert set(kinds) == {"all-reduce"} and max(largest) <= 48 * D
    for one, four in found["computed"].values():
        np.testing.assert_allclose(four, one, rtol=1e-5)
        assert np.ptp(one) > 0


@needs_jax
@pytest.mark.slow
def test_every_head_and_sampler_on_four_devices(tmp_path):
    found = cases(tmp_path, SLOW)
    assert set(found) == set(SLOW)
    for name in SLOW:
        check(found[name])


def free_port():
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return found.getsockname()[1]


def hosts(processes, folder, steps, killed_after=None):
    """Losses by step of a training by several processes; one of them may be killed."""
    port, found = free_port(), {}
    options = processes, port, folder, steps
    children = [started("hosts_worker.py", i, *options) for i in range(processes)]
    try:
        for text in children[0].stdout:
            for line in lines(text):
                found |= {line["step"]: line["loss"]} if "step" in line else line
                if line.get("step") == killed_after and killed_after is not None:
                    children[-1].send_signal(signal.SIGKILL)
                    return found
        assert [child.wait() for child in children] == [0] * processes
        return found
    finally:
        for child in children:
            child.kill()
            child.communicate()


@needs_jax
@pytest.mark.slow
def test_processes_train_as_one_and_fewer_go_on_when_one_is_killed(tmp_path):
    pytest.importorskip("orbax.checkpoint", reason="checkpoints of several processes")
    one = hosts(1, tmp_path / "one", 10)
    two = hosts(2, tmp_path / "two", 10)
    killed = hosts(4, tmp_path / "four", 1000, killed_after=5)
    resumed = hosts(2, tmp_path / "four", 10)
    steps = range(10)
    np.testing.assert_allclose([two[i] for i in steps], [one[i] for i in steps], rtol=1e-4)
    np.testing.assert_allclose(two["top"], one["top"], rtol=1e-4)
    np.testing.assert_allclose([killed[i] for i in range(6)], [one[i] for i in range(6)], rtol=1e-4)
    assert 2 <= min(i for i in resumed if i != "top") <= 6
    for i in set(resumed) - {"top"}:
        np.testing.assert_allclose(resumed[i], one[i], rtol=1e-4)
    np.testing.assert_allclose(resumed["top"], one["top"], rtol=1e-4)


@needs_jax
def test_classes_that_devices_cannot_share_evenly_are_an_error(monkeypatch):
    from softbench import state

    monkeypatch.setattr(state, "planned_shards", lambda path, shape: 4)
    with pytest.raises(ValueError, match=r"`units` must be a multiple of 4.*units=12.*units=10"):
        softbench.FullSoftmax(10).build((None, 3))


def test_a_layout_map_needs_jax_and_an_axis():
    if JAX:
        one = keras.distribution.DeviceMesh((1,), ["batch"], keras.distribution.list_devices()[:1])
        with pytest.raises(ValueError, match=r"`axis` must be one of .*'batch'.*axis='classes'"):
            layout_map(one)
    else:
        with pytest.raises(ValueError, match=r"`layout_map` needs the JAX backend.*'tensorflow'"):
            layout_map(None)


ROWS = {"kernel", "bias", "kernel_accumulator", "bias_accumulator"}
CELLS = {"cell", "order", "place"}
OPTIONS = {"counts": np.ones(N), "prior": np.ones(N), "block_size": 4}
DIVIDED = {
    ("in_batch", ()): {"seen"},
    ("in_batch", ("counts",)): {"log_p"},
    ("unigram", ("counts",)): set(),
    ("quadratic", ("block_size",)): {"applied", "sums_4"},
    ("quadratic", ("block_size", "prior")): {"applied", "prior", "sums_4", "prior_4"},
    ("codebook", ()): {"seen", "applied", "next_cell", *CELLS},
    ("codebook", ("counts", "prior")): {"fixed_importance", "prior", "next_cell", *CELLS},
}


@needs_jax
@pytest.mark.parametrize("name, given", DIVIDED)
def test_layers_say_what_a_layout_map_divides(name, given):
    devices = keras.distribution.list_devices()[:1]
    layouts = layout_map(keras.distribution.DeviceMesh((1,), ["classes"], devices))
    layouts["encoder/kernel"] = (None, "classes")
    layouts["other/table/kernel"] = (None, None)
    sampler = spec(name, **{key: OPTIONS[key] for key in given})
    with keras.distribution.ModelParallel(layout_map=layouts).scope():
        rows = softbench.RowAdagrad(0.1)
        head = softbench.SampledSoftmax(N, sampler, 8, row_optimizer=rows)
        other = softbench.FullSoftmax(N, name="other")
        whole = softbench.HierarchicalSoftmax(N), softbench.AdaptiveSoftmax(N, [64])
        encoder = keras.layers.Dense(D, name="encoder")
        for layer in (head, other, *whole, encoder):
            layer.build((None, D))
    divided = {v.name for v in head.variables if v._layout.axes == ("classes",)}
    assert divided == ROWS | DIVIDED[name, given]
    assert other.table.kernel._layout.axes == (None, None)
    assert encoder.kernel._layout.axes == (None, "classes")
    for layer in whole:
        assert all("classes" not in v._layout.axes for v in layer.variables)


HLO = """HloModule step
%inside (x: f32[8,4]) -> f32[8,4] {
  ROOT %all-reduce.1 = f32[8,4]{1,0} all-reduce(%x), replica_groups={{0,1}}, to_apply=%sum
}
ENTRY %main (p: s32[4]) -> s32[16] {
  %w = (f32[8,4]{1,0}) while(%t), condition=%more, body=%inside
  %g = (s32[4]{0}, s32[16]{0}) all-gather-start(%p), dimensions={0}
  %d = s32[16]{0} all-gather-done(%g)
  %two = (bf16[6]{0}, pred[3]{0}) all-reduce(%a, %b), to_apply=%sum
}
"""


def test_collectives_of_compiled_text():
    assert [(c.kind, c.elements, c.bytes, c.looped) for c in collectives(HLO)] == [
        ("all-reduce", 32, 128, True),
        ("all-gather", 16, 64, False),
        ("all-reduce", 6, 15, False),
    ]
    assert collective_bytes(HLO)["all-reduce"] == {"count": 2, "bytes": 143}

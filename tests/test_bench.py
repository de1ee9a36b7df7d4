"""The benchmark: configs, matrix, cells in processes of their own, records, resume, errors."""

import getpass
import json
import re
import signal
import socket
import sys
import time
import types

import keras
import numpy as np
import pytest
import reference
import scipy
from shipped import CONFIGS, ROOT, config_path, get_config
from small_runs import BACKEND, driver, run_cells_here, wait_for

from softbench import __main__ as command
from softbench.bench import app, environment, matrix, records, timing
from softbench.bench import config as config_lib
from softbench.bench.config import ConfigError
from softbench.bench.training import build, head_measures, problems
from softbench.experiments.step_time import page as step_time_page

TINY = """
from softbench.bench.config import experiment

def get_config():
    return experiment(
        "tiny",
        dataset={"name": "synthetic_language", "label": "tiny", "num_classes": 50,
                 "num_train": 400, "num_valid": 100, "num_test": 100},
        model={"name": "lstm", "units": 4, "num_layers": 1, "batch_size": 4, "num_steps": 5},
        optimizer={"name": "sgd", "learning_rate": 0.1},
        method_table={
            "full": {"head": "FullSoftmax"},
            "unigram": {"head": "SampledSoftmax", "kwargs": {"num_sampled": 8, "sampler": {
                "class_name": "unigram", "config": {"counts": "train", "power": 0.5}}}},
            "broken": {"head": "SampledSoftmax", "kwargs": {"num_sampled": 0}},
            "diverges": {"head": "FullSoftmax", "optimizer": {"learning_rate": 1e38}},
        },
        timing={"warmup_steps": 2, "head_repetitions": 3},
        columns=("test_perplexity", "step_ms"),
        cell_timeout_s=240.0,
    )
"""


@pytest.fixture
def tiny(tmp_path):
    path = tmp_path / "tiny.py"
    path.write_text(TINY)
    return [f"--config={path}", f"--workdir={tmp_path / 'out'}", f"--backend={BACKEND}"]


def shipped_config(name):
    return config_lib.plain(get_config(config_path(name)))


def smoke(name, out, *options):
    """Runs the smoke preset of a shipped config; returns its records."""
    line = ["softbench", f"--config={config_path(name)}", "--config.preset=smoke", *options]
    assert command.main([*line, f"--workdir={out}", f"--backend={BACKEND}"]) == 0
    return records.read_all(out)


def record_of(workdir, method):
    return next(r for r in records.read_all(workdir) if list(r["config"]["methods"]) == [method])


def test_processors_of_one_brand_have_different_names():
    """By name alone the virtual machines of a provider, twice as fast or not, look alike."""
    text = "processor : 0\ncpu family : {}\nmodel\t: 2\nmodel name : AMD EPYC\n\nmodel : 9\n"
    assert environment.cpu_name(text.format(26)) == "AMD EPYC (family 26 model 2)"
    assert environment.cpu_name(text.format(25)) == "AMD EPYC (family 25 model 2)"
    assert environment.cpu_name("model name : other\n") == "other"
    assert environment.cpu_name("") and "family" not in environment.cpu_name("")


@pytest.mark.skipif(BACKEND != "tensorflow", reason="it asks TensorFlow")
@pytest.mark.parametrize(("rounded", "precision"), [(True, "default"), (False, "highest")])
def test_a_gpu_of_tensorflow_says_how_precise_its_products_are(monkeypatch, rounded, precision):
    import tensorflow as tf

    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [kind])
    monkeypatch.setattr(
        tf.config.experimental, "get_device_details", lambda gpu: {"device_name": "Some GPU"}
    )
    monkeypatch.setattr(
        tf.config.experimental, "tensor_float_32_execution_enabled", lambda: rounded
    )
    expected = {"kind": "gpu", "name": "Some GPU", "count": 1, "matmul_precision": precision}
    assert environment.device("tensorflow") == expected


@pytest.mark.thorough
def test_cells_end_as_ok_crashed_or_nan_and_a_second_run_resumes(
    tiny, tmp_path, capsys, monkeypatch
):
    run_cells_here(monkeypatch)
    out = tmp_path / "out"
    methods = "--config.methods=broken,unigram,diverges"
    assert command.main(["softbench", *tiny, methods]) == 1
    files = sorted((out / "runs").iterdir())
    contents = [path.read_bytes() for path in files]
    assert len(files) == 3
    shown = capsys.readouterr().out
    assert "| unigram" in shown

    good = record_of(out, "unigram")
    assert good["status"] == "ok"
    assert good["schema_version"] == 1
    assert good["versions"]["keras"] == keras.__version__
    assert good["versions"]["scipy"] == scipy.__version__
    assert set(good["step_ms"]) == {"median", "p20", "p80", "count"}
    assert good["steps_per_epoch"] == 19  # rows of 100 tokens: (100 - 1) // 5 batches
    assert good["step_ms"]["count"] == 17  # without the first two
    assert good["head_ms"]["count"] == 3
    assert good["examples_per_second"] == pytest.approx(
        20 * 1000 / good["step_ms"]["median"], rel=1e-3
    )
    final = good["final"]
    for split in ("valid", "test"):
        assert 0 < good["oracle"][f"{split}_nll"] < good["most_frequent"][f"{split}_nll"]
    assert final["test_perplexity"] == pytest.approx(np.exp(final["test_nll"]), rel=1e-5)
    assert final["log_likelihood"] == -final["test_nll"]
    for point in (final, *good["curve"]):
        # The unigram leaves out the classes that the few training tokens do not have.
        assert point["proposal_kl"] is None and point["proposal_ess"] == 0
        assert np.isfinite(point["mutual_information"])
    assert 1 < final["test_perplexity"] < 100
    assert [point["step"] for point in good["curve"]] == [19]

    broken = record_of(out, "broken")
    assert broken["status"] == "crashed"
    error = "ValueError: `num_sampled` must be an integer >= 1. Received: num_sampled=0"
    assert broken["error"].endswith(error)
    assert f"    {error}\n    {out / 'runs' / broken['cell']}.json: --retry_failed runs" in shown
    diverged = record_of(out, "diverges")
    assert diverged["status"] == "nan"
    assert diverged["error"].endswith("The loss is not a finite number in epoch 1.")
    assert len(diverged["curve"]) == 1

    for private in (socket.gethostname(), str(tmp_path), str(ROOT), sys.prefix):
        assert private.encode() not in b"".join(contents)
    assert f"/{getpass.getuser()}/" not in "".join(map(str, contents))

    assert command.main(["softbench", *tiny, methods]) == 1
    assert [path.read_bytes() for path in files] == contents
    assert "kept" in capsys.readouterr().out


def test_data_that_is_not_there_ends_the_run_before_any_cell(tmp_path):
    config = f"--config={config_path('ptb_rff')}"
    arguments = [config, f"--workdir={tmp_path / 'out'}", "--config.methods=full"]
    with pytest.raises(ConfigError, match=r"--data_dir, config.dataset: `data_dir` must hold ptb/"):
        command.main(["softbench", *arguments, f"--data_dir={tmp_path}"])
    assert not (tmp_path / "out").exists()


def test_a_cell_that_failed_is_retried_on_request(tiny, tmp_path, monkeypatch):
    """By processes that end at once, with a status and without a record."""
    out, arguments = tmp_path / "out", ["softbench", *tiny, "--config.methods=broken"]
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert command.main(arguments) == 1
    assert record_of(out, "broken")["error"] == "Exit code 1."
    monkeypatch.setattr(sys, "executable", "/bin/true")
    assert command.main(arguments) == 1
    assert record_of(out, "broken")["error"] == "Exit code 1."
    assert command.main([*arguments, "--retry_failed"]) == 1
    assert record_of(out, "broken")["error"] == "Exit code 0."


def test_interrupt_ends_the_cell_and_leaves_no_record(tiny, tmp_path):
    out = tmp_path / "out"
    process = driver(["softbench", *tiny, "--config.methods=full"])
    assert wait_for(lambda: list(out.glob("partial/*.job.json")), 60)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors == "softbench: stopped; run the same command to resume\n"
    assert not list((out / "runs").iterdir())


def test_write_is_atomic(tmp_path, monkeypatch):
    path = tmp_path / "runs" / "a.json"
    records.write_json(path, {"x": 1.5, "y": float("nan"), "z": np.float32(2)})
    assert json.loads(path.read_text()) == {"x": 1.5, "y": None, "z": 2.0}

    def fail(source, destination):
        raise OSError("disk full")

    monkeypatch.setattr(records.os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        records.write_json(path, {"x": 2})
    assert json.loads(path.read_text())["x"] == 1.5
    assert [p.name for p in path.parent.iterdir()] == ["a.json"]


def test_scrub_takes_directories_away():
    text = 'File "/home/somebody/x/softbench/bench/train.py", line 3\nOSError: /data/ptb/a.txt'
    assert records.scrub(text) == 'File "train.py", line 3\nOSError: a.txt'


def test_cell_ids_are_readable_and_follow_the_config():
    config = shipped_config("ptb_nce") | {"methods": "full", "seeds": [0, 1]}
    first, second = matrix.cells(config)
    assert first.id.startswith("ptb-lstm_small-full-s0-tensorflow-")
    assert second.id.startswith("ptb-lstm_small-full-s1-tensorflow-")
    changed = matrix.cells(config | {"epochs": 2})[0]
    assert changed.id.rsplit("-", 1)[0] == first.id.rsplit("-", 1)[0]
    assert changed.id != first.id
    assert matrix.cells(config | {"cell_timeout_s": 1.0})[0].id == first.id


@pytest.mark.parametrize("name", CONFIGS)
def test_shipped_configs_name_their_command_and_their_papers_rows(name):
    config = shipped_config(name)
    command = rf"softbench --config=(configs/{name}\.py|{name}\b)"
    assert re.search(command, config_path(name).read_text())
    # The report finds a paper's row by its name.
    assert all(row.rsplit("-", 1)[-1] in config["method_table"] for row in config["paper"])


def test_ptb_config_holds_the_papers_numbers():
    paper = shipped_config("ptb_nce")["paper"]
    expected = {"epochs": 13, "test_perplexity": 111.5, "valid_perplexity": 116.8}
    assert paper["ptb-lstm_small-full"] == expected
    assert paper["ptb-lstm_large-reg_ranking_1600"]["test_perplexity"] == 75.0
    assert len(paper) == 36


def test_command_hides_places():
    argv = ["softbench", "--config", "/a/b/configs/x.py", "--data_dir=/d", "--config.epochs=2"]
    expected = "softbench --config=configs/x.py --config.epochs=2"
    assert app._command(app.resolved([*argv, "--workdir", "/w"])) == expected


def test_summary_of_times():
    """One slow step among many does not move the median."""
    times = timing.summary([0.001 * value for value in (*range(1, 11), 5000)])
    assert times == {"median": 6.0, "p20": 3.0, "p80": 9.0, "count": 11}
    assert timing.summary([])["median"] is None


def clock_of(monkeypatch, readings):
    """A clock of the test for `timing`."""
    clock = types.SimpleNamespace(perf_counter=iter(readings).__next__)
    monkeypatch.setattr(timing, "time", clock)


def test_step_timer_by_a_clock_of_the_test(monkeypatch):
    """Two passes, 81 seconds of evaluation between them; a step of warm-up in each."""
    clock_of(monkeypatch, [10.0, 15.0, 16.0, 19.0, 100.0, 107.0, 107.5])
    timer = timing.StepTimer(warmup=1)
    assert timer.compile_seconds() is None
    timer.on_epoch_begin(0)
    timer.on_train_batch_end(0)
    assert (timer.clock, timer.first_seconds, timer.compile_seconds()) == (5.0, 5.0, 5.0)
    for batch in (1, 2):
        timer.on_train_batch_end(batch)
    timer.on_epoch_begin(1)
    for batch in (0, 1):
        timer.on_train_batch_end(batch)
    assert (timer.clock, timer.steps) == (16.5, 5)
    assert (timer.first_seconds, timer.seconds) == (5.0, [1.0, 3.0, 0.5])
    assert timer.compile_seconds() == 4.0  # less the median, 1


def test_turns_by_a_clock_of_the_test(monkeypatch):
    """First call 20 s, the second and the first of a round uncounted, then 1, 2 and 9 s."""
    lengths = [20.0, 50.0, 60.0, 1.0, 2.0, 9.0]
    ends = np.cumsum(lengths)
    clock_of(
        monkeypatch, [t for end, own in zip(ends, lengths, strict=True) for t in (end - own, end)]
    )
    calls = []
    step = timing.Steps(lambda: calls.append("run"), lambda _: calls.append("wait"))
    (found,) = timing.in_turn({"a": step}, rounds=1, block=3, max_seconds=100.0).values()
    assert found["step_ms"] == {"median": 2000.0, "p20": 1400.0, "p80": 6200.0, "count": 3}
    assert found["compile_seconds"] == 18.0
    assert calls == ["run", "wait"] * 6


def test_rounds_take_turns_and_respect_the_limit():
    calls = []

    def step(name, seconds):
        def run():
            calls.append(name)
            time.sleep(seconds)

        return timing.Steps(run, lambda result: None)

    steps = {"quick": step("quick", 0.0), "slow": step("slow", 0.05)}
    result = timing.in_turn(steps, rounds=2, block=2, max_seconds=0.04)
    assert calls[:4] == ["quick"] * 2 + ["slow"] * 2
    turns = "".join(name[0] for name in calls[4:])
    assert turns in ("qqqssqqq", "ssqqqqqq")
    assert result["quick"]["step_ms"]["count"] == 4
    assert result["slow"]["step_ms"]["count"] == 1


def test_rounds_are_in_random_order():
    calls = []
    steps = {name: timing.Steps(lambda name=name: calls.append(name), id) for name in "abc"}
    timing.in_turn(steps, rounds=30, block=1, max_seconds=1.0)
    rounds = {"".join(calls[start : start + 6 : 2]) for start in range(6, len(calls), 6)}
    assert len(rounds) > 3 and all(sorted(order) == list("abc") for order in rounds)


@pytest.mark.thorough
def test_step_time_task_measures_every_method_on_one_process(tmp_path, monkeypatch):
    run_cells_here(monkeypatch)
    methods = "--config.methods=rows_uniform_shared,full,peer_tf"
    (record,) = smoke("scaling", tmp_path, methods)
    assert record["num_classes"] == 200
    measured = {"rows_uniform_shared", "full"}
    assert set(record["steps"]) == measured | ({"peer_tf"} if BACKEND == "tensorflow" else set())
    assert set(record["skipped"]) == ({"peer_tf"} if BACKEND == "jax" else set())
    assert all(step["step_ms"]["median"] > 0 for step in record["steps"].values())
    (record,) = smoke("item_tower", tmp_path / "towers")
    rows = {row["method"]: row for row in step_time_page.rows(record)}
    parts = rows["rows"]["step_ms"] + rows["products"]["step_ms"]
    assert rows["tower"]["over_parts"] == rows["tower"]["step_ms"] / parts


@pytest.mark.parametrize("name", ["language", "bag"])
def test_diagnostics_of_a_training_record(name):
    """By their definitions, on the fixed validation batch, without a change of any state."""
    dataset, model = {
        "language": (
            {"name": "synthetic_language", "num_classes": 30, "num_train": 400},
            {"units": 4, "num_layers": 1, "batch_size": 4, "num_steps": 5},
        ),
        "bag": (
            {"name": "synthetic_xmc", "num_classes": 30, "num_features": 40, "num_train": 60},
            {"name": "bag", "batch_size": 4, "dim": 5},
        ),
    }[name]
    dataset |= {"num_valid": 60, "num_test": 60}
    config = {"dataset": dataset, "model": model, "seed": 0, "steps_per_epoch": 0}
    problem = problems.load(config, None)
    method = {"head": "SampledSoftmax", "kwargs": {"num_sampled": 3, "sampler": "uniform"}}
    head = build.head(method, problem.num_classes, problem.counts, 0)
    head.build(problem.encoder.output.shape)
    layers = (head, problem.encoder)
    before = [np.array(v) for layer in layers for v in layer.variables]
    found = head_measures.diagnose(head, problem, 1.5)
    after = [np.array(v) for layer in layers for v in layer.variables]
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(old, new)
    p = reference.softmax(np.array(head(problem.probe()[0]), np.float64))
    n = problem.num_classes
    assert found["proposal_kl"] == pytest.approx((p * np.log(p * n)).sum(-1).mean(), rel=1e-4)
    assert found["proposal_ess"] == pytest.approx((1 / (n * p**2).sum(-1)).mean(), rel=1e-4)
    hidden, labels = (np.asarray(x, np.float64) for x in problem.probe())
    square = (((p - np.eye(n)[labels.astype(int)]).T @ hidden) ** 2).sum(-1)
    rows = (p**2).T @ (hidden**2).sum(-1) * (n - 1) / 3 / square
    buckets = np.asarray(reference.ref_class_buckets(problem.counts))
    for i, bucket in enumerate(("head", "torso", "tail")):
        expected = np.median(rows[(buckets == i) & ~np.isnan(rows)])
        assert found[f"proposal_row_rv_{bucket}"] == pytest.approx(expected, rel=1e-3)
    share = problem.counts[problem.counts > 0] / problem.counts.sum()
    assert found["mutual_information"] == pytest.approx(-(share * np.log(share)).sum() - 1.5)


def test_training_counts_go_wherever_a_config_names_them():
    kernel = {"class_name": "rff", "config": {"prior": "train", "num_features": 4}}
    method = {"head": "SampledSoftmax", "kwargs": {"sampler": kernel}}
    head = build.head(method, 3, np.array([1.0, 2.0, 4.0]), 0)
    np.testing.assert_array_equal(head.sampler.prior, [1, 2, 4])


@pytest.mark.parametrize(
    "method",
    [
        {"head": "FullSoftmax", "kwargs": {}},
        {"head": "SampledSoftmax", "kwargs": {"sampler": "uniform"}},
    ],
)
def test_a_bias_may_begin_at_the_class_frequencies(method):
    """Then a class table of zeros predicts the training data's frequencies, log Z is 0, and a class
    that was not seen counts as seen once."""
    kwargs = {**method["kwargs"], "bias_initializer": "log frequencies"}
    kwargs["kernel_initializer"] = "zeros"
    head = build.head({**method, "kwargs": kwargs}, 3, np.array([0.0, 2.0, 5.0]), 0)
    scores = np.array(head(np.ones((1, 4), "float32")))
    np.testing.assert_allclose(scores, np.log([[0.1, 0.3, 0.6]]), rtol=1e-6)


@pytest.mark.thorough
def test_wall_time_task_measures_draw_loss_and_update(tmp_path, monkeypatch):
    run_cells_here(monkeypatch)
    methods = "--config.methods=exp,exp_product,rff_50,rff_50_shared"
    record, shared = smoke("wall_time", tmp_path, methods)
    assert set(shared["wall_time"]) == {"rff_50_shared"}
    times = record["wall_time"]
    assert {name: set(parts) for name, parts in times.items()} == {
        "exp": {"draw", "loss", "update"},
        "exp_product": {"loss"},
        "rff_50": {"draw", "loss", "update"},
    }
    for parts in times.values():
        assert all(part["step_ms"]["median"] > 0 for part in parts.values())
    assert record["sums"]["exp"] == {}
    assert record["sums"]["rff_50"]["block_size"] >= 1
    assert "exp_product" in (tmp_path / "experiment.json").read_text()

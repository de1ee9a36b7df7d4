"""A run goes on from its checkpoint bit by bit: data order, dropout, samplers, slots, curve."""

import shutil
import signal

import keras
import numpy as np
import pytest
import small_runs
from conftest import slow_but
from shipped import CONFIGS, config_path
from small_runs import BAG, arguments, cells_of, cli, driver, untimed, wait_for
from small_runs import records as records_of

from softbench.bench import app, checkpoints, environment, matrix, records, timing
from softbench.bench.methods import (
    FLAT_COUNTS,
    SMALL_LANGUAGE,
    adagrad,
    full,
    row,
    sampled,
    with_row_updates,
)
from softbench.bench.training import problems
from softbench.bench.training import run as train

LSTM = {
    "dataset": {**SMALL_LANGUAGE, "num_train": 300, "num_valid": 100, "num_test": 100},
    "model": {"name": "lstm", "units": 4, "num_layers": 1, "keep_prob": 0.5, "batch_size": 5}
    | {"num_steps": 10, "row_optimizer": adagrad(0.1)},
}
KERNEL = sampled("rff", 5, num_features=16, refresh_every=2)
CASES = {
    "full": (BAG, full()),
    "kernel, rows": (BAG, with_row_updates(KERNEL, {"name": "adam", "learning_rate": 0.01})),
    "in_batch": (BAG, sampled("in_batch", 5)),
    "dropout": (LSTM, sampled("unigram", 5, **FLAT_COUNTS)),
    "examples": (BAG, row("AugmentReduce", num_sampled=5)),
    "tree": (BAG, row("NegativeSampling", num_sampled=5, sampler={"class_name": "adversarial"})),
}


def job(case, path, **fields):
    """A run of 3 epochs of 5 steps that writes a checkpoint after every step."""
    problem, method = CASES[case]
    fields = {"epochs": 3, "seed": 3, "methods": {case: method}, **problem, **fields}
    return small_runs.job(checkpoint=path, **fields)


def kept_after(monkeypatch, step, path):
    """Copies the checkpoint that is written after a step to `path`."""
    write = checkpoints.write

    def writing(place, head, arrays):
        write(place, head, arrays)
        if head["timer"]["steps"] == step:
            shutil.copy(place, path)

    monkeypatch.setattr(checkpoints, "write", writing)


def arrays(path):
    return [array.tobytes() for array in list(checkpoints.read_arrays(path))[1:]]


def assert_goes_on(whole, resumed, step, monkeypatch):
    """Bit by bit, from the checkpoint after a step, with other initial seeds."""
    kept_after(monkeypatch, step, resumed.checkpoint)
    keras.utils.set_random_seed(3)
    train.run(whole)
    monkeypatch.undo()
    keras.utils.set_random_seed(4)
    train.run(resumed)
    assert untimed(records.finite(resumed.result)) == untimed(records.finite(whole.result))
    assert arrays(resumed.checkpoint) == arrays(whole.checkpoint)


@pytest.mark.parametrize("case", slow_but(CASES, "kernel, rows", thorough=("dropout",)))
def test_a_run_goes_on_bit_by_bit(case, tmp_path, monkeypatch, capfd):
    whole, resumed = (job(case, tmp_path / name) for name in ("whole", "resumed"))
    assert_goes_on(whole, resumed, 7, monkeypatch)
    assert "resumed: goes on in epoch 2, after step 7\n" in capfd.readouterr().out
    assert [point["step"] for point in whole.result["curve"]] == [5, 10, 15]


def smoke_cells():
    """{name: config} of a smoke cell for every model, head, sampler and row optimizer in use."""
    found = {}
    for name in CONFIGS:
        line = ["softbench", f"--config={config_path(name)}", "--config.preset=smoke"]
        line.append(f"--backend={keras.backend.backend()}")
        for cell in matrix.cells(app.read_config(app.parse(line))):
            (method, *others) = cell.config["methods"].values()
            if cell.config["task"] == "train" and not others:
                kwargs = method.get("kwargs", {})
                parts = [cell.config["model"]["name"], method["head"], kwargs.get("objective")]
                sampler = kwargs.get("sampler")
                sampler = sampler.get("class_name") if isinstance(sampler, dict) else sampler
                parts += [sampler, "row_optimizer" in kwargs and "rows"]
                found.setdefault("-".join(filter(None, parts)), cell.config)
    return found


SMOKE = smoke_cells()


@pytest.mark.slow
@pytest.mark.parametrize("name", SMOKE)
def test_every_kind_of_training_goes_on_bit_by_bit(name, tmp_path, monkeypatch):
    """Epochs of 6 steps, which end within a pass over the data."""
    config = SMOKE[name] | {"epochs": 2, "steps_per_epoch": 6, "max_train_seconds": 0.0}
    config["timing"] = {"warmup_steps": 1, "head_repetitions": 0}
    whole, resumed = (
        small_runs.job(checkpoint=tmp_path / part, **config) for part in ("whole", "resumed")
    )
    assert_goes_on(whole, resumed, 3, monkeypatch)


@pytest.mark.thorough
def test_a_killed_run_ends_as_if_it_had_not_been(tmp_path):
    """Killed at some moment in some epoch; nothing of the checkpoints is left at the end."""
    whole, killed = (tmp_path / name for name in ("whole", "killed"))
    for folder in (whole, killed):
        folder.mkdir()
    options = ("--config.epochs=20",)
    assert cli(*arguments(whole, "full", *options))[0] == 0
    argv = arguments(killed, "full", *options, "--checkpoint_minutes=0")
    process = driver(argv)
    assert wait_for(lambda: list(killed.glob("out/partial/*.checkpoint")), 60)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=10)
    assert wait_for(lambda: not cells_of(killed), 10)
    assert not list(killed.glob("out/runs/*"))
    code, text, errors = cli(*argv)
    assert (code, errors) == (0, "")
    assert "-full-s0-" in text and ": goes on in epoch " in text
    assert untimed(records_of(killed / "out")) == untimed(records_of(whole / "out"))
    assert not list(killed.glob("out/partial/*.checkpoint*"))


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """The checkpoint of the end of a run."""
    path = tmp_path_factory.mktemp("kept") / "kept"
    train.run(job("full", path, epochs=1))
    return path


def begun(path, **fields):
    """The curve with which a run begins: that of the checkpoint, or none."""
    made = job("full", path, **{"epochs": 1, **fields})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "_epochs", lambda *arguments: ())
        problem = problems.load(made.config, None)
        train.fit(made, made.config["methods"]["full"], problem, made.config["optimizer"])
    return made.result["curve"]


def flipped(path):
    """Some bit in the middle of the arrays is another."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGE = {
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-300]),
    "flipped": flipped,
    "foreign": lambda path: np.savez(path.open("wb"), a=np.zeros(3)),
    "text": lambda path: path.write_text("{}"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_checkpoint_is_named_and_not_used(kind, kept, tmp_path, capfd):
    path = tmp_path / "x.checkpoint"
    shutil.copy(kept, path)
    assert len(begun(path)) == 1
    DAMAGE[kind](path)
    assert begun(path) == []
    said = "x.checkpoint is cut or damaged; the cell begins anew\n"
    assert capfd.readouterr().out.endswith(said)


def test_a_checkpoint_of_other_code_libraries_data_or_config_is_not_used(kept, capfd, monkeypatch):
    def said():
        assert begun(kept) == []
        return capfd.readouterr().out.splitlines()[-1]

    assert len(begun(kept)) == 1
    assert begun(kept, seed=4) == []
    assert capfd.readouterr().out.endswith("kept is of other config; the cell begins anew\n")
    versions = environment.versions(keras.backend.backend()) | {"keras": "3.0"}
    monkeypatch.setattr(environment, "code", lambda: "0" * 12)
    assert said() == "kept is of other code; the cell begins anew"
    monkeypatch.setattr(environment, "versions", lambda backend: versions)
    assert said() == "kept is of other code and libraries; the cell begins anew"
    monkeypatch.undo()
    monkeypatch.setattr(checkpoints, "_FORMAT", 2)
    assert said() == "kept is of format 1; this version reads 2; the cell begins anew"


def test_a_full_disk_costs_the_checkpoint_alone(tmp_path, monkeypatch, capfd):
    def full_disk(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints.os, "fsync", full_disk)
    made = job("full", tmp_path / "x.checkpoint", epochs=1)
    train.run(made)
    assert "x.checkpoint cannot be written: No space left on device\n" in capfd.readouterr().out
    assert made.result["final"] and not list(tmp_path.iterdir())


def test_the_clock_leaves_out_checkpoints_and_a_second_compilation(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])

    def step(timer, batch, seconds):
        now[0] += seconds
        timer.on_train_batch_end(batch)

    first = timing.StepTimer(warmup=1)
    first.on_epoch_begin(0)
    for batch, seconds in enumerate((10.0, 2.0, 2.0, 4.0)):
        step(first, batch, seconds)
    now[0] += 100.0
    first.leave_out()
    step(first, 4, 2.0)
    assert first.clock == 20.0 and first.seconds == [2.0, 2.0, 4.0, 2.0]
    second = timing.StepTimer(warmup=1)
    second.go_on(first.state(), first.seconds)
    second.on_epoch_begin(0)
    for batch, seconds in enumerate((30.0, 3.0)):
        step(second, batch, seconds)
    assert (second.clock, second.steps) == (20.0 + 2.0 + 3.0, 7)
    assert second.seconds == [2.0, 2.0, 4.0, 2.0, 3.0] and second.compile_seconds() == 8.0

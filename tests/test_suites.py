"""The suite of accelerators: its cells, and the calls of a few minutes that run them in turn."""

import io
import sys
import tarfile
import time
from types import SimpleNamespace

import keras
import pytest
from report_records import make_record, write_results
from shipped import CONFIGS, config_path, get_config
from small_runs import Calls

from softbench import samplers
from softbench.bench import app, environment, launchers, matrix, runner, suites
from softbench.bench import config as config_lib
from softbench.bench.config import ConfigError
from softbench.bench.launchers import local
from softbench.bench.training import checks
from softbench.report import frame, pages

MEMORY = 78 * 2**30  # bytes of the device
FLOAT = 4
SUITE = suites.SUITES["accelerator"]


def config_of(line):
    return app.read_config(app.parse(app.resolved(["softbench", *line.split()])))


def test_every_preset_for_accelerators_is_in_the_suite():
    made = {name for name in CONFIGS if "accelerator" in get_config(config_path(name)).presets}
    lines = [config_of(line)["experiment"] for line in SUITE.values()]
    assert made == {name.replace("ptb_equal_time", "ptb_rff") for name in lines}


@pytest.mark.parametrize("line", [*SUITE.values(), "--config=sequences:equal_time"])
def test_cells_of_a_run_can_be_listed_and_their_methods_made(line, capsys, tmp_path):
    line = f"{line} --config.preset=accelerator"
    config = config_of(line)
    config_lib.check(config)
    cells = matrix.cells(config)
    assert app.main(["softbench", *line.split(), "--list", f"--workdir={tmp_path}"], None) == 0
    assert capsys.readouterr().out.splitlines() == [f"{cell.id} -" for cell in cells]
    configs = [cell.config for cell in cells]
    assert {config["backend"] for config in configs} == {"jax"}
    assert all("GLIBC_TUNABLES" not in config["environment"] for config in configs)
    assert checks.mistakes(config for config in configs if config["task"] == "train") == []
    for config in configs:
        for row, method in config["methods"].items():
            if config["task"] == "step_time":
                assert list(checks.of_method(row, method)) == []
            if config["task"] == "wall_time" and "sampler" in method:
                samplers.get(method["sampler"])


def test_the_tables_of_a_process_fit_beside_each_other():
    largest = 0
    for cell in matrix.cells(config_of(SUITE["scaling"])):
        n, model = cell.config["dataset"]["num_classes"], cell.config["model"]
        rows = FLOAT * n * (model["dim"] + 1)
        held = len(cell.config["methods"]) * 2 * rows  # with Adagrad's sums
        dense = [name for name in cell.config["methods"] if not name.startswith("rows_")]
        held += rows if dense else 0
        held += 2 * FLOAT * n * model["batch_size"] if "full" in dense else 0
        assert held < MEMORY, cell.id
        largest = max(largest, n)
    assert largest == 10_000_000


def test_a_call_goes_through_all_runs_and_shares_its_minutes(tmp_path, capsys):
    runs, line = Calls(), ["softbench", "--suite=accelerator", f"--workdir={tmp_path}"]
    assert suites.run([*line, "--minutes=2", "--data_dir=d"], runs, None, None) == 0
    assert [flags["workdir"] for flags in runs.made] == [str(tmp_path / name) for name in SUITE]
    first = {"config": "full_softmax", "config.preset": "accelerator"}
    assert runs.made[0].items() >= first.items()
    assert {flags["data_dir"] for flags in runs.made} == {"d"}
    minutes = [float(flags["minutes"]) for flags in runs.made]
    assert 2 >= minutes[0] > minutes[-1] > 1
    assert "next:" not in capsys.readouterr().out
    runs.statuses = {"xmc_scale": "--data_dir: no", "scaling": 1}
    assert suites.run([*line, "--config.preset=smoke"], runs, None, None) == 2
    assert "softbench: error: --data_dir: no" in capsys.readouterr().err
    assert len(runs.made) == 2 * len(SUITE) and "minutes" not in runs.made[-1]
    assert runs.made[-1]["config.preset"] == "smoke"  # the later one counts
    runs.statuses["sequences"] = suites.OUT_OF_TIME
    assert suites.run([*line, "--minutes=1"], runs, None, None) == suites.OUT_OF_TIME
    assert f"next: {' '.join([*line, '--minutes=1'])}\n" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="--suite does not go with --config"):
        suites.run([*line, "--config=xmc"], runs, None, None)
    with pytest.raises(ConfigError, match=r"suite.*should be one of.*accelerator"):
        app.main(["softbench", "--suite=other"], None)


def test_a_pack_brings_the_records_to_another_folder(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    record = make_record()
    write_results(first / "scaling", record)
    write_results(first / "other", record)
    for name in ("partial/x.checkpoint", "partial/x.job.json", "price/a.json"):
        (first / "scaling" / name).parent.mkdir(exist_ok=True)
        (first / "scaling" / name).write_text("{}")
    line = ["softbench", "--suite=accelerator", f"--workdir={first}"]
    assert suites.run(line, Calls(), None, None) == 0
    second.mkdir()
    pack = second / "accelerator.tar.gz"
    (first / pack.name).rename(pack)
    line = ["softbench", "--suite=accelerator", f"--workdir={second}"]
    assert suites.run(line, Calls(), None, None) == 0
    made = sorted(p.relative_to(second) for p in second.rglob("*.json"))
    names = ["experiment.json", "price/a.json", f"runs/{record['cell']}.json"]
    assert list(map(str, made)) == [f"scaling/{name}" for name in names]
    assert (second / made[2]).read_bytes() == (first / made[2]).read_bytes()
    (second / made[2]).write_text("kept")
    assert suites.unpack(pack, second) == 0
    assert (second / made[2]).read_text() == "kept"


def test_a_run_that_had_no_time_has_no_tables(tmp_path):
    assert pages.summary(frame.read(write_results(tmp_path))) == "No results."


@pytest.mark.parametrize("name", ["../runs/a.json", "a/runs/../../b.json", "a/partial/b", "/a/b"])
def test_a_pack_with_other_files_is_refused(name, tmp_path):
    path = tmp_path / "pack"
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo(name)
        member.size = 2
        archive.addfile(member, io.BytesIO(b"{}"))
    with pytest.raises(ConfigError, match="the records there must be a pack"):
        suites.unpack(path, tmp_path / "out")
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(ConfigError, match="the records there must be a pack"):
        suites.unpack(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_no_cell_begins_late_and_none_runs_longer(tmp_path, monkeypatch):
    """A cell that is ended by the clock has no record: it goes on another time."""
    config = {"backend": keras.backend.backend(), "seed": 0, "experiment": "x", "task": "train"}
    config |= {"methods": {}, "dataset": {}, "model": {}}
    made = [matrix.Cell(f"c{i}", config, 500.0) for i in range(3)]
    record = make_record(cell="c0")
    write_results(tmp_path, record)
    limits = []

    def run_here(cell, job, partial):
        limits.append((cell.timeout_s, job["cell"]["timeout_s"]))
        launcher.deadline = launchers.Deadline(0.0, 0.0)  # as if it had run so long
        return launchers.Ended(None, 1.0)

    monkeypatch.setattr(local, "run_here", run_here)
    launcher = launchers.get("local", {}, 1.0)
    given = (tmp_path, None, "softbench", False, 10.0, launcher)
    assert runner.run_cells(made, *given) == ["ok", runner.LEFT, runner.LEFT]
    ((limit, own),) = limits
    assert 50 < limit <= 60 and own == 500.0
    assert [path.stem for path in (tmp_path / "runs").iterdir()] == ["c0"]
    launcher.deadline = launchers.Deadline(time.monotonic() - 1, time.monotonic() + 60)
    assert runner.run_cells(made, *given) == ["ok", runner.LEFT, runner.LEFT]
    assert len(limits) == 1
    fake = SimpleNamespace(Launcher=lambda cluster: SimpleNamespace(is_parallel=True))
    monkeypatch.setitem(sys.modules, "softbench.bench.launchers.ray", fake)
    with pytest.raises(ConfigError, match="--minutes is for --launcher=local"):
        launchers.get("ray", {}, 1.0)


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="the presets are for JAX")
def test_a_record_and_its_page_name_the_device_and_its_memory(tmp_path, monkeypatch):
    import jax

    stats = {"bytes_in_use": 2**30, "peak_bytes_in_use": 3 * 2**30}
    gpu = SimpleNamespace(platform="gpu", device_kind="Some GPU", memory_stats=lambda: stats)
    monkeypatch.setattr(jax, "devices", lambda *_: [gpu])
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    device, memory = environment.device("jax"), environment.peak_memory_mb()
    expected = {"kind": "gpu", "name": "Some GPU", "count": 1, "matmul_precision": "default"}
    assert device == expected
    assert memory["device"] == 3072.0
    write_results(tmp_path, make_record(device=device, peak_memory_mb=memory))
    found = frame.read(tmp_path)
    text = pages.render(pages.Page({found.name: found}, found.name), None, "page.md")
    assert "on Some GPU (gpu x 1)." in text and "On the device 3.0 GiB at most." in text

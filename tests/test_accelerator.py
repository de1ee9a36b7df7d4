"""The presets `accelerator`: their cells, and the calls of a few minutes that run them in turn."""

import io
import sys
import tarfile
import time
from types import SimpleNamespace

import keras
import pytest
from report_records import make_record, write_results
from shipped import CONFIGS, config_path, get_config

from softbench import samplers
from softbench.bench import accelerator, app, environment, launchers, matrix, runner
from softbench.bench import config as config_lib
from softbench.bench.config import ConfigError
from softbench.bench.launchers import local
from softbench.bench.training import checks
from softbench.report import page

MEMORY = 78 * 2**30  # bytes of the device
FLOAT = 4


def cells(name):
    path, _, part = name.partition(":")
    config = config_lib.plain(get_config(config_path(path), *filter(None, [part])))
    config = config_lib.with_preset(config | {"preset": "accelerator"}, {})
    config_lib.check(config)
    return matrix.cells(config)


def test_the_presets_are_those_that_run():
    given = {name for name in CONFIGS if "accelerator" in get_config(config_path(name)).presets}
    assert given == {name.partition(":")[0] for name in accelerator.EXPERIMENTS}


@pytest.mark.parametrize("name", [*accelerator.EXPERIMENTS, "sequences:equal_time"])
def test_cells_of_a_preset_can_be_listed_and_their_methods_made(name, capsys):
    found = [cell.config for cell in cells(name)]
    line = ["softbench", f"--config={name}", "--config.preset=accelerator", "--list"]
    assert app.main(line, None) == 0
    assert capsys.readouterr().out.split() == [cell.id for cell in cells(name)]
    assert {config["backend"] for config in found} == {"jax"}
    assert all("GLIBC_TUNABLES" not in config["environment"] for config in found)
    assert checks.mistakes(config for config in found if config["task"] == "train") == []
    for config in found:
        for row, method in config["methods"].items():
            if config["task"] == "step_time":
                assert list(checks.of_method(row, method)) == []
            if config["task"] == "wall_time" and "sampler" in method:
                samplers.get(method["sampler"])


def test_the_tables_of_a_process_fit_beside_each_other():
    largest = 0
    for cell in cells("scaling"):
        n, model = cell.config["dataset"]["num_classes"], cell.config["model"]
        rows = FLOAT * n * (model["dim"] + 1)
        held = len(cell.config["methods"]) * 2 * rows  # with Adagrad's sums
        dense = [name for name in cell.config["methods"] if not name.startswith("rows_")]
        held += rows if dense else 0
        held += 2 * FLOAT * n * model["batch_size"] if "full" in dense else 0
        assert held < MEMORY, cell.id
        largest = max(largest, n)
    assert largest == 10_000_000


@pytest.fixture
def calls(monkeypatch):
    """What `accelerator.main` gives to `softbench`, which ends as `calls.statuses` say."""
    found = SimpleNamespace(lines=[], statuses={})

    def main(line, show):
        name = line[1].split("/")[-1]
        found.lines.append(dict(part.lstrip("-").partition("=")[::2] for part in line[1:]))
        status = found.statuses.get(name, 0)
        if isinstance(status, str):
            raise ConfigError(status)
        return status

    monkeypatch.setattr(app, "main", main)
    return found


def test_a_call_goes_through_all_presets_and_shares_its_minutes(calls, tmp_path, capsys):
    line = ["x", f"--workdir={tmp_path}", f"--data_dir={tmp_path}", "--minutes=2"]
    assert accelerator.main(line) == 0
    names = [one["config"].split("/")[-1].replace(".py", "") for one in calls.lines]
    assert names == list(accelerator.EXPERIMENTS)
    assert {one["config.preset"] for one in calls.lines} == {"accelerator"}
    assert {one["data_dir"] for one in calls.lines} == {str(tmp_path)}
    minutes = [float(one["minutes"]) for one in calls.lines]
    assert 2 >= minutes[0] > minutes[-1] > 1
    folders = [one["workdir"].split("/")[-1] for one in calls.lines]
    assert "ptb_equal_time_accelerator" in folders and len(set(folders)) == len(folders)
    calls.statuses = {"xmc_scale.py": "--data_dir: no", "scaling.py": 1}
    assert accelerator.main(["x", f"--workdir={tmp_path}", "--rehearse"]) == 2
    assert "softbench: error: --data_dir: no" in capsys.readouterr().err
    assert len(calls.lines) == 2 * len(accelerator.EXPERIMENTS)
    assert calls.lines[-1]["config.preset"] == "smoke"
    calls.statuses["sequences.py"] = app.OUT_OF_TIME
    assert accelerator.main(["x", f"--workdir={tmp_path}", "--rehearse"]) == app.OUT_OF_TIME
    with pytest.raises(ConfigError, match=r"--data_dir must be given, or --rehearse"):
        accelerator.main(["x", f"--workdir={tmp_path}"])
    with pytest.raises(ConfigError, match=r"--experiments must be among.*Received: .'scale'"):
        accelerator.main(["x", f"--workdir={tmp_path}", "--rehearse", "--experiments=scale"])


def test_a_pack_brings_the_records_to_another_folder(calls, tmp_path):
    first, second, out = (tmp_path / name for name in ("first", "second", "out"))
    record = make_record()
    write_results(first / "scaling_accelerator", record)
    write_results(first / "other", record)
    (first / "scaling_accelerator" / "partial").mkdir()
    (first / "scaling_accelerator" / "partial" / "x.checkpoint").write_bytes(b"large")
    line = ["x", "--rehearse", "--experiments=scaling"]
    calls.statuses["scaling.py"] = app.OUT_OF_TIME
    # A rehearsal keeps apart from results; here its folder is the one above.
    accelerator.pack([first / "scaling_accelerator"], out / accelerator.PACK)
    more = [f"--workdir={second}", f"--resume_from={out / accelerator.PACK}"]
    accelerator.main([*line, *more])
    made = sorted(p.relative_to(second) for p in second.rglob("*") if p.is_file())
    names = ["experiment.json", f"runs/{record['cell']}.json"]
    assert list(map(str, made)) == [f"scaling_accelerator/{name}" for name in names]
    assert (second / made[1]).read_bytes() == (first / made[1]).read_bytes()
    (second / made[1]).write_text("kept")
    assert accelerator.unpack(out / accelerator.PACK, second) == 0
    assert (second / made[1]).read_text() == "kept"


@pytest.mark.parametrize("name", ["../runs/a.json", "a/runs/../../b.json", "a/partial/b", "/a/b"])
def test_a_pack_with_other_files_is_refused(name, tmp_path):
    path = tmp_path / "pack"
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo(name)
        member.size = 2
        archive.addfile(member, io.BytesIO(b"{}"))
    with pytest.raises(ConfigError, match=r"--resume_from must be a records.tar.gz. Received: "):
        accelerator.unpack(path, tmp_path / "out")
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(ConfigError, match="--resume_from must be a records"):
        accelerator.unpack(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_no_cell_begins_late_and_none_runs_longer(tmp_path, monkeypatch):
    """A cell that is ended by the clock has no record: it goes on another time."""
    config = {"backend": keras.backend.backend(), "seed": 0, "experiment": "x", "task": "train"}
    config |= {"methods": {}, "dataset": {}, "model": {}}
    made = [matrix.Cell(f"c{i}", config, 500.0) for i in range(3)]
    record = make_record(cell="c0")
    write_results(tmp_path, record)
    limits = []

    def run_here(cell, job, partial, is_held):
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
    monkeypatch.setitem(sys.modules, launchers.LAUNCHERS["ray"], fake)
    with pytest.raises(ConfigError, match="--minutes is for --launcher=local"):
        launchers.get("ray", {}, 1.0)


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="the presets are for JAX")
def test_a_record_and_its_page_name_the_device_and_its_memory(tmp_path, monkeypatch):
    import jax

    stats = {"peak_bytes_in_use": 3 * 2**30}
    gpu = SimpleNamespace(platform="gpu", device_kind="Some GPU", memory_stats=lambda: stats)
    monkeypatch.setattr(jax, "devices", lambda *_: [gpu])
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    device, memory = environment.device("jax"), environment.peak_memory_mb()
    assert device == {"kind": "gpu", "name": "Some GPU", "count": 1}
    assert memory["device"] == 3072.0
    write_results(tmp_path, make_record(device=device, peak_memory_mb=memory))
    text = page.texts(page.read(tmp_path))["README.md"]
    assert "* Device: Some GPU (gpu x 1)" in text
    assert "* Memory of the device: 3.0 GiB at most, by `ptb-lstm" in text

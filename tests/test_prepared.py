"""Prepared folders: the same data set as from the files, whole or not at all, in little memory."""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import data_files
import keras
import numpy as np
import pytest
from small_runs import ENVIRON, driver, mistake

from softbench import datasets
from softbench.datasets import prepare_app, prepared


@pytest.fixture
def files(tmp_path):
    folder = tmp_path / "files"
    data_files.write_xmc_folder(folder, size=80)
    data_files.write_triples_folder(folder)
    data_files.write_text_folder(folder, train="b a b\na c b\n" * 10_000)
    return folder


def arrays(value):
    """Every array of a data set, csr matrices as their three."""
    for part in value:
        if hasattr(part, "indptr"):
            yield from (part.indptr, part.indices, part.data)
        elif isinstance(part, np.ndarray):
            yield part


@pytest.mark.parametrize("name", ["xmc/own", "wd50k", "text"])
def test_a_prepared_set_is_the_same_set(files, tmp_path, name):
    manifest = datasets.prepare(name, files, tmp_path / "out")
    direct = datasets.load(name, data_dir=files)
    found = datasets.load(name, data_dir=tmp_path / "out")
    beneath = datasets.load(name, data_dir=tmp_path / "out" / name)
    for a, b, c in zip(arrays(direct), arrays(found), arrays(beneath), strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, c)
        assert a.dtype == b.dtype
    strings = [part for part in direct if isinstance(part, list)]
    assert strings == [part for part in found if isinstance(part, list)]
    assert manifest["dataset"] == name
    for file, described in manifest["files"].items():
        content = (tmp_path / "out" / name / file).read_bytes()
        assert described == {
            "bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
        }


def test_large_arrays_are_memory_maps(files, tmp_path):
    datasets.prepare("xmc/own", files, tmp_path / "out")
    data = datasets.load("xmc/own", data_dir=tmp_path / "out")

    def is_mapped(array):
        while array is not None:
            if isinstance(array, np.memmap):
                return True
            array = array.base
        return False

    assert is_mapped(data.train_features.data) and is_mapped(data.train_features.indices)
    datasets.prepare("text", files, tmp_path / "out")
    assert is_mapped(datasets.load("text", data_dir=tmp_path / "out").train)


def test_manifest_tells_what_was_found_and_repaired(files, tmp_path):
    (files / "xmc" / "own_test.txt").write_bytes(b"2 30 12\r\n0 1:1 1:1\r\n 2:0\r\n")
    manifest = datasets.prepare("xmc/own", files, tmp_path, valid_fraction=0.5)
    assert manifest["options"]["valid_fraction"] == 0.5
    assert manifest["facts"]["repairs"] == {
        "crlf_lines": 2,
        "duplicate_features": 1,
        "zero_weights": 1,
        "rows_without_label": 2,
        "rows_without_feature": 2,
    }
    assert sum(manifest["facts"]["rows"].values()) == 82
    source = (files / "xmc" / "own_train.txt").read_bytes()
    described = manifest["sources"]["train"]["own_train.txt"]
    assert described["sha256"] == hashlib.sha256(source).hexdigest()


def test_options_are_those_of_the_preparation(files, tmp_path):
    datasets.prepare("xmc/own", files, tmp_path)
    assert datasets.load("xmc/own", data_dir=tmp_path, first_label=True).counts.sum() > 0
    with pytest.raises(ValueError, match=r"`valid_fraction` must be 0.1, with which own.*: 0.2"):
        datasets.load("xmc/own", data_dir=tmp_path, valid_fraction=0.2)
    with pytest.raises(FileExistsError, match="`out` must not hold xmc/own yet"):
        datasets.prepare("xmc/own", files, tmp_path)


@pytest.mark.parametrize("split", ["last", "time"])
def test_an_option_that_a_folder_was_prepared_without_is_an_error(tmp_path, split):
    """A folder from before there was `split` cannot say how it was split."""
    source = tmp_path / "events.csv"
    source.write_text("user,item,time\n" + "".join(f"u{i % 4},i{i % 5},{i}\n" for i in range(40)))
    datasets.prepare("interactions", source, tmp_path / "out")
    path = tmp_path / "out" / "interactions" / "manifest.json"
    in_manifest(lambda manifest: manifest["options"].pop("split"))(path)
    assert datasets.load("interactions", data_dir=tmp_path / "out").num_classes == 5
    expected = rf"`split` must be an option that interactions was prepared with.*: '{split}', and "
    with pytest.raises(ValueError, match=expected):
        datasets.load("interactions", data_dir=tmp_path / "out", split=split)
    # And of the harness one line, before a cell starts.
    line = ["softbench", "--config=interactions", f"--config.dataset.path={tmp_path / 'out'}"]
    line += [f"--workdir={tmp_path / 'results'}", f"--config.dataset.split={split}"]
    said = mistake(*line, f"--backend={keras.backend.backend()}")
    assert re.search(f"^--config.dataset.path: {expected}", said)


def flip(path):
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)


def large_id(path):
    array = np.load(path)
    array[5] = 10**6
    np.save(path, array)


def in_manifest(change):
    """What changes the manifest, after JSON."""

    def damage(path):
        content = json.loads(path.read_text())
        change(content)
        path.write_text(json.dumps(content))

    return damage


CHANGED = "train.npy must be as it was prepared. Received: a changed file"
MANIFEST = "manifest.json must be one that softbench-prepare 1 wrote"
DAMAGE = {
    "bit": ("train.npy", flip, CHANGED),
    "id": ("train.npy", large_id, CHANGED),
    "cut": ("train.npy", lambda path: path.write_bytes(path.read_bytes()[:-9]), CHANGED),
    "missing": ("train.npy", lambda path: path.unlink(), CHANGED),
    "list": ("manifest.json", lambda path: path.write_text("[]"), MANIFEST),
    "no JSON": ("manifest.json", lambda path: path.write_text("{"), MANIFEST),
    "files": ("manifest.json", in_manifest(lambda m: m.pop("files")), MANIFEST),
    "dataset": ("manifest.json", in_manifest(lambda m: m.pop("dataset")), MANIFEST),
    "newer": ("manifest.json", in_manifest(lambda m: m.update(format=2)), MANIFEST),
    "n": (
        "manifest.json",
        in_manifest(lambda m: m["facts"].update(num_classes=2)),
        "`num_classes` of manifest.json must be the length of counts.npy",
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A prepared text."""
    place = tmp_path_factory.mktemp("files")
    data_files.write_text_folder(place, train="b a b\na c b\n" * 10_000)
    datasets.prepare("text", place, place / "out")
    return place / "out" / "text"


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_an_error(folder, tmp_path, kind):
    """Other data never: without reading it whole, a changed bit is not seen."""
    name, damage, expected = DAMAGE[kind]
    shutil.copytree(folder, tmp_path / "text")
    damage(tmp_path / "text" / name)
    if kind == "bit":
        prepared.check_prepared(tmp_path / "text", {})
    with pytest.raises(ValueError, match=expected):
        datasets.load("text", data_dir=tmp_path)


def test_files_are_read_whole_once_in_a_process(folder, tmp_path, monkeypatch):
    shutil.copytree(folder, tmp_path / "text")
    read = []
    real = prepared._sha256
    monkeypatch.setattr(prepared, "_sha256", lambda path: read.append(path.name) or real(path))
    datasets.load("text", data_dir=tmp_path)
    assert sorted(read) == sorted(json.loads((folder / "manifest.json").read_text())["files"])
    datasets.load("text", data_dir=tmp_path / "text")
    assert len(set(read)) == len(read)


def test_a_malformed_file_leaves_nothing(files, tmp_path):
    with (files / "xmc" / "own_test.txt").open("a") as file:
        file.write("0 1:1\n")
    with pytest.raises(ValueError, match=r"own_test.txt:82: .*no more"):
        datasets.prepare("xmc/own", files, tmp_path / "out")
    assert list((tmp_path / "out" / "xmc").iterdir()) == []


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_preparation_leaves_nothing_half_written(tmp_path, end):
    folder, out = tmp_path / "files", tmp_path / "out"
    data_files.write_xmc_folder(folder, size=5)
    os.remove(folder / "xmc" / "own_test.txt")
    # It waits for the second file for ever.
    os.mkfifo(folder / "xmc" / "own_test.txt")
    arguments = ["--dataset=xmc/own", f"--data_dir={folder}", f"--out={out}"]
    process = driver(["softbench.datasets.prepare_app", *arguments])
    deadline = time.monotonic() + 30
    while not list(out.glob("xmc/.own.*.partial")) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(end)
    process.communicate(timeout=30)
    assert process.returncode != 0
    assert not (out / "xmc" / "own").exists()
    if end == signal.SIGTERM:
        assert not out.exists() or list((out / "xmc").iterdir()) == []
    with pytest.raises(FileNotFoundError):
        datasets.load("xmc/own", data_dir=out)


def test_what_a_killed_process_left_is_removed_by_the_next(files, tmp_path):
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    stale = tmp_path / "xmc" / f".own.{done.pid}.partial"
    running = tmp_path / "xmc" / f".own.{os.getppid()}.partial"
    for folder in (stale, running):
        folder.mkdir(parents=True)
    datasets.prepare("xmc/own", files, tmp_path)
    assert not stale.exists() and running.exists()


def test_command_line(files, tmp_path, capsys):
    arguments = ["--dataset=xmc/own", f"--data_dir={files}", f"--out={tmp_path / 'out'}"]
    assert prepare_app.main(["", *arguments, "--option=split_seed=4"]) == 0
    printed = capsys.readouterr().out
    assert "xmc/own: " in printed and '"num_classes": 12' in printed
    manifest = json.loads((tmp_path / "out" / "xmc" / "own" / "manifest.json").read_text())
    assert manifest["options"]["split_seed"] == 4
    assert str(tmp_path) not in json.dumps(manifest)
    said = mistake("", *arguments, "--option=bogus=1", main=prepare_app.main)
    assert said.startswith("`options` of 'xmc/own' must be among")


def test_memory_stays_that_of_a_block(tmp_path):
    """A file of 60,000 rows, some 25 MB: under 60 MB above that of the libraries alone."""
    folder = tmp_path / "files" / "xmc"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for split, size in (("train", 60_000), ("test", 10)):
        with (folder / f"own_{split}.txt").open("w") as file:
            file.write(f"{size} 1000000 50000\n")
            for _ in range(size // 10):
                ids = np.unique(rng.integers(1_000_000, size=40))
                line = f"{ids[0] % 50000} " + " ".join(f"{i}:0.25" for i in ids) + "\n"
                file.write(line * 10)
    peak = (
        "import resource, sys; from softbench.datasets import prepare_app; "
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss; "
        "prepare_app.main(sys.argv); "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    arguments = ["--dataset=xmc/own", f"--data_dir={folder.parent}", f"--out={tmp_path / 'out'}"]
    run = subprocess.run(
        [sys.executable, "-c", peak, *arguments], env=ENVIRON, capture_output=True, text=True
    )
    assert int(run.stdout.split()[-1]) < 60 * 1024, run.stdout + run.stderr

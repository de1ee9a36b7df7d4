"""A prepared folder that is not as it was written is an error that says so, never other data."""

import json
import shutil

import data_files
import numpy as np
import pytest

from softbench import datasets
from softbench.datasets import prepared


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    files = tmp_path_factory.mktemp("files")
    data_files.write_text_folder(files, train="b a b\na c b\n" * 10_000)
    datasets.prepare("text", files, files / "out")
    return files / "out" / "text"


def flip(path):
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)


def large_id(path):
    array = np.load(path)
    array[5] = 10**6
    np.save(path, array)


def manifest(path, change):
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


CHANGED = "train.npy must be as it was prepared. Received: a changed file"
MANIFEST = "manifest.json must be one that softbench-prepare 1 wrote"
DAMAGE = {
    "bit": ("train.npy", flip, CHANGED),
    "id": ("train.npy", large_id, CHANGED),
    "cut": ("train.npy", lambda path: path.write_bytes(path.read_bytes()[:-9]), CHANGED),
    "missing": ("train.npy", lambda path: path.unlink(), CHANGED),
    "list": ("manifest.json", lambda path: path.write_text("[]"), MANIFEST),
    "files": ("manifest.json", lambda path: manifest(path, lambda m: m.pop("files")), MANIFEST),
    "dataset": ("manifest.json", lambda path: manifest(path, lambda m: m.pop("dataset")), MANIFEST),
    "newer": ("manifest.json", lambda path: manifest(path, lambda m: m.update(format=2)), MANIFEST),
    "n": (
        "manifest.json",
        lambda path: manifest(path, lambda m: m["facts"].update(num_classes=2)),
        "`num_classes` of manifest.json must be the length of counts.npy",
    ),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_an_error(folder, tmp_path, kind):
    name, damage, expected = DAMAGE[kind]
    shutil.copytree(folder, tmp_path / "text")
    damage(tmp_path / "text" / name)
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

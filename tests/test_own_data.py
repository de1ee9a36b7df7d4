"""Data of the user's own, from a file: how it is read and split, and a run of each kind."""

import itertools
import json
import random

import data_files
import keras
import numpy as np
import pytest
from conftest import thorough_but
from shipped import config_path, get_config

from softbench import datasets
from softbench.bench import app, matrix, own_data
from softbench.bench import config as config_lib
from softbench.bench.config import ConfigError
from softbench.bench.job import Job
from softbench.bench.training import run as train
from softbench.datasets.base import SPLITS
from softbench.datasets.store import Splits

BACKEND = keras.backend.backend()
WORDS = [f"w{chr(97 + i % 26)}{chr(97 + i // 26)}" for i in range(60)]


def write_text(path, lines, seed=0):
    rng = random.Random(seed)
    text = "\n".join(" ".join(rng.choices(WORDS, k=8)) + "." for _ in range(lines))
    path.write_text(text + "\n")
    return path


def write_csv(path, users=40, items=30):
    """Rows in no order; of user u the items by time are u, u + 1, ... u + 5."""
    rows = [(u, (u + t) % items, 100 + t) for u in range(users) for t in range(6)]
    random.Random(1).shuffle(rows)
    lines = [f"user{u},item{i},{t}" for u, i, t in rows]
    path.write_text("\n".join(["user_id,item_id,timestamp", *lines]) + "\n")
    return path


def write_xmc(path, size=60):
    path.write_text(data_files.xmc_text(data_files.random_rows(size, 30, 12), 30, 12))
    return path


def write_triples(path, size=80):
    rng = random.Random(2)
    drawn = rng.sample(list(itertools.product(range(9), range(3), range(9))), size)
    path.write_text("".join(f"e{h}\tr{r}\te{t}\n" for h, r, t in drawn))
    return path


def test_exact_splits_have_their_fractions_and_never_an_empty_part():
    found = Splits(0, 0.1, 0.2, size=50)(np.arange(50))
    np.testing.assert_array_equal(np.bincount(found), [35, 5, 10])
    np.testing.assert_array_equal(np.bincount(Splits(1, 0.05, 0.05, size=3)(np.arange(3))), [1] * 3)
    with pytest.raises(ValueError, match=r"must hold 3 rows or more.*Received: 2"):
        Splits(0, 0.05, 0.05, size=2)


@pytest.mark.parametrize("lines", [3, 20, 800])
def test_a_short_text_has_all_splits_and_every_word_once(tmp_path, lines):
    path = write_text(tmp_path / "my.txt", lines)
    path.write_text(path.read_text().replace("\n", "\n\n"))  # blank lines count for nothing
    data = datasets.load("text", data_dir=path, tokenizer="words", split_lines=0)
    sizes = [len(data.split(split)) for split in SPLITS]
    assert sum(sizes) == lines * 9 and min(sizes) >= 9  # eight words and <eos>
    if lines == 800:
        assert sizes[1:] == [40 * 9, 40 * 9]


def test_a_text_of_one_line_is_an_error_that_says_so(tmp_path):
    path = write_text(tmp_path / "my.txt", 1)
    with pytest.raises(ValueError, match=r"must hold 3 rows or more, so that every split.*: 1"):
        datasets.load("text", data_dir=path, split_lines=0)


@pytest.mark.parametrize("name", ["text", "xmc", "triples"])
def test_a_folder_has_its_own_splits(tmp_path, name):
    write = {"text": write_text, "xmc": write_xmc, "triples": write_triples}[name]
    for file, size in (("train.txt", 30), ("dev.txt", 10), ("test.txt", 11)):
        write(tmp_path / file, size)
    data = datasets.load(name, data_dir=tmp_path)
    if name == "xmc":
        found = [data.split(split).labels.shape[0] for split in SPLITS]
    else:
        found = [len(data.split(split)) for split in SPLITS]
    assert found == [n * (9 if name == "text" else 1) for n in (30, 10, 11)]


def test_one_file_of_triples_is_divided(tmp_path):
    data = datasets.load("triples", data_dir=write_triples(tmp_path / "t.tsv"), test_fraction=0.1)
    assert [len(data.split(split)) for split in SPLITS] == [68, 4, 8]
    rows = np.concatenate([data.split(split) for split in SPLITS])
    found = [f"{data.entities[h]}\t{data.relations[r]}\t{data.entities[t]}" for h, r, t in rows]
    assert sorted(found) == sorted((tmp_path / "t.tsv").read_text().splitlines())
    np.testing.assert_array_equal(np.bincount(data.train[:, 2], minlength=9), data.counts)


def test_interactions_are_put_in_the_order_of_time(tmp_path):
    data = datasets.load("interactions", data_dir=write_csv(tmp_path / "a.csv"))
    expected = {f"user{u}": [f"item{(u + t) % 30}" for t in range(6)] for u in range(40)}
    assert data_files.histories(data) == expected
    training = [item for items in expected.values() for item in items[:-2]]
    assert data.counts.tolist() == [training.count(name) for name in data.items]
    assert data.counts.tolist() == sorted(data.counts, reverse=True)


def test_rare_items_and_short_users_are_left_out_until_none_is_left(tmp_path):
    """z is rare; without it c is short; without c's y, y is still seen twice."""
    path = tmp_path / "a.txt"
    path.write_text("a x y x\nb y x x\nc z y x\n")
    data = datasets.load("interactions", data_dir=path, min_count=2)
    assert data_files.histories(data) == {"a": ["x", "y", "x"], "b": ["y", "x", "x"]}
    with pytest.raises(ValueError, match=r"a\.txt: no interaction is left.*min_count=9"):
        datasets.load("interactions", data_dir=path, min_count=9)
    with pytest.raises(ValueError, match=r"`min_length` must be 3 or more\. Received: 2"):
        datasets.load("interactions", data_dir=path, min_length=2)
    path.write_text("a x y x\nb y\n")
    data = datasets.load("interactions", data_dir=path, min_count=1, min_length=0)
    assert data.train.sizes().tolist() == [1, 1] and data.test.sizes().tolist() == [1, 0]
    with pytest.raises(
        ValueError, match=r"`data` must have a user with two items or more in train"
    ):
        datasets.PackedHistories(data)


SMALL = {
    "text": (write_text, 300, {"units": 4, "batch_size": 4, "num_steps": 5}),
    "interactions": (write_csv, 40, {"dim": 4, "batch_size": 8, "length": 8}),
    "own_xmc": (write_xmc, 60, {"dim": 4, "batch_size": 16}),
    "triples": (write_triples, 80, {"dim": 4, "hidden_units": 4, "batch_size": 16}),
}


def cells_of(name, path, **changes):
    """The cells of a shipped config on a file, for one method."""
    config = config_lib.plain(get_config(config_path(name)))
    config["dataset"]["path"] = str(path)
    config["model"] |= SMALL[name][2]
    config |= {"methods": "unigram", "epochs": 1, "backend": BACKEND, **changes}
    config["timing"] = {"warmup_steps": 1, "head_repetitions": 0}
    return matrix.cells(own_data.named(config))


@pytest.mark.parametrize("name", thorough_but(SMALL, "text"))
def test_a_file_trains_today(tmp_path, name):
    write, size, _ = SMALL[name]
    (cell,) = cells_of(name, write(tmp_path / "my.data", size))
    (read,) = own_data.read([cell], tmp_path / "out")
    result = {}
    train.run(Job(read.config, read.data_dir, result, lambda point: None))
    assert np.isfinite(result["final"]["test_nll"]) and len(result["curve"]) == 1
    assert cell.id.startswith(f"my-{cell.config['model']['name']}-unigram-s0-{BACKEND}-")
    if name == "interactions":
        assert {"test_recall_at_10", "test_coverage_at_10"} <= result["final"].keys()
        shown = {column for column in get_config(config_path(name)).columns if "test" in column}
        assert shown <= result["final"].keys()


def test_a_cell_is_named_by_content_and_not_by_place(tmp_path):
    first = write_text(tmp_path / "my.txt", 100)
    (tmp_path / "other").mkdir()
    moved = write_text(tmp_path / "other" / "my.txt", 100)
    changed = write_text(tmp_path / "other" / "my.md", 100, seed=1)
    cells = [cells_of("text", path)[0] for path in (first, moved, changed)]
    assert cells[0].id == cells[1].id != cells[2].id
    assert str(tmp_path) not in json.dumps([cell.config for cell in cells])
    assert cells[0].data_dir != cells[1].data_dir


def test_a_file_is_read_once_for_all_cells_and_runs(tmp_path, capsys):
    cells = cells_of("text", write_text(tmp_path / "my.txt", 200), methods="full,unigram")
    found = [own_data.read(cells, tmp_path / "out") for _ in range(2)]
    assert len({cell.data_dir for run in found for cell in run}) == 1
    assert len(list((tmp_path / "out" / "data").iterdir())) == 1
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "holds: 61 classes, 1,600 examples"  # with <unk>; and in the other run again
    assert len(shown) == 8 and shown[:4] == shown[4:]


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("text", [], "--config.dataset.path must be given: your own text: a file, a folder"),
        ("xmc", ["--config.dataset.path=nowhere"], "--config.dataset.path: `path` must be your"),
        ("triples", ["--config.dataset.path=."], "--config.dataset.path: `path` must be your own"),
        (
            "text",
            ["--config.preset=smoke", "--config.dataset.path=a.txt"],
            "--config.dataset.path is for the data sets interactions, text, triples, xmc",
        ),
        ("sequences", ["--config.dataset.path=nowhere"], "`path` must be your own interactions"),
        (
            "matrix_factorisation",
            ["--config.dataset.path=a.txt"],
            "--config.dataset.path is for --config= with one of: interactions, text, triples, xmc",
        ),
    ],
)
def test_a_path_that_is_of_no_use_is_one_line(tmp_path, monkeypatch, name, options, words):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as error:
        app.main(["softbench", f"--config={name}", *options], None)
    assert words in str(error.value) and "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (
            lambda path: write_text(path, 20),
            r"must hold batch_size \* .num_steps \+ 1. = 420 words",
        ),
        (lambda path: write_text(path, 2), "must hold 3 rows or more"),
        (lambda path: path.write_bytes(b"ok\n\xff\n"), r"my\.txt:2: the text must be UTF-8"),
    ],
)
def test_a_text_of_no_use_is_one_line_before_any_cell(tmp_path, write, words):
    write(tmp_path / "my.txt")
    line = ["softbench", "--config=text", f"--config.dataset.path={tmp_path / 'my.txt'}"]
    with pytest.raises(ConfigError, match=words):
        app.main([*line, f"--workdir={tmp_path / 'out'}", f"--backend={BACKEND}"], None)
    assert not list((tmp_path / "out" / "runs").iterdir())

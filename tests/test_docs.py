"""docs/: its links exist, its names are of the library, its examples run."""

import math
import os
import random
import re
import subprocess
import sys

import keras
import numpy as np
import pytest
from shipped import ROOT

import softbench
from softbench.datasets import prepared

PAGES = sorted((ROOT / "docs").glob("**/*.md"))
HEADS = re.compile(r"`([A-Z]\w+)[(`]")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_and_names_exist(page):
    text = page.read_text()
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert (page.parent / target).exists(), target
    assert all(hasattr(softbench, name) for name in HEADS.findall(text))


def test_every_page_is_in_the_index():
    index = (ROOT / "docs" / "README.md").read_text()
    others = [page for page in PAGES if page.name != "README.md"]
    others += (ROOT / "docs" / "examples").glob("*.py")
    for page in others:
        assert f"({page.relative_to(ROOT / 'docs')})" in index


@pytest.mark.parametrize("name", ["uniform", "in_batch", "unigram", "codebook", "top_and_tail"])
@pytest.mark.parametrize("half", [False, True])
def test_bytes_of_a_class(name, half):
    """Variables of heads of 3,000 and 6,000 classes differ by those of 3,000 classes."""
    text, dim, sizes = (ROOT / "docs" / "scale.md").read_text(), 8, []
    (of_sampler,) = re.findall(rf"^\| `{name}` \| ([\d.]+) \|$", text, re.M)
    row = "2 d + 12" if half else "8 d + 8"
    assert f"| {row} |" in text
    for units in (3_000, 6_000):
        config = {} if name == "uniform" else {"counts": np.ones(units)}
        optimizer = softbench.RowAdagrad(0.1, per_row=half)
        table = softbench.ClassTable(
            units, row_optimizer=optimizer, table_dtype="bfloat16" if half else None
        )
        sampler = {"class_name": name, "config": config}
        head = softbench.SampledSoftmax(table=table, sampler=sampler, num_sampled=20)
        head.build((None, dim))
        sizes.append(sum(math.prod(v.shape) * np.dtype(v.dtype).itemsize for v in head.variables))
    expected = eval(row.replace("d", "* dim")) + float(of_sampler)
    assert (sizes[1] - sizes[0]) / 3_000 == pytest.approx(expected, abs=0.5)


def run(folder, name, *options):
    """What an example prints."""
    found = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "examples" / name), *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    return found.stdout


def test_the_recommender_for_your_own_data(tmp_path, monkeypatch, capsys):
    """Both programs of the page: what a customer took next is among ten of fifty products."""
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "own_data.md").read_text()
    programs = re.findall(r"```python\n(.*?)```", text, re.S)
    assert [program.count("\n") for program in programs] == [9, 15]
    names = {}
    random.seed(0)
    for program in programs:
        exec(compile(program.replace("fit(", "fit(verbose=0, x="), "own_data.md", "exec"), names)
    taken = names["data"].items[names["labels"][0, 0]]
    assert len(set(names["best"])) == 10 and taken in names["best"]
    summary = prepared.summary(prepared.prepare("interactions", "events.csv", "out"))
    assert all(f"    {line}\n" in text for line in summary)


@pytest.mark.thorough
def test_the_language_model(tmp_path):
    """On a text in which every word says the next one."""
    words = [f"w{i}" for i in np.random.default_rng(0).permutation(30)]
    (tmp_path / "text.txt").write_text(" ".join(words * 60))
    options = ["--text=text.txt", "--steps=5", "--units=16", "--draws=10", "--epochs=6"]
    assert float(run(tmp_path, "language_model.py", *options).split("perplexity")[-1]) < 28


@pytest.mark.thorough
def test_the_recommender(tmp_path):
    """Twice as good as chance, by the index too (which here has all items), and after loading."""
    options = ["--items=100", "--users=300", "--units=16", "--epochs=40", "--out=model"]
    shown = run(tmp_path, "recommender.py", *options)
    exact, *others = map(float, re.findall(r"(?:exact|approximate|loaded) ([\d.]+)", shown))
    assert exact > 0.2 and others == [exact, exact]
    served = tmp_path / "model" / "serving" / "1" / "saved_model.pb"
    assert served.exists() == (keras.backend.backend() == "tensorflow")

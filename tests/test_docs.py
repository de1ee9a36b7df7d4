"""docs/: its links exist, its names are of the library, its examples run."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest
from shipped import ROOT

import softbench

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


def test_the_language_model(tmp_path):
    """On a text in which every word says the next one."""
    words = [f"w{i}" for i in np.random.default_rng(0).permutation(30)]
    (tmp_path / "text.txt").write_text(" ".join(words * 60))
    script = ROOT / "docs" / "examples" / "language_model.py"
    options = ["--text=text.txt", "--steps=5", "--units=16", "--draws=10", "--epochs=6"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    found = subprocess.run(
        [sys.executable, str(script), *options],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert float(found.stdout.split("perplexity")[-1]) < 28

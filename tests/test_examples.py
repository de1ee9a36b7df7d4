"""The examples of docs/examples run as programs, and their models reach what they should."""

import os
import re
import subprocess
import sys

import keras
import numpy as np
import pytest
from shipped import ROOT

pytestmark = pytest.mark.thorough


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


def test_the_language_model(tmp_path):
    """On a text in which every word says the next one."""
    words = [f"w{i}" for i in np.random.default_rng(0).permutation(30)]
    (tmp_path / "text.txt").write_text(" ".join(words * 60))
    options = ["--text=text.txt", "--steps=5", "--units=16", "--draws=10", "--epochs=6"]
    assert float(run(tmp_path, "language_model.py", *options).split("perplexity")[-1]) < 28


def test_the_recommender(tmp_path):
    """Twice as good as chance, by the index too (which here has all items), and after loading."""
    options = ["--items=100", "--users=300", "--units=16", "--epochs=20", "--out=model"]
    shown = run(tmp_path, "recommender.py", *options)
    exact, *others = map(float, re.findall(r"(?:exact|approximate|loaded) ([\d.]+)", shown))
    assert exact > 0.2 and others == [exact, exact]
    served = tmp_path / "model" / "serving" / "1" / "saved_model.pb"
    assert served.exists() == (keras.backend.backend() == "tensorflow")

"""The examples of the docstrings print what they say, on both backends."""

import doctest
import importlib

import keras
import numpy as np
import pytest
from test_imports import MODULES

import softbench

SHOWN = [name for name, path in MODULES.items() if ">>> " in path.read_text()]


@pytest.mark.parametrize("name", SHOWN)
def test_examples(name):
    given = {"keras": keras, "np": np, "softbench": softbench}
    found = doctest.testmod(importlib.import_module(name), extraglobs=given)
    written = MODULES[name].read_text().count(">>> ")
    assert (found.attempted, found.failed) == (written, 0)

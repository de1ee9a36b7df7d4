"""The examples of the docstrings print what they say, on both backends."""

import doctest
import importlib

import keras
import numpy as np
import pytest

import softbench

MODULES = [
    "classifier",
    "heads.full",
    "heads.negative_sampling",
    "heads.noise_contrastive",
    "heads.sampled_softmax",
    "losses",
    "metrics.precision",
    "prediction",
    "rows",
    "samplers.registry",
    "table",
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    module = importlib.import_module(f"softbench.{name}")
    given = {"keras": keras, "np": np, "softbench": softbench}
    found = doctest.testmod(module, extraglobs=given)
    assert found.attempted > 2 and found.failed == 0

"""The examples of the docstrings print what they say, on both backends."""

import doctest
import importlib

import keras
import numpy as np
import pytest

import softbench

MODULES = [
    "class_table",
    "classifier",
    "heads.full",
    "heads.negative_sampling",
    "heads.noise_contrastive",
    "heads.sampled_softmax",
    "heads.scalable_cross_entropy",
    "heads.table_head",
    "heads.tied_embedding",
    "losses.softmax",
    "metrics.precision",
    "metrics.recommendation",
    "models.sasrec",
    "prediction",
    "rows",
    "samplers.registry",
    "serving.index",
    "serving.layer",
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    module = importlib.import_module(f"softbench.{name}")
    given = {"keras": keras, "np": np, "softbench": softbench}
    found = doctest.testmod(module, extraglobs=given)
    assert found.attempted > 2 and found.failed == 0

"""Training on several replicas of a `tf.distribute` strategy equals training on one device."""

import json
import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import reference

if keras.backend.backend() != "tensorflow":
    pytest.skip("tf.distribute is TensorFlow's; JAX shards one model", allow_module_level=True)

SCRIPT = Path(__file__).parent / "on_replicas.py"


def assert_same(found, expected):
    np.testing.assert_allclose(found["losses"], expected["losses"], rtol=1e-5)
    np.testing.assert_allclose(found["evaluated"], expected["evaluated"], rtol=1e-5)
    assert len(expected["weights"]) > 15
    for place, (path, value) in enumerate(expected["weights"].items()):
        own = list(found["weights"].values())[place]  # names count on in one process
        np.testing.assert_allclose(own, value, rtol=1e-4, atol=1e-5, err_msg=path)


@pytest.mark.thorough
def test_training_on_replicas():
    """One test, so that one worker runs the script, once."""
    environ = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}
    command = [sys.executable, SCRIPT]
    run = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-5000:]
    mirrored = json.loads(run.stdout.strip().splitlines()[-1])
    two_replicas_equal_one_device(mirrored)
    a_replica_without_an_example(mirrored)
    replicas_keep_one_state_of_a_sampler(mirrored)
    replicas_that_would_not_share_a_state_raise_before_the_first_step(mirrored)


def two_replicas_equal_one_device(mirrored):
    """Every head; halves of a batch with other weights, none at all, and of unequal sizes."""
    assert_same(mirrored["two"], mirrored["one"])


def a_replica_without_an_example(mirrored):
    np.testing.assert_allclose(mirrored["alone"]["two"], mirrored["alone"]["one"], rtol=1e-5)


def replicas_keep_one_state_of_a_sampler(mirrored):
    """What follows the table is computed alike by each: here at the third step, from its table."""
    states = mirrored["states"]
    assert states["different"] == []
    assert states["steps"] == 3
    kernel = np.array(states["kernel"])
    every = reference.quadratic_features(kernel, states["alpha"])
    i, j = np.triu_indices(kernel.shape[1])  # the products of i and j, and of j and i, as one
    products = every[:, i * kernel.shape[1] + j] * np.where(i == j, 1.0, np.sqrt(2.0))
    features = np.concatenate([products, every[:, -1:]], axis=1)
    sums = np.array(states["sums"])
    blocks = np.pad(features, ((0, 2 * len(sums) - len(features)), (0, 0)))
    expected = blocks.reshape(len(sums), 2, -1).sum(axis=1)
    np.testing.assert_allclose(sums, expected, rtol=1e-4, atol=1e-5)


def replicas_that_would_not_share_a_state_raise_before_the_first_step(mirrored):
    found = dict(mirrored["refused"])
    named = {"rows": "row_optimizer", "nodes": "row_optimizer", "in_batch": "counts"}
    named |= {"examples": "example_ids", "memory": "memory"}
    for name, argument in named.items():
        message, unchanged = found.pop(name)
        assert f"`{argument}`" in message and "Received: 2 replicas" in message and unchanged
    assert found == {"one": None}

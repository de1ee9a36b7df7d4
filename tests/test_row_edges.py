"""Row updates where a Keras optimizer has help: replicas, half precision, loss scales, clipping."""

import json
import os
import subprocess
import sys

import pytest
from conftest import BACKEND

REPLICAS = """
import json, numpy as np, tensorflow as tf
cpu, split = tf.config.list_physical_devices("CPU")[0], tf.config.LogicalDeviceConfiguration()
tf.config.set_logical_device_configuration(cpu, [split, split])
import keras, softbench
from softbench import models

def trained(make, strategy):
    with strategy.scope():
        x, y = keras.Input((4,)), keras.Input((), dtype="int32")
        head = make()
        extra = {"example_ids": y} if "num_examples" in head.get_config() else {}
        hidden = keras.layers.Dense(4)(x)
        model = keras.Model([x, y], head(hidden, y, **extra))
        model.compile("sgd")
    data = [np.ones((8, 4), "float32"), np.arange(8, dtype="int32")]
    before = model.get_weights()
    try:
        model.fit(data, batch_size=8, verbose=0)
    except ValueError as error:
        same = all(np.array_equal(a, b) for a, b in zip(before, model.get_weights()))
        model.evaluate(data, batch_size=8, verbose=0)
        return [str(error), same]
    return None

def hierarchical():
    return softbench.HierarchicalSoftmax(8, row_optimizer=softbench.RowSGD(0.1))

def sampled(sampler, **options):
    return softbench.SampledSoftmax(8, sampler, 5, seed=0, **options)

counted = {"class_name": "in_batch", "config": {"counts": [1.0] * 8}}
CASES = {
    "rows": lambda: sampled("uniform", row_optimizer=softbench.RowAdam(0.1)),
    "nodes": hierarchical,
    "in_batch": lambda: sampled("in_batch"),
    "examples": lambda: softbench.AugmentReduce(8, 8, "uniform", num_sampled=5),
    "counted": lambda: sampled(counted),
    "ordinary": lambda: sampled("uniform"),
}
one, two = tf.distribute.OneDeviceStrategy("CPU:0"), tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
found = {name: trained(make, two) for name, make in CASES.items()}
found["one"] = trained(CASES["rows"], one)
print(json.dumps(found))
"""


@pytest.mark.skipif(BACKEND == "jax", reason="tf.distribute is TensorFlow's; JAX shards one model")
def test_replicas_raise_before_the_first_step():
    """Each would change a table, or counts, of its own; what keeps no such state still trains."""
    environ = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}
    run = subprocess.run(
        [sys.executable, "-c", REPLICAS], capture_output=True, text=True, env=environ, check=False
    )
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout.strip().splitlines()[-1])
    named = {"rows": "row_optimizer", "nodes": "row_optimizer", "in_batch": "counts"}
    named["examples"] = "example_ids"
    for name, argument in named.items():
        message, unchanged = found.pop(name)
        assert f"`{argument}`" in message and "Received: 2 replicas" in message and unchanged
    assert found == {"counted": None, "ordinary": None, "one": None}

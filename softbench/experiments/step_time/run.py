"""The task "step_time": whole training steps of several methods, taking turns in one process.

A step is one compiled call from a batch to new weights, and its result awaited. It leaves out what
`fit` adds (metrics, callbacks), which is the same for every method and would hide the growth.
"""

import keras
import numpy as np

from softbench.bench import environment, timing
from softbench.bench.job import Job
from softbench.bench.training import build
from softbench.experiments.step_time.towers import Products, item_tower
from softbench.ops import steps as compiled_steps


def run(job: Job) -> None:
    """Times every method of the cell; fills `job.result`."""
    config, result = job.config, job.result
    num_classes = config["dataset"]["num_classes"]
    batches = timing.make_batches(config["model"], num_classes, config["seed"])
    steps, skipped = {}, {}
    for name, method in config["methods"].items():
        if "peer" in method and keras.backend.backend() != "tensorflow":
            skipped[name] = "needs the TensorFlow backend"
            continue
        steps[name] = make_step(method, config, num_classes, batches)
    result |= {"num_classes": num_classes, "skipped": skipped, "synchronised": True}
    result["steps"] = timing.in_turn(steps, **config["timing"])
    result["resident_mb"] = environment.resident_mb()


def make_step(method: dict, config: dict, num_classes: int, batches: list[tuple]) -> timing.Steps:
    """Returns the compiled step of a method.

    Args:
        method: a row of a head; with "tower" its table is that of `towers.item_tower`; or
            {"products": a tower, "num_sampled": m} of `towers.Products`, or a peer.
        config: of the cell.
        num_classes: n.
        batches: of the cell.
    """
    model, seed = config["model"], config["seed"]
    optimizer = build.optimizer(config["optimizer"])
    inputs = keras.Input((model["dim"],), batch_size=model["batch_size"])
    encoder = keras.Model(inputs, keras.layers.Dense(model["dim"])(inputs))
    if "peer" in method:
        from softbench.experiments.step_time import peers

        rate = config["optimizer"]["learning_rate"]
        step = peers.tf_sampled_softmax(encoder, optimizer, num_classes, method, rate)
    else:
        labels = keras.Input((), batch_size=model["batch_size"], dtype="int32")
        if "products" in method:
            tower = item_tower(method["products"], num_classes, model["dim"], seed)
            outputs = Products(tower, method["num_sampled"])(inputs, labels)
        else:
            if "tower" in method:
                tower = item_tower(method["tower"], num_classes, model["dim"], seed)
                method = {**method, "kwargs": {**method["kwargs"], "table": tower}}
            head = build.head(method, num_classes, np.ones(num_classes), seed)
            outputs = head(encoder(inputs), labels)
        whole = keras.Model([inputs, labels], outputs)
        step = compiled_steps.compile_step(whole, optimizer)
    return timing.cycled(step, batches, compiled_steps.wait)

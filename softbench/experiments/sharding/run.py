"""The task "sharding": training steps of a class table that is divided over devices.

A cell is one number of devices, S = `model.devices`: the first S accelerators, or S virtual devices
of the processor. Its methods are built, timed and forgotten one after another, so that the memory
of one is enough. Shape letters: B batch, d features, n classes.
"""

import gc
from typing import Any

import keras
import numpy as np

import softbench
from softbench.bench import timing
from softbench.bench.job import Job
from softbench.bench.training import build
from softbench.ops import steps as compiled_steps


def run(job: Job) -> None:
    """Times every method of the cell; fills `job.result`."""
    config, result = job.config, job.result
    devices = config["model"]["devices"]
    result |= {"num_classes": config["dataset"]["num_classes"], "devices": devices}
    result |= {"synchronised": True, "skipped": {}, "steps": {}}
    if reason := unable(devices):
        result["skipped"] = dict.fromkeys(config["methods"], reason)
        return
    mesh = keras.distribution.DeviceMesh(
        (devices,), ["classes"], keras.distribution.list_devices()[:devices]
    )
    layouts = softbench.distribution.layout_map(mesh)
    with keras.distribution.ModelParallel(layout_map=layouts).scope():
        for name, method in config["methods"].items():
            result["steps"][name] = measured(method, config)
            gc.collect()


def unable(devices: int) -> str:
    """Why there cannot be so many devices, or nothing; a processor is divided into as many."""
    if keras.backend.backend() != "jax":
        return "needs the JAX backend"
    import jax

    jax.config.update("jax_num_cpu_devices", devices)  # read when the devices are first looked at
    return "" if jax.device_count() >= devices else f"needs {devices} devices"


def measured(method: dict, config: dict) -> dict[str, Any]:
    """The times of a method's step, its memory on one device, and what it sends to others."""
    model, classes = config["model"], config["dataset"]["num_classes"]
    optimizer = build.optimizer(config["optimizer"])
    inputs, labels = keras.Input((model["dim"],)), keras.Input((), dtype="int32")
    hidden = keras.layers.Dense(model["dim"])(inputs)
    head = build.head(method, classes, np.ones(classes), config["seed"])
    whole = keras.Model([inputs, labels], head(hidden, labels))
    batches = timing.make_batches(model, classes, config["seed"])
    step, compiled = compiled_steps.compile_divided(whole, optimizer, list(batches[0]))
    variables = [*whole.variables, *optimizer.variables]
    text, memory = compiled.as_text(), compiled.memory_analysis()
    every = softbench.distribution.collectives(text)
    feed = timing.cycled(lambda *batch: step(list(batch)), batches, compiled_steps.wait)
    return {
        **timing.in_turn({"step": feed}, **config["timing"])["step"],
        "table_bytes": bytes_on_one([head.table.kernel]),
        "state_bytes": bytes_on_one(variables),
        "temporary_bytes": memory.temp_size_in_bytes if memory is not None else None,
        "collectives": softbench.distribution.collective_bytes(text),
        "largest_elements": max((one.elements for one in every), default=0),
    }


def bytes_on_one(variables: list[keras.Variable]) -> int:
    """Bytes that the variables take on the first device."""
    return sum(v.value.addressable_shards[0].data.nbytes for v in variables)

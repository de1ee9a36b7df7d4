"""The task "full_softmax": time and memory of forward and backward of the exact softmax.

A cell is one problem, B = `model.batch_size`, d = `model.dim`, n classes and a dtype policy,
`model.dtype`. First the peak memory of each method is measured in a process of its own, see
`memory.py`; then all of them take turns in this one. What the methods are: `steps.py`.
"""

import json
import subprocess
import sys

import keras

from softbench.bench import timing
from softbench.bench.job import Job
from softbench.experiments.full_softmax import steps
from softbench.ops.steps import wait


def run(job: Job) -> None:
    """Measures every method of the cell; fills `job.result`."""
    config, result = job.config, job.result
    problem = {"model": config["model"], "num_classes": config["dataset"]["num_classes"]}
    problem["seed"] = config["seed"]
    on_jax = keras.backend.backend() == "jax"
    skipped = {
        name: "JAX has no other compiler than XLA"
        for name, method in config["methods"].items()
        if on_jax and not method.get("jit_compile", True)
    }
    methods = {name: row for name, row in config["methods"].items() if name not in skipped}
    result |= {"num_classes": problem["num_classes"], "skipped": skipped, "synchronised": True}
    result["memory"] = {}
    for name, method in methods.items():
        if "product" not in method:
            result["memory"][name] = in_a_process(method=method, **problem)
    inputs = steps.make_inputs(**problem)
    calls = {name: steps.make_step(method, **problem) for name, method in methods.items()}
    turns = {name: timing.cycled(call, [inputs], wait) for name, call in calls.items()}
    result["steps"] = timing.in_turn(turns, **config["timing"])


def in_a_process(**problem: object) -> dict[str, float]:
    """What `memory.py` prints.

    Raises:
        RuntimeError: with the last lines of its errors, if it fails.
    """
    module = "softbench.experiments.full_softmax.memory"
    command = [sys.executable, "-m", module, json.dumps(problem)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise RuntimeError(f"exit code {ended.returncode} of {module}: {ended.stderr[-2000:]}")
    return json.loads(ended.stdout.splitlines()[-1])

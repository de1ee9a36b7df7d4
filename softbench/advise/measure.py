"""Training steps of methods on generated vectors, one after the other, within some seconds."""

import gc
import time
from collections.abc import Callable
from typing import NamedTuple

import keras
import numpy as np

from softbench.advise.choices import RATE, Problem
from softbench.bench import timing
from softbench.bench.methods import adagrad
from softbench.bench.training import build
from softbench.heads.full import DENSE_SCORES
from softbench.ops import steps as compiled_steps

STEPS = 30  # at most, of a method
CALLS = 4  # of a step before there is a number: two to compile, and two
_BLOCK = 8192  # classes of the product that tells how fast the machine is


class Measured(NamedTuple):
    """What a step costs.

    Attributes:
        step_ms: `timing.summary`; None where it was not timed.
        megabytes: weights, slots, sampler, and the temporaries of a step; None where not built.
        note: why it was not timed, or "".
    """

    step_ms: dict | None = None
    megabytes: float | None = None
    note: str = ""


def measure(problem: Problem, methods: dict, counts: np.ndarray, seconds: float) -> dict:
    """Returns {name: Measured}; each method gets an equal share of the seconds that are left."""
    start, costs = time.perf_counter(), {}
    predicted = full_seconds(problem)
    for done, (name, method) in enumerate(methods.items()):
        left = seconds - (time.perf_counter() - start)
        share = left / (len(methods) - done)
        if left <= 0:
            costs[name] = Measured(note="no time was left")
        elif method["head"] == "FullSoftmax" and CALLS * predicted > share:
            costs[name] = Measured(note=f"a step takes about {predicted:.3g} s by its products")
        else:
            costs[name] = _measured(problem, method, counts, share)
        gc.collect()
    return costs


def full_seconds(problem: Problem) -> float:
    """Predicts a step of the full softmax: three products with the table, timed on some classes."""
    generator = np.random.default_rng(0)
    classes = min(_BLOCK, problem.classes)
    hidden = generator.standard_normal((problem.examples, problem.dim), "float32")
    rows = generator.standard_normal((problem.dim, classes), "float32")
    times = []
    for _ in range(3):
        start = time.perf_counter()
        hidden @ rows
        times.append(time.perf_counter() - start)
    return 3 * min(times) * problem.classes / classes


def _measured(problem: Problem, method: dict, counts: np.ndarray, seconds: float) -> Measured:
    start = time.perf_counter()
    step, megabytes = _step(problem, method, counts)
    for _ in range(2):
        step.wait(step.run())
    times: list[float] = []
    while len(times) < 2 or (len(times) < STEPS and time.perf_counter() - start < seconds):
        begin = time.perf_counter()
        step.wait(step.run())
        times.append(time.perf_counter() - begin)
    return Measured(timing.summary(times), megabytes)


def _step(problem: Problem, method: dict, counts: np.ndarray) -> tuple[timing.Steps, float]:
    """The compiled step of a dense encoder and the method's head, and its megabytes."""
    size, dim = problem.examples, problem.dim
    optimizer = build.optimizer(adagrad(RATE))
    inputs = keras.Input((dim,), batch_size=size)
    head = build.head(method, problem.classes, counts, 0)
    labels = keras.Input((), batch_size=size, dtype="int32")
    hidden = keras.layers.Dense(dim)(inputs)
    model = keras.Model([inputs, labels], head(hidden, labels))
    step: Callable = compiled_steps.compile_step(model, optimizer)
    variables = {id(v): v for v in [*model.variables, *optimizer.variables]}.values()
    bytes_held = sum(int(np.prod(v.shape)) * np.dtype(_dtype(v)).itemsize for v in variables)
    if head.table.row_optimizer is None:  # a dense gradient
        bytes_held += 4 * problem.classes * (dim + 1)
    if method["head"] == "FullSoftmax":
        bytes_held += 16 * min(size * problem.classes, DENSE_SCORES)
    batches = _batches(problem, counts)
    return timing.cycled(step, batches, compiled_steps.wait), bytes_held / 1e6


def _dtype(variable: keras.Variable) -> str:
    return "float32" if variable.dtype == "bfloat16" else variable.dtype


def _batches(problem: Problem, counts: np.ndarray) -> list[tuple]:
    """Normal inputs (B, d), and labels (B,) as often as the counts say."""
    generator = np.random.default_rng(0)
    ends = np.cumsum(counts) / counts.sum()
    batches = []
    for _ in range(timing.NUM_BATCHES):
        x = generator.standard_normal((problem.examples, problem.dim), "float32")
        y = np.searchsorted(ends, generator.random(problem.examples))
        batches.append((x, np.minimum(y, problem.classes - 1).astype("int32")))
    return batches

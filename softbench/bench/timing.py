"""Step times: warm-up and compilation apart, every time read after the result is there.

Keras hands a batch callback its metrics as Python floats, so a callback runs only after the step
that made them has finished: one compiled call makes the metrics and the new weights together.
"""

import itertools
import random
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

import keras
import numpy as np

NUM_BATCHES = 16


class Steps(NamedTuple):
    """A step as a function of nothing, and one that waits for what the step returned."""

    run: Callable[[], object]
    wait: Callable[[object], object]


def summary(seconds: Iterable[float]) -> dict[str, float | int | None]:
    """Returns median, 20th and 80th percentile in milliseconds, and how many times there were."""
    times = np.asarray(list(seconds), np.float64) * 1000
    if not times.size:
        return {"median": None, "p20": None, "p80": None, "count": 0}
    p20, median, p80 = (round(float(value), 4) for value in np.percentile(times, [20, 50, 80]))
    return {"median": median, "p20": p20, "p80": p80, "count": int(times.size)}


class StepTimer(keras.callbacks.Callback):
    """Measures whole training steps inside `fit`, from one finished step to the next.

    A step's time is what the user waits for: reading the batch, forward, backward, update.

    Attributes:
        first_seconds: the first step of all: tracing, compilation and one step.
        seconds: the steps after the first `warmup` steps of each epoch.
        clock: seconds spent in training so far; evaluation does not count.
        steps: training steps so far.
    """

    def __init__(self, warmup: int) -> None:
        super().__init__()
        self.first_seconds: float | None = None
        self.seconds: list[float] = []
        self.clock = 0.0
        self.steps = 0
        self._warmup = warmup
        self._last = 0.0
        self._compiles_again = False

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        self.leave_out()

    def leave_out(self) -> None:
        """Leaves out the time since the last step: it was not spent on training."""
        self._last = time.perf_counter()

    def state(self) -> dict:
        """Returns what `go_on` takes in another process, but for `seconds`."""
        return {"clock": self.clock, "steps": self.steps, "first_seconds": self.first_seconds}

    def go_on(self, state: dict, seconds: Iterable[float]) -> None:
        """Goes on where another process was; that this one compiles again is not timed."""
        self.clock, self.steps = state["clock"], state["steps"]
        self.first_seconds, self.seconds = state["first_seconds"], list(seconds)
        self._compiles_again = True

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        now = time.perf_counter()
        elapsed, self._last = now - self._last, now
        again, self._compiles_again = self._compiles_again, False
        if again:
            elapsed = float(np.median(self.seconds)) if self.seconds else 0.0
        self.clock += elapsed
        self.steps += 1
        if self.first_seconds is None:
            self.first_seconds = elapsed
        elif not again and batch >= self._warmup:
            self.seconds.append(elapsed)

    def compile_seconds(self) -> float | None:
        """Returns the first step's time less that of an ordinary one."""
        if self.first_seconds is None:
            return None
        ordinary = float(np.median(self.seconds)) if self.seconds else 0.0
        return max(self.first_seconds - ordinary, 0.0)


def cycled(call: Callable, batches: list[tuple], wait: Callable[[object], object]) -> Steps:
    """Returns the step that gives `call` the batches in turn, as tensors of the backend."""
    feed = itertools.cycle([tuple(map(keras.ops.convert_to_tensor, batch)) for batch in batches])
    return Steps(lambda: call(*next(feed)), wait)


def in_turn(
    steps: dict[str, Steps], rounds: int, block: int, max_seconds: float
) -> dict[str, dict]:
    """Times several steps in turn, so that noise of the machine hits all equally.

    Each round gives every step `1 + block` calls, the first of them uncounted: it finds the
    caches full of its neighbour's rows. The order of a round is random (with a fixed seed), so
    that no step always follows the one that passes over the largest table. A step that has used
    up `max_seconds` sits the later rounds out.

    Returns:
        {name: {"compile_seconds": s, "step_ms": summary}}.
    """
    first, times = {}, {name: [] for name in steps}
    for name, step in steps.items():
        first[name] = _timed(step)
        _timed(step)
    generator = random.Random(0)
    for _ in range(rounds):
        for name in generator.sample(list(steps), len(steps)):
            step = steps[name]
            if sum(times[name]) >= max_seconds:
                continue
            _timed(step)
            for _ in range(block):
                times[name].append(_timed(step))
                if sum(times[name]) >= max_seconds:
                    break
    return {
        name: {
            "compile_seconds": max(first[name] - float(np.median(times[name])), 0.0),
            "step_ms": summary(times[name]),
        }
        for name in steps
    }


def _timed(step: Steps) -> float:
    start = time.perf_counter()
    step.wait(step.run())
    return time.perf_counter() - start


def make_batches(model: dict, num_classes: int, seed: int) -> list[tuple]:
    """Returns batches of normal inputs (B, d) and uniform labels (B,)."""
    generator = np.random.default_rng(seed)
    batch, dim = model["batch_size"], model["dim"]
    return [
        (
            generator.normal(size=(batch, dim)).astype("float32"),
            generator.integers(num_classes, size=batch).astype("int32"),
        )
        for _ in range(NUM_BATCHES)
    ]

"""Checkpoints of a training run: what is written, and how a run goes on from one, bit by bit.

What decides the rest of a run is in the variables (weights, seeds, states and slots; the Keras
optimizer's; the sums of the metrics) and in the number of steps, of which the order of the data is
a function.
"""

import hashlib
import itertools
import json
import time
from collections.abc import Iterator

import keras
import numpy as np

from softbench.bench import checkpoints, environment, provenance, records
from softbench.bench.job import Job
from softbench.bench.timing import StepTimer
from softbench.bench.training.best import Best
from softbench.bench.training.problems import Problem


class Saver(keras.callbacks.Callback):
    """Writes the checkpoints of a run, and puts it back to where the last one was written.

    A checkpoint is written after every epoch and, within one, when `checkpoint_minutes` have passed
    since the last. The time that it takes is not on the timer's clock.

    Args:
        job: names the file; without one, nothing is written.
        model: compiled, and built.
        problem: its `train` batches are those of the run.
        timer: the run's.
        best: its weights so far are in the checkpoint.

    Attributes:
        epoch: from which the run goes on, from 0.
        done: steps of the pass through the data that were done when its checkpoint was written.
    """

    def __init__(
        self, job: Job, model: keras.Model, problem: Problem, timer: StepTimer, best: Best
    ) -> None:
        super().__init__()
        self.epoch = self.done = 0
        self._best = best
        self._job, self._timer, self._train = job, timer, problem.train
        self._last = time.monotonic()
        self.set_model(model)
        if job.checkpoint is not None:
            self._identity = _identity(job, problem)
            if not model.optimizer.built:
                model.optimizer.build(model.trainable_variables)
            self._go_on()

    def _go_on(self) -> None:
        """Takes up the run of a checkpoint, if there is a whole one of the very same cell."""
        path, result = self._job.checkpoint, self._job.result
        try:
            head = checkpoints.read_head(path)
            _check(head, self._identity, _specs(self._variables()))
        except FileNotFoundError:
            return
        except ValueError as error:
            print(f"{path.name} {error}; the cell begins anew", flush=True)
            return
        self.epoch, self.done = head["epoch"], head["done"]
        self._timer.go_on(head["timer"], next(checkpoints.read_arrays(path)))
        result |= head["result"]
        for point in result["curve"]:
            self._job.progress(point)
        self._restore()
        kept = itertools.islice(checkpoints.read_arrays(path), 1 + len(head["variables"]), None)
        self._best.go_on(head["best"], kept, result["curve"])
        steps = head["timer"]["steps"]
        print(f"{path.stem}: goes on in epoch {self.epoch + 1}, after step {steps}", flush=True)

    def _restore(self) -> None:
        arrays = checkpoints.read_arrays(self._job.checkpoint)
        next(arrays)
        for variable, array in zip(self._variables(), arrays, strict=False):
            variable.assign(array.view(np.dtype(variable.dtype)))

    def _variables(self) -> list[keras.Variable]:
        model = self.model  # on JAX, what `fit` holds back is put into the variables by this
        variables = [*model.variables, *model.optimizer.variables, *model.metrics_variables]
        return list({id(variable): variable for variable in variables}.values())

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        self.epoch = epoch
        if self.done:  # what Keras and other callbacks have reset
            self._restore()

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        if self._job.checkpoint is None or self._model.stop_training:
            return
        done = self.done + batch + 1
        passed = time.monotonic() - self._last
        if done < self._train.length and passed >= 60 * self._job.checkpoint_minutes:
            self._write(self.epoch, done)

    def end_pass(self) -> None:
        """Says that a pass through the data is over: the next one begins at its first batch."""
        self.done = 0

    def end_epoch(self, epoch: int) -> None:
        """Writes the checkpoint after an epoch, its point of the curve included."""
        if self._job.checkpoint is not None:
            self._write(epoch + 1, 0)

    def _write(self, epoch: int, done: int) -> None:
        variables = self._variables()
        head = {**self._identity, "variables": _specs(variables), "epoch": epoch, "done": done}
        head |= {"timer": self._timer.state(), "result": records.finite(self._job.result)}
        head["best"] = self._best.state()
        try:
            checkpoints.write(self._job.checkpoint, head, self._arrays(variables))
        except OSError as error:  # the disk may be full: that is no reason to end
            name = self._job.checkpoint.name
            print(f"{name} cannot be written: {error.strerror}", flush=True)
        self._last = time.monotonic()
        self._timer.leave_out()

    def _arrays(self, variables: list[keras.Variable]) -> Iterator[np.ndarray]:
        yield np.asarray(self._timer.seconds, np.float64)
        current = (keras.ops.convert_to_numpy(variable.value) for variable in variables)
        for value in itertools.chain(current, self._best.arrays):
            # Files of arrays know NumPy's types alone; bfloat16 is none of them.
            yield value.view(f"u{value.itemsize}") if value.dtype.kind == "V" else value


def _specs(variables: list[keras.Variable]) -> list:
    return [[list(variable.shape), variable.dtype] for variable in variables]


def _identity(job: Job, problem: Problem) -> dict:
    """What must be the same for a run to go on: {its name in a message: JSON data}."""
    backend = job.config["backend"]
    counts = hashlib.sha256(np.ascontiguousarray(problem.counts)).hexdigest()
    identity = {
        "config": job.config,
        "code": environment.code(),
        "libraries": environment.versions(backend),
        "device": environment.device(backend),
        "data": [provenance.data(job.config, job.data_dir), len(problem.train), counts],
    }
    return json.loads(json.dumps(identity))


def _check(head: dict, identity: dict, specs: list) -> None:
    other = [name for name, value in identity.items() if head.get(name) != value]
    if other:
        raise ValueError(f"is of other {' and '.join(other)}")
    if head["variables"] != specs:
        raise ValueError("is of other variables")

"""A process that trains a method for a turn at a time: `python -m softbench.bench.training.turns`.

On standard input it gets a line with the job, {"config", "data_dir", "timeout_s"}, and then a line
for each turn; to each it answers with a line of JSON, to the last one with {"error"}. It ends with
its input.
"""

import importlib
import json
import os
import signal
import sys
import time
import traceback

import keras

from softbench.bench import environment, records
from softbench.bench.job import Job
from softbench.bench.timing import StepTimer
from softbench.bench.training import build, problems, run

_WARMUP = 3  # steps of a turn that are not counted: caches hold what the neighbour read
_STEPS = 20  # of a turn, and
_SECONDS = 0.5  # that it takes, at least; but
_MOST = 5.0  # seconds are enough, with
_FEW = 3  # steps
_MANY = 10**9


def main() -> None:
    """Answers until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else prints does so with the errors
    turns, timeout_s = None, 0.0
    try:
        for line in sys.stdin:
            if turns is None:
                job = json.loads(line)
                timeout_s = min(job["timeout_s"], 1e9)
            signal.setitimer(signal.ITIMER_REAL, timeout_s)
            if turns is None:
                turns = Turns(job["config"], job["data_dir"])
                device = environment.device(job["config"]["backend"])
                answer = {"device": device, "before_seconds": turns.before_seconds}
            else:
                answer = {"step_ms": turns.next()}
            signal.setitimer(signal.ITIMER_REAL, 0)
            print(json.dumps(answer), file=answers, flush=True)
    except Exception:
        error = records.scrub(traceback.format_exc()).splitlines()[-1]
        print(json.dumps({"error": error}), file=answers, flush=True)


class Turns:
    """Trains as the task "train" does, some steps at each turn.

    Attributes:
        before_seconds: of what is done before the first step.
    """

    def __init__(self, config: dict, data_dir: str | None) -> None:
        for name in config.get("imports", ()):
            importlib.import_module(name)
        keras.utils.set_random_seed(config["seed"])
        (method,) = config["methods"].values()
        self._problem = problems.load(config, data_dir)
        self._timer = StepTimer(_WARMUP)
        spec = {**config["optimizer"], **method.get("optimizer", {})}
        job = Job(config, data_dir, {}, lambda point: None)
        self._model = run.compiled(job, method, self._problem, spec, self._timer)
        self.before_seconds = self._timer.clock
        self._callbacks = build.callbacks(config.get("callbacks", ()))
        # A turn has whole periods of what a sampler does from time to time.
        layers = self._model._flatten_layers()
        self._period = max(getattr(layer, "refresh_every", 1) for layer in layers)
        self.next()

    def next(self) -> float:
        """Milliseconds of a step, a mean over those of a turn."""
        self._timer.seconds, begin = [], time.perf_counter()

        def end(batch: int, logs: dict | None = None) -> None:
            count, seconds = len(self._timer.seconds), time.perf_counter() - begin
            enough = count >= _STEPS and seconds >= _SECONDS
            enough |= count >= _FEW and seconds >= _MOST
            self._model.stop_training |= enough and count % self._period == 0

        ends = keras.callbacks.LambdaCallback(on_train_batch_end=end)
        self._problem.train.go_to(self._timer.steps, length=_MANY)
        self._model.fit(
            self._problem.train,
            shuffle=False,
            callbacks=[*self._problem.callbacks(), *self._callbacks, self._timer, ends],
            verbose=0,
        )
        return 1000 * sum(self._timer.seconds) / len(self._timer.seconds)


if __name__ == "__main__":
    main()

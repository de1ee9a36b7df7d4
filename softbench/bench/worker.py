"""The driver's end of a process that trains a method for a turn at a time. Needs no Keras.

The other end is `softbench.bench.training.turns`.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from typing import Any

from softbench.bench import records
from softbench.bench.launchers import local


class Failed(Exception):
    """What kept a process from a turn: the process, and a line."""


class Worker:
    """A process that trains a method for a turn at a time; see `softbench.bench.training.turns`.

    It starts with its first turn, and ends with the context at the latest: on a TPU, which belongs
    to one process, after each turn.
    """

    def __init__(self, config: dict, data_dir: str | None, timeout_s: float) -> None:
        self._job = {"config": config, "data_dir": data_dir, "timeout_s": timeout_s}
        self._process: subprocess.Popen | None = None
        self.device: dict = {}
        self.before_seconds = 0.0

    def __enter__(self) -> "Worker":
        self._errors = tempfile.TemporaryFile("w+", errors="replace")
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        self._errors.close()

    def turn(self) -> float:
        """Milliseconds of a training step, a mean over those of a turn.

        Raises:
            Failed: with itself and the last line of what went wrong.
        """
        if self._process is None:
            self._start()
            answer = self._ask(json.dumps(self._job))
            self.device, self.before_seconds = answer["device"], answer["before_seconds"]
        milliseconds = self._ask("turn")["step_ms"]
        if self.device["kind"] == "tpu":
            self._stop()
        return milliseconds

    def _start(self) -> None:
        # Two processes share the device: neither takes its memory in advance.
        environ = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "softbench.bench.training.turns"],
            env=local.environ(self._job["config"]) | environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
        )

    def _ask(self, question: str) -> Any:
        try:
            print(question, file=self._process.stdin, flush=True)
            answer = json.loads(self._process.stdout.readline() or "null")
        except BrokenPipeError:
            answer = None
        if answer is None:
            answer = {"error": self._why()}
        if "error" in answer:
            self._stop()
            raise Failed(self, answer["error"])
        return answer

    def _why(self) -> str:
        code = self._process.wait()
        if code == -signal.SIGALRM:
            return f"stopped after {self._job['timeout_s']:g} s"
        self._errors.seek(0)
        lines = records.scrub(self._errors.read()).splitlines()
        return lines[-1] if lines else f"exit code {code}"

    def _stop(self) -> None:
        if self._process is None:
            return
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        for pipe in (self._process.stdin, self._process.stdout):
            pipe.close()
        self._process.wait()
        self._process = None

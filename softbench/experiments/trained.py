"""A head that is trained, kept, and read by samplers.

What the experiments on proposals share. Shape letters: B contexts, n classes, d features.
"""

import hashlib
import json
import math
import os
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np

from softbench.bench import environment, provenance
from softbench.bench.job import Job, NotFinite
from softbench.bench.training import build
from softbench.bench.training import run as train
from softbench.bench.training.problems import Problem, load


class Trained(NamedTuple):
    """A trained head, and the validation contexts on which the samplers are measured.

    Attributes:
        kernel: (n, d).
        hidden, labels: (B, d), (B,).
        counts: (n,) of the training labels.
        valid_nll: of the model, over the whole validation set.
    """

    kernel: np.ndarray
    hidden: np.ndarray
    labels: np.ndarray
    counts: np.ndarray
    valid_nll: np.ndarray


def load_or_train(
    job: Job, fractions: Sequence[float] = (1.0,), watch: Callable | None = None
) -> dict[float, Trained]:
    """The head after fractions of its training steps, in this order, all of one run.

    They come from the cache of an earlier run, or the head is trained now. With a fraction below 1
    that run has no checkpoint: a cell that was killed trains from the beginning.

    Args:
        job: the cell, with a method to train, see `trained_name`.
        fractions: of the training steps.
        watch: None, or what gives callbacks of the training, which is then always done:
            `watch(counts (n,) of the training labels, {fraction: step})`.

    Raises:
        ValueError: unless fractions are in (0, 1], or without a method to train.
    """
    if not fractions or not all(0 < fraction <= 1 for fraction in fractions):
        raise ValueError(f"`fractions` must be in (0, 1]. Received: fractions={list(fractions)}")
    methods = job.config["methods"]
    method = methods[trained_name(methods)]
    paths = {fraction: _path(job, method, fraction) for fraction in fractions}
    kept = {fraction: path and _kept(path) for fraction, path in paths.items()}
    if watch is None and all(kept.values()):
        job.result["from_cache"] = True
        return kept
    points = _train(job, method, fractions, watch)
    for fraction, path in paths.items():
        if path is not None:
            _keep(points[fraction], path)
    return {fraction: points[fraction] for fraction in fractions}


def _path(job: Job, method: dict, fraction: float) -> Path | None:
    """Where a head is kept."""
    if job.cache is None:
        return None
    config = job.config
    fields = ("backend", "dataset", "model", "optimizer", "epochs", "steps_per_epoch", "seed")
    key = {field: config[field] for field in fields} | {"full": method}
    key |= {"code": environment.code(), "data": provenance.data(config, job.data_dir)}
    key |= {} if fraction == 1 else {"fraction": fraction}
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:12]
    return Path(job.cache) / f"trained-{digest}.npz"


def _train(
    job: Job, method: dict, fractions: Sequence[float], watch: Callable | None
) -> dict[float, Trained]:
    config = job.config
    problem = load(config, job.data_dir)
    total = config["epochs"] * len(problem.train)
    steps = {fraction: max(1, round(fraction * total)) for fraction in fractions}
    watchers = [] if watch is None else watch(problem.counts, steps)
    steps = {fraction: step for fraction, step in steps.items() if fraction < 1}
    weights = _Weights(steps.values())
    if steps or watchers:
        job = job._replace(checkpoint=None)
    watched = problem._replace(callbacks=lambda: [*problem.callbacks(), weights, *watchers])
    model, _ = train.fit(job, method, watched, config["optimizer"])
    points = {1.0: _trained(model, problem, job.result["curve"][-1]["valid_nll"])}
    for fraction, step in steps.items():
        for variable, value in zip(model.variables, weights.taken[step], strict=True):
            variable.assign(value)
        points[fraction] = _trained(model, problem, problem.evaluate(model, "valid")["nll"])
    return points


class _Weights(keras.callbacks.Callback):
    """Copies all variables of the model after some training steps.

    Attributes:
        taken: {step: arrays in the order of `model.variables`}.
    """

    def __init__(self, steps: Iterable[int]) -> None:
        super().__init__()
        self.taken: dict[int, list[np.ndarray]] = {}
        self._wanted = set(steps)
        self._step = 0

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        self._step += 1
        if self._step in self._wanted:
            values = (keras.ops.convert_to_numpy(variable) for variable in self.model.variables)
            self.taken[self._step] = [np.array(value) for value in values]


def _trained(model: keras.Model, problem: Problem, valid_nll: float) -> Trained:
    hidden, labels = problem.probe()
    kernel = np.array(keras.ops.convert_to_numpy(model.head.table.kernel))
    return Trained(kernel, hidden, labels, problem.counts, np.array(valid_nll))


def trained_name(methods: dict) -> str:
    """The row whose head is trained: `trained`, else the first of head FullSoftmax."""
    exact = [name for name, method in methods.items() if method["head"] == "FullSoftmax"]
    for name in ["trained", *exact]:
        if name in methods:
            return name
    raise ValueError(
        "`methods` must have a row of head FullSoftmax, the one that is trained, or another named "
        f"'trained'. Received: {', '.join(methods)}"
    )


def _kept(path: Path) -> Trained | None:
    """The head of an earlier run; None without one, or if its file is not whole."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return Trained(**arrays)
    except (OSError, ValueError, TypeError, EOFError, AttributeError, zipfile.BadZipFile):
        return None


def _keep(trained: Trained, path: Path) -> None:
    """Writes all of the file or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, **trained._asdict())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def valid_nll(job: Job, method: dict) -> float:
    """What the cell's model reaches in its epochs with a method; infinite if training diverges."""
    config = job.config
    problem = load(config, job.data_dir)
    trial = job._replace(result={}, progress=lambda point: None, checkpoint=None)
    spec = {**config["optimizer"], **method.get("optimizer", {})}
    try:
        train.fit(trial, method, problem, spec)
    except NotFinite:
        return math.inf
    return float(trial.result["curve"][-1]["valid_nll"])


def head(method: dict, trained: Trained, seed: int) -> keras.layers.Layer:
    """A method's head with the trained kernel, and its sampler built from that."""
    made = build.head(method, len(trained.kernel), trained.counts, seed)
    made.table.kernel_initializer = lambda shape, dtype=None: trained.kernel
    made.build((None, trained.kernel.shape[1]))
    return made

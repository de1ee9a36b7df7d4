"""A head that is trained, and read by samplers.

What the experiments on proposals share. Shape letters: B contexts, n classes, d features.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import keras
import numpy as np

from softbench.bench.job import Job, NotFinite
from softbench.bench.training import build
from softbench.bench.training import run as training
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
    valid_nll: float


def train(job: Job, fractions: Sequence[float] = (1.0,)) -> dict[float, Trained]:
    """The head after fractions of its training steps, in this order, all of one run.

    With a fraction below 1 the run has no checkpoint: a cell that was killed trains from the
    beginning.

    Args:
        job: the cell, with a method to train, see `trained_name`.
        fractions: of the training steps.

    Raises:
        ValueError: unless fractions are in (0, 1], or without a method to train.
    """
    if not fractions or not all(0 < fraction <= 1 for fraction in fractions):
        raise ValueError(f"`fractions` must be in (0, 1]. Received: fractions={list(fractions)}")
    config = job.config
    method = config["methods"][trained_name(config["methods"])]
    problem = load(config, job.data_dir)
    total = config["epochs"] * len(problem.train)
    steps = {f: max(1, round(f * total)) for f in fractions if f < 1}
    weights = _Weights(steps.values())
    if steps:
        job = job._replace(checkpoint=None)
    watched = problem._replace(callbacks=lambda: [*problem.callbacks(), weights])
    model, _ = training.fit(job, method, watched, config["optimizer"])
    points = {1.0: _trained(model, problem, job.result["curve"][-1]["valid_nll"])}
    for fraction, step in steps.items():
        for variable, value in zip(model.variables, weights.taken[step], strict=True):
            variable.assign(value)
        points[fraction] = _trained(model, problem, problem.evaluate(model, "valid")["nll"])
    return {fraction: points[fraction] for fraction in fractions}


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
    # The model's own encoder: one that is tied to the head's table is not `problem.encoder`.
    hidden, labels = problem.probe(model.encoder)
    kernel = np.array(keras.ops.convert_to_numpy(model.head.table.kernel))
    return Trained(kernel, hidden, labels, problem.counts, valid_nll)


def trained_name(methods: dict) -> str:
    """The row whose head is trained: the first of head FullSoftmax."""
    for name, method in methods.items():
        if method["head"] == "FullSoftmax":
            return name
    raise ValueError(
        "`methods` must have a row of head FullSoftmax, the one that is trained. "
        f"Received: {', '.join(methods)}"
    )


def valid_nll(job: Job, method: dict) -> float:
    """What the cell's model reaches in its epochs with a method; infinite if training diverges."""
    config = job.config
    problem = load(config, job.data_dir)
    trial = job._replace(result={}, progress=lambda point: None, checkpoint=None)
    spec = {**config["optimizer"], **method.get("optimizer", {})}
    try:
        training.fit(trial, method, problem, spec, diagnosed=False)
    except NotFinite:
        return math.inf
    return float(trial.result["curve"][-1]["valid_nll"])


def head(method: dict, trained: Trained, seed: int) -> keras.layers.Layer:
    """A method's head with the trained kernel, and its sampler built from that."""
    made = build.head(method, len(trained.kernel), trained.counts, seed)
    made.table.kernel_initializer = lambda shape, dtype=None: trained.kernel
    made.build((None, trained.kernel.shape[1]))
    return made

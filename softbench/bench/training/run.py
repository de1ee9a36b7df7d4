"""The task "train": a learning curve against wall-clock time, then the test set."""

import itertools
import math
import sys
import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import keras
from keras.callbacks import TerminateOnNaN

import softbench
from softbench.bench import budget, timing
from softbench.bench.job import Job, NotFinite
from softbench.bench.training import best as best_lib
from softbench.bench.training import build, head_measures, resume, side_inputs
from softbench.bench.training.best import Best
from softbench.bench.training.problems import TOP_K, Problem, load

_VERBOSE = 1 if sys.stdout.isatty() else 2


class _Training(NamedTuple):
    job: Job
    model: keras.Model
    problem: Problem
    timer: timing.StepTimer
    saver: resume.Saver
    best: Best
    callbacks: list[keras.callbacks.Callback]
    diagnosed: bool


def run(job: Job) -> None:
    """Trains the cell's method, evaluating after every epoch; fills `job.result`."""
    trained(job)


def trained(job: Job) -> tuple[keras.Model, Problem]:
    """As `run`; returns the model, with its best weights where the config keeps them."""
    config, result = job.config, job.result
    (method,) = config["methods"].values()
    problem = load(config, job.data_dir)
    used = {"valid": not config.get("refit"), "test": config.get("test", True)}
    chance = {split: problem.evaluate(None, split) for split in used if used[split]}
    best_lib.check(config, next(iter(chance.values())))
    result["most_frequent"] = _by_split(chance)
    if problem.oracle is not None:
        result["oracle"] = _by_split({split: problem.oracle(split) for split in chance})
    spec = {**config["optimizer"], **method.get("optimizer", {})}
    model, best = fit(job, method, problem, spec)
    test = problem.evaluate(model, "test") if config.get("test", True) else {}
    result["final"] = _final(result["curve"][-1], test)
    repetitions = config.get("timing", {}).get("head_repetitions", 0)
    if repetitions and not isinstance(model.encoder.output, dict):
        result["head_ms"] = head_measures.step_ms(model.head, problem, spec, repetitions)
    if best.arrays:
        best.put_back()
        point = result["curve"][best.index]
        if point is not result["curve"][-1]:
            test = problem.evaluate(model, "test")
        if _diagnoses_kept(config):
            point |= head_measures.diagnose(model.head, problem, point["valid_nll"], model.encoder)
        result["best"] = {key: point[key] for key in ("epoch", "step", "seconds")}
        result["best"] |= _final(point, test)
    return model, problem


def _by_split(scores: Mapping[str, Mapping]) -> dict:
    return {f"{split}_{key}": value for split, row in scores.items() for key, value in row.items()}


def fit(
    job: Job, method: dict, problem: Problem, spec: dict, diagnosed: bool = True
) -> tuple[keras.Model, Best]:
    """Trains an encoder and a method's head; fills `job.result` with curve and step times.

    Goes on from the job's checkpoint, if there is one. The method is {"head", "kwargs"}, see
    `build.head`; `spec` is that of the optimizer; points of the curve that is not `diagnosed` say
    nothing of the proposal.

    Returns:
        The model with its last weights, and the best ones where the config keeps them.
    """
    config, result = job.config, job.result
    timer = timing.StepTimer(config.get("timing", {}).get("warmup_steps", 5))
    model = compiled(job, method, problem, spec, timer)
    result |= {"num_classes": problem.num_classes, "examples_per_step": problem.examples}
    result |= {"curve": [], "steps_per_epoch": len(problem.train)}
    result["head_mb"] = build.megabytes(model.head)
    best = Best(config, model)
    saver = resume.Saver(job, model, problem, timer, best)
    callbacks = build.callbacks(config.get("callbacks", ()))
    run = _Training(job, model, problem, timer, saver, best, callbacks, diagnosed)
    try:
        for epoch in _epochs(config, timer, saver.epoch):
            if best.is_over():
                break
            rate = problem.optimizer(spec, epoch.index)["learning_rate"]
            if not isinstance(rate, Mapping):  # a schedule of Keras, which counts steps itself
                model.optimizer.learning_rate = rate
            _add_point(run, epoch.index, _train(run, epoch))
            best.add(result["curve"])
            saver.end_epoch(epoch.index)
    finally:
        result |= _step_times(timer, problem.examples)
    return model, best


def compiled(
    job: Job, method: dict, problem: Problem, spec: dict, timer: timing.StepTimer
) -> keras.Model:
    """An encoder and a method's head, ready to train; arguments as `fit`, and the run's timer."""
    kwargs = {**problem.head_kwargs, **method.get("kwargs", {})}
    method, encoder = _with_side_inputs(job, {**method, "kwargs": kwargs}, problem, timer)
    head = build.head(method, problem.num_classes, problem.counts, job.config["seed"])
    head.build(problem.encoder.output.shape)
    encoder = encoder if problem.tied is None else problem.tied(head)
    model = softbench.Classifier(encoder, head, top_k=TOP_K)
    model.compile(optimizer=build.optimizer(problem.optimizer(spec, 0)))
    return model


class _Epoch(NamedTuple):
    """An epoch of training, from one evaluation to the next.

    Attributes:
        index: from 0.
        until: what the timer's clock says at its end; 0: any time.
        again: whether further passes begin until the clock says so.
        steps: of it; 0: a pass.
    """

    index: int
    until: float = 0.0
    again: bool = False
    steps: int = 0


def _epochs(config: Mapping, timer: timing.StepTimer, first: int) -> Iterator[_Epoch]:
    """Epochs from the `first` on."""
    epochs, seconds = config["epochs"], config.get("max_train_seconds", 0.0)
    if "steps" in config:
        ends = [config["steps"] * share // epochs for share in range(epochs + 1)]
        lengths = [end - start for start, end in itertools.pairwise(ends)]
        yield from (_Epoch(i, steps=n) for i, n in enumerate(lengths) if n and i >= first)
        return
    for epoch in range(first, epochs) if epochs else itertools.count(first):
        until = seconds * (epoch + 1) / epochs if epochs else seconds
        if epochs and 0 < until <= timer.clock and epoch + 1 < epochs:
            continue  # spent on fitting a tree
        if not epochs and epoch and timer.clock >= until:
            return
        yield _Epoch(epoch, until, bool(epochs))


def _with_side_inputs(
    job: Job, method: dict, problem: Problem, timer: timing.StepTimer
) -> tuple[dict, keras.Model]:
    """The method and the encoder with what the head needs besides the hidden vectors.

    A tree is fitted here; the timer's clock starts after the seconds that it took, or that the
    first weights did.
    """
    timer.clock = problem.start_seconds
    encoder, kwargs, seed = problem.encoder, dict(method["kwargs"]), job.config["seed"]
    tree, seconds = side_inputs.fit_tree(method, problem.tree, problem.num_classes, seed)
    if tree is not None:
        encoder = side_inputs.with_tree(encoder, tree, problem.tree)
        kwargs["sampler"] = tree
        timer.clock += seconds
        scores = side_inputs.tree_scores(tree, problem.tree, problem.counts)
        job.result["tree"] = {"fit_seconds": round(seconds, 3), **scores}
    if side_inputs.is_numbered({"": method}):
        encoder = side_inputs.numbered(encoder)
        kwargs["num_examples"] = problem.num_rows
    return {**method, "kwargs": kwargs}, encoder


def _train(run: _Training, epoch: _Epoch) -> float:
    """Trains for an epoch; returns the loss, a mean over it or over its last pass."""

    def end(batch: int, logs: dict | None = None) -> None:
        run.model.stop_training |= run.timer.clock >= epoch.until

    ends = [keras.callbacks.LambdaCallback(on_train_batch_end=end)] if epoch.until else []
    kept = [run.timer, *ends, TerminateOnNaN(), run.saver]
    while True:
        run.problem.train.go_to(run.timer.steps, run.saver.done, epoch.steps)
        history = run.model.fit(
            run.problem.train,
            initial_epoch=epoch.index,
            epochs=epoch.index + 1,
            shuffle=False,
            callbacks=[*run.problem.callbacks(), *run.callbacks, *kept],
            verbose=_VERBOSE,
        )
        run.saver.end_pass()
        loss = float(history.history.get("loss", [math.nan])[-1])
        is_over = not epoch.again or run.timer.clock >= epoch.until
        if is_over or not math.isfinite(loss):
            return loss


def _add_point(run: _Training, epoch: int, train_loss: float) -> None:
    """Evaluates the model after an epoch, a point of the learning curve.

    With `refit` nothing is evaluated, and the loss of training is what must be finite.
    """
    job, model, problem, timer = run[:4]
    point = {"epoch": epoch + 1, "step": timer.steps}
    point |= {"seconds": round(timer.clock, 3), "train_loss": train_loss}
    if job.price is not None:
        point |= budget.of_steps(job.price, timer.steps)
    refitted = job.config.get("refit", False)
    if math.isfinite(train_loss) and not refitted:
        start = time.perf_counter()
        scores = problem.evaluate(model, "valid")
        point |= {f"valid_{key}": value for key, value in scores.items()}
        if run.diagnosed and _is_diagnosed(job.config, epoch):
            point |= head_measures.diagnose(model.head, problem, scores["nll"], model.encoder)
        point["evaluation_seconds"] = round(time.perf_counter() - start, 3)
    job.result["curve"].append(point)
    job.progress(point)
    if not math.isfinite(train_loss if refitted else point.get("valid_nll", math.nan)):
        raise NotFinite(f"The loss is not a finite number in epoch {epoch + 1}.")


def _is_diagnosed(config: Mapping, epoch: int) -> bool:
    """Whether a point has diagnostics: all have, but with `timing.diagnose_last` the last alone.

    All have where nobody knows which the last one is. Where the best point counts, that one has
    them instead, after training.
    """
    if _diagnoses_kept(config):
        return False
    last = config.get("timing", {}).get("diagnose_last")
    return not last or not config["epochs"] or epoch + 1 == config["epochs"]


def _diagnoses_kept(config: Mapping) -> bool:
    return bool(config.get("timing", {}).get("diagnose_last")) and config.get("keep") == "best"


def _final(last: dict, test: dict) -> dict:
    """Returns the record's `final`: a point's weights on validation and test, if that is not {}."""
    kept = ("valid_", "proposal_", "mutual_information")
    valid = {key: value for key, value in last.items() if key.startswith(kept)}
    final = valid | {f"test_{key}": value for key, value in test.items()}
    return final | ({"log_likelihood": -test["nll"]} if test else {})


def _step_times(timer: timing.StepTimer, examples: int) -> dict:
    step = timing.summary(timer.seconds)
    median = step["median"]
    return {
        "synchronised": True,
        "compile_seconds": timer.compile_seconds(),
        "step_ms": step,
        "examples_per_second": round(examples * 1000 / median, 1) if median else None,
    }

"""`softbench.compare`: methods side by side on the user's encoder and data, in this process.

Shape letters: N examples, n classes, m samples, d features.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from softbench.bench import timing
from softbench.bench.methods import LOG_FREQUENCIES, comparison, with_rows
from softbench.bench.training import build, checks, given
from softbench.classifier import Classifier, split_inputs
from softbench.heads import Head
from softbench.report import intervals

TOP_K = (1, 3, 5)
_WARMUP = 2  # steps before the clock, whose effect is taken back


def compare(
    encoder_fn: Callable[[], Any],
    data: tuple[Any, Any],
    methods: Sequence[Any] | Mapping[str, Any] = ("full", "uniform", "unigram", "in_batch"),
    seeds: int | Sequence[int] = 3,
    minutes: float = 10.0,
    *,
    batch_size: int = 256,
    num_classes: int | None = None,
    num_sampled: int | None = None,
    head: Mapping[str, Any] | None = None,
    optimizer: Any = "adam",
    verbose: bool = True,
) -> Any:
    """Trains a head of every method on the same encoder for the same time; returns a table.

    For each seed all methods begin with the same weights of the encoder, take the same batches in
    the same order and train for the same time: `minutes` is that of all runs together, each gets
    an equal share. Compilation and warm-up come before the clock starts, and what they have trained
    is taken back; evaluation, exact over all classes, is not counted. The clock starts when the
    first step is done. The order of the methods changes from seed to seed.

    Args:
        encoder_fn: () -> a new Keras model or layer, x -> hidden (N, d).
        data: (training data, validation data), each `(x, y)` of arrays, y integers (N,) and x an
            array or a tuple, list or dict of them, of which `negatives` and `excluded` are for the
            heads (see `softbench.Classifier`); or something that yields batches `(x, y)` and can be
            gone through again, such as a `tf.data.Dataset`: in the order in which it gives
            them (to shuffle anew in each pass would be another order for each method). Batches of
            another size than the first are left out of training.
        methods: names of "full", "uniform", "unigram", "in_batch", "nce_binary", "nce_ranking",
            "codebook", "rff" (of a normalised `head` alone), "unigram_rows" and "in_batch_rows" (a
            row optimizer, Adagrad at 0.1); or softbench heads, not built yet. A mapping gives them
            other names, and may also hold config rows, `{"head": ..., "kwargs": {...}}`.
        seeds: how many, or which ones.
        minutes: training time of all runs together.
        batch_size: of arrays.
        num_classes: n; None is the largest label of training and validation data, plus 1.
        num_sampled: m of the named methods; None is n / 10, from 16 to 1000, at most n / 4.
        head: arguments of the heads of the named methods, such as `{"normalize": True,
            "temperature": 0.09}`; biases begin at the log frequencies.
        optimizer: of Keras, as `compile` takes it; each run has a new one.
        verbose: print a line for each run.

    Returns:
        A `pandas.DataFrame`, a row for each method: `method`, `runs` (that ended well), `steps` and
        `step_ms` (means), the means over seeds of `perplexity` and `precision_at_k` on the
        validation data with `_low` and `_high`, the ends of a 95 % interval (Student's t; of the
        perplexity on the logarithm; NaN for one run), and `error` of a run that failed. Its
        `attrs["runs"]` are the single runs.

    Raises:
        ValueError: for data, methods or seeds of no use, before anything is trained.
    """
    import pandas as pd

    seeds = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    if not seeds or minutes <= 0:
        raise ValueError(
            "`seeds` must be one or more and `minutes` positive. "
            f"Received: seeds={seeds}, minutes={minutes}"
        )
    problem = given.read(data, batch_size, num_classes)
    table = _table(methods, head, num_sampled, len(problem.counts))
    optimizer = keras.optimizers.serialize(keras.optimizers.get(optimizer))
    seconds, names, runs = 60 * minutes / (len(table) * len(seeds)), list(table), []
    for turn, seed in enumerate(seeds):
        start: list[np.ndarray] = []  # the encoder's weights, of the first method
        for offset in range(len(names)):
            name = names[(offset + turn) % len(names)]
            run = _run(encoder_fn, table[name], problem, optimizer, seed, seconds, start)
            runs.append({"method": name, "seed": seed, **run})
            if verbose:
                print(_summary(runs[-1]), flush=True)
    frame = pd.DataFrame([_row(name, [r for r in runs if r["method"] == name]) for name in names])
    frame.attrs["runs"] = runs
    return frame


def _table(methods: Any, head: Mapping | None, m: int | None, n: int) -> dict[str, Any]:
    """{name: config row or head} of the requested methods."""
    m = min(1000, max(16, n // 10), max(1, n // 4)) if m is None else m
    kwargs = {"bias_initializer": LOG_FREQUENCIES, **(head or {})}
    if not kwargs.get("use_bias", True):
        del kwargs["bias_initializer"]
    presets = with_rows(comparison(kwargs, m))
    if not kwargs.get("normalize"):
        del presets["rff"]  # an estimate of exp(nu <h, c>) for vectors of length 1
    if isinstance(methods, str | Head):
        methods = [methods]
    if not isinstance(methods, Mapping):
        methods = {m if isinstance(m, str) else type(m).__name__: m for m in methods}
    table, wrong = {}, []
    for name, method in methods.items():
        if isinstance(method, str):
            if method not in presets:
                names = ", ".join(presets)
                raise ValueError(f"`methods` must be among: {names}. Received: {method!r}")
            method = presets[method]
        elif isinstance(method, Mapping):
            wrong += checks.of_method(f"methods.{name}", method)
        elif not isinstance(method, Head) or method.built or method.units != n:
            raise ValueError(
                f"`methods`: a head must be of softbench, not built yet and of {n} classes. "
                f"Received: {name}={type(method).__name__}"
            )
        table[name] = method
    if wrong or not table:
        raise ValueError("\n".join(wrong) or "`methods` must name one or more. Received: none")
    return table


def _run(
    encoder_fn: Callable[[], Any],
    method: Any,
    problem: given.Given,
    optimizer: dict,
    seed: int,
    seconds: float,
    start: list[np.ndarray],
) -> dict:
    """What one run measured, or its error."""
    try:
        keras.utils.set_random_seed(seed)
        batches = problem.train(seed)
        encoder = _encoder(encoder_fn, batches[0][0], start)
        if isinstance(method, Head):
            head = type(method).from_config(method.get_config())
        else:
            head = build.head(method, len(problem.counts), problem.counts, seed)
        model = Classifier(encoder, head, top_k=TOP_K)
        model.compile(keras.optimizers.deserialize(optimizer))
        timer = _train(model, batches, seconds)
        scores = model.evaluate(build.Batches(problem.valid), verbose=0, return_dict=True)
        result = {"steps": timer.steps, "step_ms": timing.summary(timer.seconds)["median"]}
        result |= {key: float(value) for key, value in scores.items()}
        finite = np.isfinite(result["loss"])
        return result | {"error": "" if finite else "The loss is not a finite number."}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}


def _encoder(encoder_fn: Callable[[], Any], x: Any, start: list[np.ndarray]) -> Any:
    """A new encoder, with the weights that the first one of its seed began with."""
    encoder = encoder_fn()
    x = keras.tree.map_structure(keras.ops.convert_to_tensor, split_inputs(x)[0])
    encoder(x, training=False)
    if start:
        encoder.set_weights(start)
    else:
        start += [np.array(weight) for weight in encoder.get_weights()]
    return encoder


def _train(model: Classifier, batches: Any, seconds: float) -> timing.StepTimer:
    """Trains for `seconds` from the end of the first step on; what comes before changes nothing.

    One `fit` for all: on TensorFlow each begins with tenths of a second that are no training.
    """
    first = build.Batches(batches, _WARMUP)
    x, _ = batches[0]
    model.build(keras.tree.map_structure(lambda array: array.shape, x))
    model.optimizer.build(model.trainable_variables)
    every = [*model.variables, *model.optimizer.variables]
    before = [np.array(keras.ops.convert_to_numpy(variable)) for variable in every]
    model.fit(first, shuffle=False, verbose=0)
    for variable, value in zip(every, before, strict=True):
        variable.assign(value)
    timer = timing.StepTimer(warmup=0)

    def end(batch: int, logs: dict | None = None) -> None:
        model.stop_training |= timer.clock - timer.first_seconds >= seconds

    last = keras.callbacks.LambdaCallback(on_train_batch_end=end)
    callbacks = [timer, last, keras.callbacks.TerminateOnNaN()]
    if seconds:
        model.fit(given.Endless(batches), shuffle=False, verbose=0, callbacks=callbacks)
    return timer


def _summary(run: Mapping) -> str:
    text = f"{run['method']}, seed {run['seed']}: "
    if run["error"]:
        return text + run["error"]
    return f"{text}{run['steps']} steps, perplexity {run['perplexity']:.4g}"


def _row(name: str, runs: list[dict]) -> dict:
    """Means and intervals over the seeds of a method."""
    good = [run for run in runs if not run["error"]]
    row = {"method": name, "runs": len(good)}
    for key in ("steps", "step_ms"):
        values = np.array([run[key] for run in good], float)
        row[key] = values.mean() if good else np.nan
    for key in ("perplexity", *(f"precision_at_{k}" for k in TOP_K)):
        if good and key not in good[0]:
            continue  # fewer classes than k
        is_log = key == "perplexity"
        values = [np.log(run[key]) if is_log else run[key] for run in good]
        mean, half, _ = intervals.interval(values)
        ends = np.array([mean, mean - half, mean + half])
        names = key, f"{key}_low", f"{key}_high"
        row |= dict(zip(names, np.exp(ends) if is_log else ends, strict=True))
    return row | {"error": next((run["error"] for run in runs if run["error"]), "")}

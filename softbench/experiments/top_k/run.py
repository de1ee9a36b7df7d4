"""The task "top_k": recall and time of the best classes, exact and by an index.

A head is trained on a generated clustered set; its `top_k` is then asked for batches of examples
that were not trained on. A method {} is the exact one, streamed over classes; {"product": True}
computes all scores, then their top k; {"num_cells", "num_candidates"} has an index.

Shape letters: B batch, d features, n classes, C clusters.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

import softbench
from softbench.bench import records, timing
from softbench.bench.job import Job
from softbench.bench.training import build
from softbench.ops import steps as compiled_steps


def run(job: Job) -> None:
    """Trains a head, and measures every method of the cell; fills `job.result`."""
    config, result = job.config, job.result
    model, data = config["model"], clustered(config)
    result["num_classes"] = len(data.centres)
    start = time.perf_counter()
    encoder, head, history = train(config, data)
    result |= {"train_seconds": time.perf_counter() - start, "train_loss": history}
    job.progress({"train_loss": history[-1]})
    generator = np.random.default_rng([config["seed"], 1])
    queries = [draw(data, generator, model["batch_size"]) for _ in range(timing.NUM_BATCHES)]
    batches = [(ops.convert_to_numpy(encoder(x)),) for x, _ in queries]
    calls, steps, found = compiled_steps.Calls(head.variables), {}, {}
    ids, indexes = {}, {}
    for name, method in {"exact": {}, **config["methods"]}.items():
        start = time.perf_counter()
        size = method.get("num_cells")
        if "num_cells" in method and size not in indexes:
            index = softbench.serving.Index(head, size)
            indexes[size] = index, time.perf_counter() - start
            calls.add(index.variables)
        call = calls.compile(searcher(head, method, model["k"], indexes))
        answers = [keras.tree.flatten(call(*batch))[0] for batch in batches]
        ids[name] = np.concatenate([ops.convert_to_numpy(answer) for answer in answers])
        if name in config["methods"]:
            steps[name] = timing.cycled(call, batches, calls.wait)
        job.progress({"built": name, "seconds": round(time.perf_counter() - start, 3)})
    labels = np.concatenate([y for _, y in queries])
    result["precision_at_1"] = float(np.mean(ids["exact"][:, 0] == labels))
    times = timing.in_turn(steps, **config["timing"])
    for name in config["methods"]:
        method = config["methods"][name]
        index, seconds = indexes.get(method.get("num_cells", "none"), (None, None))
        cells = None if index is None else index.means.shape[0]
        recall = recalls(ids["exact"], ids[name])
        found[name] = {**times[name], "recall": recall, "cells": cells, "index_seconds": seconds}
    result |= {"synchronised": True, "skipped": {}, "top_k": found}
    job.progress(records.finite(found))


def recalls(exact: np.ndarray, found: np.ndarray) -> float:
    """The mean share of the ids `exact` (B, k) that are among `found` (B, k)."""
    return float(np.mean([np.isin(a, b).mean() for a, b in zip(exact, found, strict=True)]))


def searcher(head: Any, method: dict, k: int, indexes: dict) -> Callable:
    """hidden (B, d) -> ids (B, k)."""
    if method.get("product"):
        return lambda hidden: ops.top_k(head(hidden), k)[1]
    if "num_cells" not in method:
        return lambda hidden: head.top_k(hidden, k)[1]
    index = indexes[method["num_cells"]][0]
    options = {"approximate": index, "num_candidates": method["num_candidates"]}
    return lambda hidden: head.top_k(hidden, k, **options)[1]


class Clustered(NamedTuple):
    """A set of classes around the centres of clusters.

    Attributes:
        centres: float32 (n, d), of the classes.
        ends: (n,), cumulative frequencies.
        spread: of the examples of a class, relative to a class vector's length.
    """

    centres: np.ndarray
    ends: np.ndarray
    spread: float


def clustered(config: dict) -> Clustered:
    """Class vectors: that of a cluster, plus `class_spread` times noise.

    With `num_groups` those of clusters are that of a group, plus `cluster_spread` times noise. The
    frequencies fall as (rank + 1)^-frequency_power, in no order.
    """
    options, dim = config["dataset"], config["model"]["dim"]
    generator = np.random.default_rng(config["seed"])
    units, clusters = options["num_classes"], options["num_clusters"]
    means = generator.standard_normal((clusters, dim), "float32")
    if "num_groups" in options:
        groups = generator.standard_normal((options["num_groups"], dim), "float32")
        means *= np.float32(options["cluster_spread"])
        means += groups[generator.integers(len(groups), size=clusters)]
    own = generator.integers(clusters, size=units)
    noise = generator.standard_normal((units, dim), "float32")
    centres = (means[own] + np.float32(options["class_spread"]) * noise) / np.sqrt(dim, dtype="f")
    frequency = np.arange(1, units + 1) ** -float(options["frequency_power"])
    ends = np.cumsum(generator.permutation(frequency))
    return Clustered(centres, ends / ends[-1], options["example_spread"])


def draw(data: Clustered, generator: np.random.Generator, size: int) -> tuple:
    """Examples (B, d) and their labels (B,)."""
    labels = np.searchsorted(data.ends, generator.random(size)).astype("int32")
    labels = np.minimum(labels, len(data.ends) - 1)
    noise = generator.standard_normal((size, data.centres.shape[1]), "float32")
    scale = data.spread / np.sqrt(data.centres.shape[1])
    return (data.centres[labels] + noise * scale).astype("float32"), labels


def train(config: dict, data: Clustered) -> tuple[keras.Model, Any, list[float]]:
    """The encoder, the head, and ten mean losses of the training."""
    model, dim = config["model"], config["model"]["dim"]
    keras.utils.set_random_seed(config["seed"])
    x, y = keras.Input((dim,)), keras.Input((), dtype="int32")
    encoder = keras.Model(x, keras.layers.Dense(dim)(x))
    head = softbench.SampledSoftmax(
        len(data.centres),
        {"class_name": "uniform", "config": {"share_draws": True}},
        model["num_sampled"],
        row_optimizer=build.row_optimizer(model["row_optimizer"]),
        seed=config["seed"],
    )
    whole = keras.Model([x, y], head(encoder(x), y))
    whole.compile(keras.optimizers.Adam(3e-3))

    def batches() -> Iterator[tuple]:
        generator = np.random.default_rng([config["seed"], 2])
        while True:
            yield (draw(data, generator, model["train_batch_size"]),)

    parts = min(10, model["train_steps"])
    steps = model["train_steps"] // parts
    fitted = whole.fit(batches(), epochs=parts, steps_per_epoch=steps, verbose=0)
    return encoder, head, [float(loss) for loss in fitted.history["loss"]]

"""The task "top_k": recall and time of the best classes, exact and by an index.

A head, the method `model.head`, is trained as the harness trains it. Its `top_k` is then called on
the encoder's outputs for a batch of the validation set, `model.queries` of them at a time. A
method {} is the exact one, streamed over classes; {"product": True} computes all scores, then their
top k; {"num_cells", "num_candidates"} has an index.

Shape letters: B queries at a time, d features, n classes.
"""

import time
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

import softbench
from softbench.bench import timing
from softbench.bench.job import Job
from softbench.bench.training import run as train
from softbench.bench.training.problems import load
from softbench.ops import steps as compiled_steps

_NOT_ENCODER = ("k", "queries", "head")  # of the config's model: what is no setting of the encoder


def run(job: Job) -> None:
    """Trains a head, and measures every method of the cell; fills `job.result`."""
    config, result = job.config, job.result
    model = config["model"]
    head, hidden, labels = trained(job)
    result["num_classes"], result["dim"] = head.units, hidden[0].shape[-1]
    batches = [(h,) for h in hidden]
    calls, steps, measures = compiled_steps.Calls(head.variables), {}, {}
    ids, indexes = {}, {}
    for name, method in {"exact": {}, **config["methods"]}.items():
        size = method.get("num_cells")
        if "num_cells" in method and size not in indexes:
            start = time.perf_counter()
            index = softbench.serving.Index(head, size)
            indexes[size] = index, time.perf_counter() - start
            calls.add(index.variables)
        call = calls.compile(searcher(head, method, model["k"], indexes))
        answers = [keras.tree.flatten(call(*batch))[0] for batch in batches]
        ids[name] = np.concatenate([ops.convert_to_numpy(answer) for answer in answers])
        if name in config["methods"]:
            steps[name] = timing.cycled(call, batches, calls.wait)
    result["precision_at_1"] = float(np.mean(ids["exact"][:, 0] == labels))
    times = timing.in_turn(steps, **config["timing"])
    for name in config["methods"]:
        method = config["methods"][name]
        index, seconds = indexes.get(method.get("num_cells", "none"), (None, None))
        cells = None if index is None else index.means.shape[0]
        recall = recalls(ids["exact"], ids[name])
        measures[name] = {**times[name], "recall": recall, "cells": cells, "index_seconds": seconds}
    result |= {"synchronised": True, "top_k": measures}


def trained(job: Job) -> tuple[Any, list[np.ndarray], np.ndarray]:
    """The trained head, batches (B, d) of queries, and labels of all of them.

    Raises:
        ValueError: if a batch of the validation set has too few examples.
    """
    model = job.config["model"]
    config = {key: value for key, value in job.config.items() if key != "timing"}
    config |= {"model": {key: value for key, value in model.items() if key not in _NOT_ENCODER}}
    config |= {"methods": {"trained": model["head"]}}
    problem = load(config, job.data_dir)
    trial = job._replace(config=config, result={}, checkpoint=None)
    classifier, _ = train.fit(trial, model["head"], problem, config["optimizer"])
    hidden, labels = problem.probe(classifier.encoder)
    size = model["queries"]
    count = min(timing.NUM_BATCHES, len(hidden) // size)
    if not count:
        raise ValueError(
            "`model.queries` must be at most the examples of a validation batch. Received: "
            f"{size} of {len(hidden)}"
        )
    return classifier.head, np.split(hidden[: count * size], count), labels[: count * size]


def recalls(exact: np.ndarray, ids: np.ndarray) -> float:
    """The mean share of the ids `exact` (B, k) that are among `ids` (B, k)."""
    return float(np.mean([np.isin(a, b).mean() for a, b in zip(exact, ids, strict=True)]))


def searcher(head: Any, method: dict, k: int, indexes: dict) -> Callable:
    """hidden (B, d) -> ids (B, k)."""
    if method.get("product"):
        return lambda hidden: ops.top_k(head(hidden), k)[1]
    if "num_cells" not in method:
        return lambda hidden: head.top_k(hidden, k)[1]
    index = indexes[method["num_cells"]][0]
    options = {"approximate": index, "num_candidates": method["num_candidates"]}
    return lambda hidden: head.top_k(hidden, k, **options)[1]

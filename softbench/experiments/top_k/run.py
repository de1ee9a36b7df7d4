"""The task "top_k": recall and time of the best classes, exact and by an index.

A head is trained, and its `top_k` is then called on batches of examples that were not trained on. A
method {} is the exact one, streamed over classes; {"product": True} computes all scores, then their
top k; {"num_cells", "num_candidates"} has an index.

Shape letters: B batch, d features, n classes.
"""

import time
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

import softbench
from softbench.bench import records, timing
from softbench.bench.job import Job
from softbench.experiments.top_k.heads import trained_head
from softbench.ops import steps as compiled_steps


def run(job: Job) -> None:
    """Trains a head, and measures every method of the cell; fills `job.result`."""
    config, result = job.config, job.result
    model, start = config["model"], time.perf_counter()
    head, hidden, labels, history = trained_head(job)
    result["num_classes"], result["dim"] = head.units, hidden[0].shape[-1]
    result |= {"train_seconds": time.perf_counter() - start, "train_loss": history}
    job.progress({"train_loss": history[-1]})
    batches = [(h,) for h in hidden]
    calls, steps, measures = compiled_steps.Calls(head.variables), {}, {}
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
    result["precision_at_1"] = float(np.mean(ids["exact"][:, 0] == labels))
    times = timing.in_turn(steps, **config["timing"])
    for name in config["methods"]:
        method = config["methods"][name]
        index, seconds = indexes.get(method.get("num_cells", "none"), (None, None))
        cells = None if index is None else index.means.shape[0]
        recall = recalls(ids["exact"], ids[name])
        measures[name] = {**times[name], "recall": recall, "cells": cells, "index_seconds": seconds}
    result |= {"synchronised": True, "skipped": {}, "top_k": measures}
    job.progress(records.finite(measures))


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

"""The task "proposals": samplers at points of one head's training, and what trains with them.

Shape letters: B validation contexts, n classes, d features.
"""

from typing import Any

import keras
import numpy as np
from keras import ops

from softbench import diagnostics
from softbench.bench import records, timing
from softbench.bench.job import Job
from softbench.experiments import trained as trained_lib
from softbench.experiments.trained import Trained
from softbench.metrics.at_k import medians_by_frequency
from softbench.ops import steps as compiled_steps
from softbench.targets import Targets


def run(job: Job) -> None:
    """Measures every sampler of the cell at every point, and trains the same model with it.

    Each row trains for as many steps as the head that all are measured on. Then draws are timed.
    """
    config, result, options = job.config, job.result, job.options
    points = trained_lib.train(job, options["fractions"])
    points = {fraction: _labelled(point) for fraction, point in points.items()}
    last = list(points.values())[-1]
    result |= {"num_classes": len(last.kernel), "batch": len(last.labels), "synchronised": True}
    result["heads"] = [{"fraction": f, **_of_head(point)} for f, point in points.items()]
    methods = dict(config["methods"])
    del methods[trained_lib.trained_name(methods)]
    result["samplers"] = {}
    draws, gathered = {}, {}
    for name, method in methods.items():
        rows = []
        for fraction, point in points.items():
            head = trained_lib.head(method, point, config["seed"])
            rows.append({"fraction": fraction, **measure(head, point)})
        result["samplers"][name] = {"points": rows}
        draws[name], gathered[name] = draw_step(head, last)
        perplexity = np.exp(trained_lib.valid_nll(job, method))
        result["samplers"][name]["valid_perplexity"] = records.finite(float(perplexity))
    times = timing.in_turn(draws, **options["timing"])
    for name, step in times.items():
        result["samplers"][name] |= {"draw_ms": step["step_ms"], "draws": gathered[name][0]}


def _labelled(point: Trained) -> Trained:
    """The contexts that have a label."""
    has_label = point.labels >= 0
    return point._replace(hidden=point.hidden[has_label], labels=point.labels[has_label])


def _of_head(point: Trained) -> dict:
    information = diagnostics.mutual_information(point.counts, point.valid_nll)
    perplexity = float(np.exp(point.valid_nll))
    return {"valid_perplexity": perplexity, "mutual_information": information}


def measure(head: keras.layers.Layer, point: Trained) -> dict:
    """KL, ESS, and the relative variances of the partition and of the rows' gradients.

    Returns:
        `kl`, `ess`, `rv`: means over the contexts; `rv_median`; `row_rv`: `median` over the
        classes whose gradient is not 0, and medians of the `head`, `torso` and `tail` of them.
    """
    quality = diagnostics.proposal_quality(head, point.hidden)
    partition = diagnostics.relative_variance(head, point.hidden)
    rows = diagnostics.row_variance(head, point.hidden, point.labels).values
    measures = {"kl": quality.kl, "ess": quality.ess, "rv": partition.mean}
    measures["rv_median"] = float(np.median(partition.values))
    return measures | {"row_rv": by_frequency(rows, point.counts)}


def by_frequency(values: np.ndarray, counts: np.ndarray) -> dict[str, float]:
    """Medians of (n,) values that are numbers, of all and of thirds of the labels by class."""
    medians = medians_by_frequency(values, counts)
    return {"median": float(np.nanmedian(values))} | {f"median_{b}": m for b, m in medians.items()}


def draw_step(head: keras.layers.Layer, point: Trained) -> tuple[timing.Steps, list[int]]:
    """The compiled draw of a training step for the batch; how many rows it gathers, once called."""
    gathered: list[int] = []

    def draw(hidden: Any, labels: Any) -> list:
        order = head.sampler.arrange(hidden)
        if order is not None:
            hidden, labels = (ops.take(x, order, axis=0) for x in (hidden, labels))
        drawn = head.draw(hidden, Targets(labels))
        components = [component for group in drawn for component in group]
        gathered[:] = [sum(int(np.prod(component.ids.shape)) for component in components)]
        return [(component.ids, component.log_expected_count) for component in components]

    batch = (point.hidden, point.labels.astype("int32"))
    calls = compiled_steps.Calls(head.variables)
    return timing.cycled(calls.compile(draw), [batch], calls.wait), gathered

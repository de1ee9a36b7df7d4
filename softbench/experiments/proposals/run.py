"""The task "proposals": the quality of samplers at points of one head's training, and their cost.

Shape letters: B validation contexts, n classes, d features.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from softbench import diagnostics
from softbench.bench import records, timing
from softbench.bench.job import Job
from softbench.experiments import trained as trained_lib
from softbench.experiments.proposals.following import Tracker
from softbench.experiments.trained import Trained
from softbench.metrics.at_k import BUCKETS, class_buckets, medians_by_frequency
from softbench.ops import steps as compiled_steps
from softbench.targets import Targets


def run(job: Job) -> None:
    """Measures every sampler of the cell at every point, then times their draws.

    With the option `train` every row also trains the same model for as many steps.
    """
    config, result, options = job.config, job.result, job.options
    stale = _checked_stale(options.get("stale", {}), options["fractions"])
    trackers = _Trackers(config, options.get("following", ()))
    watch = trackers.watch if trackers.methods else None
    points = trained_lib.load_or_train(job, options["fractions"], watch)
    points = {fraction: _labelled(point) for fraction, point in points.items()}
    last = list(points.values())[-1]
    result |= {"num_classes": len(last.kernel), "batch": len(last.labels), "synchronised": True}
    result["heads"] = [{"fraction": f, **_of_head(point)} for f, point in points.items()]
    methods = dict(config["methods"])
    del methods[trained_lib.trained_name(methods)]
    result["samplers"] = {name: {"points": []} for name in methods}
    draws, gathered = {}, {}
    for name, method in methods.items():
        for fraction, point in points.items():
            head = trained_lib.head(method, point, config["seed"])
            rows = [{"fraction": fraction, "built": fraction, **measure(head, point)}]
            built = stale.get(name, fraction)
            if built < fraction:
                old = trained_lib.head(method, points[built], config["seed"])
                old.table.kernel.assign(point.kernel)
                rows.append({"fraction": fraction, "built": built, **measure(old, point)})
            if name in trackers.methods:
                old = trackers.head(name, fraction, point)
                rows.append({"fraction": fraction, "follows": True, **measure(old, point)})
            result["samplers"][name]["points"] += rows
            job.progress(records.finite({"sampler": name, "points": rows}))
        draws[name], gathered[name] = draw_step(head, last)
        if options.get("train"):
            perplexity = np.exp(trained_lib.valid_nll(job, method))
            result["samplers"][name]["valid_perplexity"] = records.finite(float(perplexity))
    times = timing.in_turn(draws, **options["timing"])
    for name, step in times.items():
        result["samplers"][name] |= {"draw_ms": step["step_ms"], "draws": gathered[name][0]}


class _Trackers:
    """The trackers of those of the rows `names` that the cell has, and the fractions' steps."""

    def __init__(self, config: Mapping, names: Sequence[str]) -> None:
        methods = config["methods"]
        self.methods = {name: methods[name] for name in names if name in methods}
        self._seed = config["seed"]
        self._steps: dict[float, int] = {}
        self._trackers: dict[str, Tracker] = {}

    def watch(self, counts: np.ndarray, steps: Mapping[float, int]) -> list[Tracker]:
        """The callbacks of a training with these counts (n,), kept at {fraction: step}."""
        self._steps = dict(steps)
        self._trackers = {
            name: Tracker(method, counts, self._seed, steps.values())
            for name, method in self.methods.items()
        }
        return list(self._trackers.values())

    def head(self, name: str, fraction: float, point: Trained) -> keras.layers.Layer:
        """The head of a row with the sampler as it was at `point`."""
        return self._trackers[name].head(self._steps[fraction], point)


def _labelled(point: Trained) -> Trained:
    """The contexts that have a label."""
    has_label = point.labels >= 0
    return point._replace(hidden=point.hidden[has_label], labels=point.labels[has_label])


def _checked_stale(stale: Mapping[str, float], fractions: Sequence[float]) -> dict:
    wrong = {name: fraction for name, fraction in stale.items() if fraction not in fractions}
    if wrong:
        raise ValueError(
            f"`stale` must give some of fractions={list(fractions)}. Received: {wrong}"
        )
    return dict(stale)


def _of_head(point: Trained) -> dict:
    nll = float(point.valid_nll)
    information = diagnostics.mutual_information(point.counts, nll)
    return {"valid_perplexity": float(np.exp(nll)), "mutual_information": information}


def measure(head: keras.layers.Layer, point: Trained) -> dict:
    """KL, ESS, and the relative variances of the partition and of the rows' gradients.

    Returns:
        `kl`, `ess`, `rv`: means over the contexts; `rv_median`; `row_rv`: `median` over the
        classes whose gradient is not 0, and medians and means of the `head`, `torso` and `tail` of
        the classes.
    """
    quality = diagnostics.proposal_quality(head, point.hidden)
    partition = diagnostics.relative_variance(head, point.hidden)
    rows = diagnostics.row_variance(head, point.hidden, point.labels).values
    measures = {"kl": quality.kl, "ess": quality.ess, "rv": partition.mean}
    measures["rv_median"] = float(np.median(partition.values))
    return measures | {"row_rv": by_frequency(rows, point.counts)}


def by_frequency(values: np.ndarray, counts: np.ndarray) -> dict[str, float]:
    """Medians and means of (n,) values that are numbers, of thirds of the labels by class."""
    is_number = ~np.isnan(values)
    statistics = {"median": float(np.median(values[is_number]))}
    medians = medians_by_frequency(values, counts)
    statistics |= {f"median_{name}": value for name, value in medians.items()}
    buckets = class_buckets(counts)
    for name in medians:
        bucket = values[is_number & (buckets == BUCKETS.index(name))]
        statistics[f"mean_{name}"] = float(bucket.mean())
    return statistics


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

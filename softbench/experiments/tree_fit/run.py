"""The task "tree_fit": what fitting an adversarial tree costs, how good it is, and what draws cost.

A problem with a generated data set fits a tree by every method. A problem of data set "random"
times the compiled draw from trees with random nodes over each number of classes in `sizes`.
Shape letters: B batch, k components, n classes, m samples.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from softbench import datasets
from softbench.bench import records, timing
from softbench.bench.job import Job
from softbench.ops import steps as compiled_steps
from softbench.samplers import AdversarialTree
from softbench.samplers.tree.fit import Tree, tree_depth


def run(job: Job) -> None:
    """Fits or times every tree of the cell; fills `job.result`."""
    config, result = job.config, job.result
    if config["dataset"]["name"] == "random":
        result["draws"] = draw_times(config["dataset"]["sizes"], config)
        job.progress(records.finite(result["draws"]))
        return
    start = time.perf_counter()
    dataset = datasets.arguments(config["dataset"])
    data = datasets.load(**dataset, seed=config["seed"])
    splits = {
        name: pairs(getattr(data, f"{name}_features"), getattr(data, f"{name}_labels"))
        for name in ("train", "test")
    }
    result |= {"num_classes": data.num_classes, "num_points": len(splits["train"][1])}
    result["generation_seconds"] = time.perf_counter() - start
    share = (data.counts + 1) / (data.counts + 1).sum()
    result["frequency"] = {name: float(np.log(share)[y].mean()) for name, (_, y) in splits.items()}
    result["fits"] = {}
    shared = {key: v for key, v in config["model"].items() if key not in ("name", "label")}
    for name, method in config["methods"].items():
        options = {**shared, **method, "seed": config["seed"]}
        result["fits"][name] = fit(options, splits, data.num_classes)
        job.progress({"fitted": name, **records.finite(result["fits"][name])})


def pairs(features: Any, labels: Any) -> tuple:
    """Returns (features, labels) with a row for each pair of an example and one of its labels."""
    rows, classes = labels.nonzero()
    return features[rows], classes


def fit(options: dict, splits: dict, num_classes: int) -> dict:
    """Returns seconds (wall and processor), mean log p_n, and how each level went."""
    tree = AdversarialTree(**options)
    start, processor = time.perf_counter(), time.process_time()
    tree.fit(*splits["train"], num_classes, verbose=0)
    measures = {
        "seconds": time.perf_counter() - start,
        "processor_seconds": time.process_time() - processor,
    }
    measures["log_likelihood"] = {
        name: tree.log_likelihood(*points) for name, points in splits.items()
    }
    measures["levels"] = [level._asdict() for level in tree.levels]
    measures["objective"] = sum(level.objective for level in tree.levels)
    return measures


def random_tree(num_classes: int, width: int, seed: int) -> AdversarialTree:
    """A tree with normal nodes and classes at random leaves."""
    generator = np.random.default_rng(seed)
    leaves = 2 ** tree_depth(num_classes)
    tree = AdversarialTree(None, num_classes=num_classes, num_features=width, seed=seed)
    nodes = 0.5 * generator.normal(size=(leaves, width + 1))
    # Every pair of leaves has a class, so that no padding is next to padding.
    positions = np.concatenate([np.arange(0, leaves, 2), np.arange(1, leaves, 2)])[:num_classes]
    tree.keep(None, Tree(nodes, generator.permutation(positions), []))
    tree.build((num_classes, width))
    return tree


def draw_times(sizes: list[int], config: dict) -> dict[str, dict]:
    """Returns {n: compile seconds and milliseconds of a draw that leaves the label out}."""
    model, seed = config["model"], config["seed"]
    steps, calls = {}, compiled_steps.Calls([])
    for size in sizes:
        tree = random_tree(size, model["dim"], seed)
        calls.add(tree.variables)
        call = calls.compile(_draw(tree, model["num_sampled"]))
        batches = timing.make_batches(model, size, seed)
        steps[str(size)] = timing.cycled(call, batches, calls.wait)
    return timing.in_turn(steps, **config["timing"])


def _draw(tree: AdversarialTree, num_sampled: int) -> Callable:
    def draw(hidden: Any, labels: Any) -> tuple:
        samples = tree.sample(None, hidden, num_sampled, labels)
        return samples.ids, samples.log_expected_count

    return draw

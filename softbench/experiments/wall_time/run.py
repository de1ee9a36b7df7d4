"""The task "wall_time": draw, loss and update of several samplers, taking turns in one process.

Three compiled calls for each method, every result awaited:

    draw    hidden vectors and labels -> ids and their log expected counts
    loss    the draw, the gather of its rows, and the sampled softmax loss (forward)
    update  one step of the row optimizer on B (m + 1) random rows (B + m if the batch shares its
            draws), duplicates added up, and what the sampler keeps of them

A method {"product": True} is the yardstick of the exact sampler: one matrix product of the batch
with the normalised table, and the log-sum-exp of the scores. Shape letters: B batch, d features,
n classes, m samples.

One table serves all methods: the learning rate is so small that an update does all of its work and
leaves every row as it was, so that no method's sums fall behind another's updates.
"""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

import softbench
from softbench import losses, samplers
from softbench.bench import timing
from softbench.bench.job import Job
from softbench.ops import steps as compiled_steps

_STILL = 1e-30  # learning rate
_MEGABYTE = 1e6
PHASES = ("draw", "loss", "update")


def run(job: Job) -> None:
    """Times every method of the cell; fills `job.result`."""
    config, result = job.config, job.result
    units, model = config["dataset"]["num_classes"], config["model"]
    batches = timing.make_batches(model, units, config["seed"])
    table = softbench.ClassTable(
        units,
        use_bias=False,
        normalize=True,
        temperature=model["temperature"],
        row_optimizer=softbench.RowSGD(_STILL),
        kernel_initializer=keras.initializers.RandomNormal(seed=config["seed"]),
    )
    table.build((None, model["dim"]))
    steps, kept, calls = {}, {}, compiled_steps.Calls(table.variables)
    for name, method in config["methods"].items():
        phases, kept[name] = make_steps(method, model, table, calls, batches, config["seed"])
        steps |= {f"{name} {phase}": step for phase, step in phases.items()}
    result |= {"num_classes": units, "synchronised": True, "sums": kept}
    times = timing.in_turn(steps, **config["timing"])
    result["wall_time"] = {
        name: {phase: times[f"{name} {phase}"] for phase in PHASES if f"{name} {phase}" in times}
        for name in config["methods"]
    }


def make_steps(
    method: dict, model: dict, table: Any, calls: Any, batches: list[tuple], seed: int
) -> tuple[dict[str, timing.Steps], dict]:
    """Returns the compiled phases of a method, and what its sums are: memory and blocks."""
    if method.get("product"):
        rows = ops.convert_to_tensor(table.normalized(table.kernel))
        product = calls.compile(_product(rows, table.temperature))
        return {"loss": timing.cycled(product, batches, calls.wait)}, {}
    sampler = samplers.get(method["sampler"], seed=seed)
    count = model["num_sampled"]
    sampler.build((table.units, model["dim"]), count, table)
    calls.add(sampler.variables)

    def draw(hidden: Any, labels: Any) -> tuple:
        samples = sampler.sample(table, hidden, count, labels)
        return samples.ids, samples.log_expected_count

    def loss(hidden: Any, labels: Any) -> Any:
        ids, log_expected_count = draw(hidden, labels)
        true_logit = table.paired_logits(hidden, *table.gather(labels))
        logits = table.scores(hidden, ids)
        hits = ops.equal(ids, ops.expand_dims(labels, -1))
        logits = ops.where(hits, -float("inf"), logits)
        return losses.sampled_softmax(true_logit, logits, None, log_expected_count)

    trackers = [sampler] if sampler.tracks_rows else []

    def update(ids: Any, gradient: Any) -> None:
        table.apply_row_gradients(ids, [gradient], trackers=trackers)

    changes = _changes(sampler.per_example, model, table.units, seed)
    phases = {"draw": (draw, batches), "loss": (loss, batches), "update": (update, changes)}
    steps = {
        phase: timing.cycled(calls.compile(function), arguments, calls.wait)
        for phase, (function, arguments) in phases.items()
    }
    return steps, _kept(sampler)


def _product(rows: Any, temperature: float) -> Callable:
    """The least that exact scores cost: a product with the rows (n, d) and one pass over it."""

    def product(hidden: Any, labels: Any) -> Any:
        return ops.logsumexp(ops.matmul(hidden, ops.transpose(rows)) / temperature, axis=-1)

    return product


def _changes(per_example: bool, model: dict, units: int, seed: int) -> list[tuple]:
    """Random row ids (N,) and gradients (N, d) as one training step of the method has them."""
    generator = np.random.default_rng(seed)
    batch, count = model["batch_size"], model["num_sampled"]
    size = batch * (count + 1) if per_example else batch + count
    return [
        (
            generator.integers(units, size=size).astype("int32"),
            generator.normal(size=(size, model["dim"])).astype("float32"),
        )
        for _ in range(timing.NUM_BATCHES)
    ]


def _kept(sampler: Any) -> dict:
    """Memory of the sums (MB), block size and nodes of each level of a kernel sampler."""
    blocks = getattr(sampler, "blocks", None)
    if blocks is None:
        return {}
    numbers = sum(int(np.prod(variable.shape)) for variable in blocks.sums)
    return {
        "megabytes": round(4 * numbers / _MEGABYTE, 1),
        "block_size": blocks.spans[0],
        "nodes": list(blocks.nodes),
    }

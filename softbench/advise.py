"""The command `softbench-advise`: what methods cost at a problem's sizes, on this machine.

Steps are timed as `softbench --price` times them, quality is looked up in what the committed
records say. Needs no Keras.
"""

import contextlib
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from absl import flags

from softbench import commands, datasets
from softbench.bench import app, environment, matrix, own_data, price
from softbench.bench import config as config_lib
from softbench.bench.methods import adagrad, full, sampled, with_row_updates
from softbench.commands import ConfigError
from softbench.common import BACKENDS
from softbench.report import evidence

_USAGE = """softbench-advise --kind=items --classes=1000000 --dim=128 --batch=512
softbench-advise --kind=items --data=ratings.csv

Times training steps of five methods on generated data of these sizes, or on a file of yours, and
prints what they cost, what the benchmark's records say of their quality, and lines to paste."""
ROUNDS = 3
ROWS_FROM = 50_000  # classes, from which on the touched rows alone are updated
RATE = 0.1
DRAWS = 1000  # for the batch
COUNTS = "train + 1"  # one more than there are: a class that is never drawn learns nothing
FEW = 10_000  # classes up to which the exact softmax is advised
WORTH = 3.0  # times the quickest step that exactness is worth
LARGEST = 2**34  # n d batch, above which a step of `full` takes seconds on a CPU: it is left out
REFERENCE = "unigram"  # of the price: its steps are short at any n
NEAR = 10.0  # records of so many times more or fewer classes are of problems of another size


class Kind(NamedTuple):
    """A kind of problem.

    Attributes:
        config: the shipped config that trains on a file of it.
        like: inputs of the records that speak for it; what tells much of the class is alike.
        measure: of how far behind the best the records are.
        close: what counts as close to the best.
    """

    config: str
    like: tuple[str, ...]
    measure: str
    close: float


KINDS = {
    "words": Kind("text", ("words",), "nats", 0.15),
    "items": Kind("interactions", ("items", "labels"), "precision_at_1", 0.03),
    "labels": Kind("own_xmc", ("items", "labels"), "precision_at_1", 0.03),
}


def _define() -> flags.FlagValues:
    values = flags.FlagValues()
    for name, default, text in (
        ("classes", 100_000, "n, of generated data."),
        ("dim", 128, "Features of the encoder's output, d."),
        ("batch", 512, "Examples of a training step."),
    ):
        flags.DEFINE_integer(name, default, text, lower_bound=1, flag_values=values)
    text = "What the classes are: next words, the next item of a user, labels of rows of features."
    flags.DEFINE_enum("kind", None, list(KINDS), text, flag_values=values)
    text = "A file or folder of yours, as `softbench --config.dataset.path` takes it."
    flags.DEFINE_string("data", None, text, flag_values=values)
    text = f"Of Keras; default: KERAS_BACKEND, or {BACKENDS[0]}."
    flags.DEFINE_enum("backend", None, list(BACKENDS), text, flag_values=values)
    return values


def main(argv: list[str]) -> int:
    """Prints the advice for a command line; returns the exit status."""
    options = commands.parse(_define(), argv, _USAGE)
    if options.kind is None:
        raise ConfigError(f"--kind must be one of: {', '.join(KINDS)}. Received: no --kind")
    if options.data is not None and options["classes"].present:
        raise ConfigError(
            f"--classes does not go with --data, which has its own. Received: {options.classes}"
        )
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        config, classes = _problem(options, Path(folder))
        small = classes * options.dim * max(options.batch, 64) <= LARGEST
        sampling = ",".join(name for name in config["method_table"] if name != "full")
        chosen = config if small else {**config, "methods": sampling}
        record = price.price(chosen, Path(folder), rounds=ROUNDS)
        if not small and record["device"]["kind"] != "cpu":
            record = price.price(config, Path(folder), rounds=ROUNDS)
    print(text(options, classes, config, record))
    return 0


def _problem(options: flags.FlagValues, workdir: Path) -> tuple[dict, int]:
    """The config that is priced: the shipped one of the kind, with these sizes; and n."""
    argv = ["softbench-advise", f"--config={KINDS[options.kind].config}"]
    config = app.read_config(app.parse(app.resolved(argv)))
    if options.data is None:
        classes = options.classes
        config |= {"dataset": generated(options.kind, classes, options.batch)}
    else:
        dataset = {**config["dataset"], "path": options.data}
        config = own_data.named({**config, "dataset": dataset})
        (cell,) = own_data.read(matrix.cells(config)[:1], workdir)
        arguments = datasets.arguments(cell.config["dataset"])
        classes = datasets.load(**arguments, data_dir=cell.data_dir).num_classes
    model = sized(options.kind, classes, options.dim, options.batch)
    table = methods(classes, options.batch)
    config |= {"model": model, "method_table": table, "method_order": list(table)}
    backend = options.backend or os.environ.get("KERAS_BACKEND") or BACKENDS[0]
    config |= {"methods": "", "reference": REFERENCE, "backend": backend}
    config_lib.check(config)
    environment.check_backends([backend])
    return config, classes


def generated(kind: str, classes: int, batch: int) -> dict:
    """Returns the generated data set of a kind, of a few batches."""
    if kind == "items":
        return {"name": "synthetic_interactions", "num_classes": classes, "num_users": 16 * batch}
    sizes = {"num_train": 32 * batch, "num_valid": 2 * batch, "num_test": 2 * batch}
    if kind == "labels":
        return {"name": "synthetic_xmc", "num_classes": classes, "num_features": 1000, **sizes}
    return {"name": "synthetic_language", "num_classes": classes, **sizes}


def sized(kind: str, classes: int, dim: int, batch: int) -> dict:
    """Returns the model of a kind: a small encoder (d = dim) with so many examples in a step.

    From `ROWS_FROM` classes on, the embeddings of words and users have row updates too.
    """
    rows = {"row_optimizer": adagrad(RATE)} if classes > ROWS_FROM else {}
    if kind == "words":
        steps = max(size for size in range(1, 21) if batch % size == 0)
        sizes = {"batch_size": batch // steps, "num_steps": steps}
        return {"name": "lstm", "units": dim, "num_layers": 1, **sizes, **rows}
    if kind == "labels":
        return {"name": "bag", "dim": dim, "batch_size": batch}
    return {"name": "matrix_factorisation", "dim": dim, "batch_size": batch, **rows}


def methods(classes: int, batch: int) -> dict[str, dict]:
    """Returns {name: method as in a config} of what is timed for n classes."""
    count, shared, seen = min(DRAWS, max(1, classes - 1)), {"share_draws": True}, {"counts": COUNTS}
    top = min(256, max(1, classes // 4))
    table = {
        "unigram": sampled("unigram", count, power=0.75, unique=True, **seen, **shared),
        "in_batch": sampled("in_batch", min(count, batch)),
        "codebook": sampled("codebook", count, **shared),
        "top_and_tail": sampled("top_and_tail", count, num_top=top, **seen),
    }
    if classes > ROWS_FROM:
        table = {name: with_row_updates(row, adagrad(RATE)) for name, row in table.items()}
    return {"full": full(), **table}


def quality(kind: Kind, classes: int, method: Mapping) -> list[float]:
    """Returns how far behind the best a method's records are, of problems of about this size."""
    name = evidence.kind(method)
    entries = json.loads(resources.files("softbench.report").joinpath("evidence.json").read_text())
    values = [
        entry["behind"].get(name, {}).get(kind.measure)
        for entry in entries
        if 1 / NEAR <= entry["classes"] / classes <= NEAR and entry["inputs"] in kind.like
    ]
    return [value for value in values if value is not None]


def advised(kind: Kind, classes: int, ratios: Mapping[str, float], behind: Mapping) -> tuple:
    """Returns the method whose lines are printed, and why.

    Args:
        kind: of the problem.
        classes: n.
        ratios: {method: price of a step} of what could be timed, `REFERENCE` among them.
        behind: {method: values of `quality`}.
    """
    sampling = {name: ratio for name, ratio in ratios.items() if name != "full"}
    quickest = min(sampling, key=sampling.get)
    if "full" in ratios and (classes <= FEW or ratios["full"] <= WORTH * sampling[quickest]):
        return "full", "exact; n is small, or sampling saves little"
    medians = {name: statistics.median(behind[name]) for name in sampling if behind[name]}
    close = [name for name, value in medians.items() if value <= kind.close]
    if close:
        return min(close, key=sampling.get), "the quickest of those that records put near the best"
    if medians:
        return min(medians, key=medians.get), "the nearest to the best in records"
    return quickest, "the quickest; no record is of such a problem"


def text(options: Any, classes: int, config: Mapping, record: Mapping) -> str:
    """Returns what is printed: at most 12 lines."""
    kind, rows = KINDS[options.kind], record["methods"]
    table = {name: row for name, row in config["method_table"].items() if name in rows}
    behind = {name: quality(kind, classes, method) for name, method in table.items()}
    ratios = {name: rows[name]["ratio"] for name in table if "ratio" in rows[name]}
    unit = "full" if "full" in ratios else record["reference"]
    sizes = f"{options.kind}: n = {classes:,}, d = {options.dim}, batch {options.batch}"
    sizes += "" if "full" in table else "; full takes seconds a step here and is left out"
    lines = [f"{sizes}; encoder {config['model']['name']}, {config['backend']}"]
    head = f"behind the best in records, {kind.measure}"
    lines += [f"{'method':<12}  {'step, ms':>9}  {f'of {unit}':>10}  {head}"]
    for name in table:
        if name in ratios:
            ratio, step = ratios[name] / ratios[unit], rows[name]["step_ms"]
            words = f"{step:9.4g}  {ratio:10.3g}  {_range(behind[name])}"
        else:
            words = f"failed: {rows[name]['error']}"
        lines.append(f"{name:<12}  {words}")
    best, why = advised(kind, classes, ratios, behind)
    return "\n".join([*lines, f"To paste ({best}: {why}):", *paste(classes, table[best])])


def _range(values: list[float]) -> str:
    if not values:
        return "no record"
    least, middle, most = min(values), statistics.median(values), max(values)
    return f"{middle:.3f}" + (f" ({least:.3f} to {most:.3f})" if len(values) > 1 else "")


def paste(classes: int, method: Mapping) -> list[str]:
    """Returns the Keras lines of a method."""
    arguments = "".join(f", {k}={_shown(v)}" for k, v in method.get("kwargs", {}).items())
    needed = "; counts: (n,) of the labels in the training data" if "counts" in arguments else ""
    return [
        f"  head = softbench.{method['head']}({classes}{arguments})",
        '  model = softbench.Classifier(encoder, head); model.compile("adam")',
        f"  model.fit(x, y)  # y: ids of the classes{needed}",
    ]


def _shown(value: object) -> str:
    """Python's text of an argument; counts of a config as the variable that holds them."""
    if isinstance(value, Mapping) and "learning_rate" in value:
        return f"softbench.RowAdagrad({value['learning_rate']})"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {_shown(item)}" for key, item in value.items()) + "}"
    return "counts + 1" if value == COUNTS else repr(value)


def run() -> None:
    """Entry point of the console script."""
    commands.run("softbench-advise", main, "run it again")


if __name__ == "__main__":
    run()

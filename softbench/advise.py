"""The command `softbench-advise`: which method to use for a problem, and what it costs here.

It weighs the problems of the kind in `decisions.json`, the nearest most, times the steps of the
methods that they have least behind the best, as `softbench --price` does, and on request trains two
of them on a file of the user. Needs no Keras.
"""

import contextlib
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from absl import flags

from softbench import commands, datasets
from softbench.bench import app, environment, matrix, own_data, price, records, runner
from softbench.bench import config as config_lib
from softbench.bench.methods import AT_MOST, LOG_FREQUENCIES, adagrad, at_most, with_row_updates
from softbench.commands import ConfigError
from softbench.common import BACKENDS
from softbench.report import advice, ranking, transfer
from softbench.report.decisions import REFERENCE

_USAGE = """softbench-advise --kind=items --classes=1000000
softbench-advise --kind=items --data=ratings.csv --minutes=6

Prints which method is recommended, by the problems of its kind in decisions.json; what its
steps cost here, on generated data of these sizes or on a file of yours; and lines to paste."""
ROUNDS, TIMED, TRAINED, SEEDS = 3, 3, 2, 3  # methods besides `full`; methods; seeds of each
SHORTEST = 30.0  # seconds of training, compilation included, below which there are fewer seeds
ROWS_FROM = 50_000  # classes, from which on the touched rows alone are updated
LARGEST = 2**34  # n d batch, above which a step of `full` takes seconds on a CPU: it is left out
_OF_TABLE = ("use_bias", "normalize", "temperature", "bias_initializer", "row_optimizer")
_START = "keras.initializers.Constant(np.log((counts + 1) / (counts + 1).sum()))"
_DATA = {"train": "counts", "train + 1": "counts + 1", LOG_FREQUENCIES: _START}


class Kind(NamedTuple):
    """A kind of problem.

    Attributes:
        config: the shipped config that trains on a file of it.
        measure: by which its methods are compared.
        width, steps: fields of its model: d, and of a batch the examples in a row ("": one).
    """

    config: str
    measure: str
    width: str
    steps: str


KINDS = {
    "words": Kind("text", "perplexity", "units", "num_steps"),
    "items": Kind("interactions", "ndcg_at_10", "dim", "length"),
    "labels": Kind("own_xmc", "precision_at_1", "dim", ""),
}


def _define() -> flags.FlagValues:
    values = flags.FlagValues()
    for name, text in (
        ("classes", "n, of generated data."),
        ("dim", "Features of the encoder's output, d; default: the config's."),
        ("batch", "Examples of a training step; default: the config's."),
    ):
        flags.DEFINE_integer(name, None, text, lower_bound=1, flag_values=values)
    text = "What the classes are: next words, the next item of a user, labels of rows of features."
    flags.DEFINE_enum("kind", None, list(KINDS), text, flag_values=values)
    text = "What the input tells of the class: log-loss of the class frequencies less your model's."
    flags.DEFINE_float("nats", None, text, 0.0, flag_values=values)
    text = "A file or folder of yours, as `softbench --config.dataset.path` takes it."
    flags.DEFINE_string("data", None, text, flag_values=values)
    text = "Of training on --data in all, of the first two methods; evaluations come on top."
    flags.DEFINE_float("minutes", 0.0, text, 0.0, flag_values=values)
    text = f"Of Keras; default: KERAS_BACKEND, or {BACKENDS[0]}."
    flags.DEFINE_enum("backend", None, list(BACKENDS), text, flag_values=values)
    return values


def main(argv: list[str]) -> int:
    """Prints the advice for a command line; returns the exit status."""
    options = commands.parse(_define(), argv, _USAGE)
    if options.kind is None:
        raise ConfigError(f"--kind must be one of: {', '.join(KINDS)}. Received: no --kind")
    if (options.data is None) == (options.classes is None):
        raise ConfigError(
            "One of --classes and --data must be given, and not both: data have their own classes. "
            f"Received: --classes={options.classes}, --data={options.data}"
        )
    if options.minutes and options.data is None:
        raise ConfigError(f"--minutes must come with --data. Received: {options.minutes:g}")
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        kind, folder = KINDS[options.kind], Path(folder)
        config, classes = _problem(options, kind, folder)
        known, asked = transfer.read(), transfer.Asked(options.kind, classes, options.nats)
        source = next(iter(transfer.alike(known, asked)), None)
        behind = transfer.expected(known, asked)
        ranked = [name for name in behind if name in config["method_table"]]
        ranked = list(dict.fromkeys([*ranked, *config["methods"].split(",")]))
        names = [name for name in ranked if name != REFERENCE][:TIMED]
        priced = _price(config, kind, names, classes, folder)
        first = [name for name in ranked if "ratio" in priced["methods"].get(name, {})][:TRAINED]
        trained = train(config, kind, first, 60 * options.minutes, folder) if first else []
    print(text(options, classes, config, source, behind, priced, trained))
    return 0


def _problem(options: flags.FlagValues, kind: Kind, workdir: Path) -> tuple[dict, int]:
    """The shipped config of the kind, with these sizes; and n."""
    config = app.read_config(app.parse(app.resolved(["", f"--config={kind.config}"])))
    model = sized(kind, config["model"], options.dim, options.batch)
    if options.data is None:
        classes = options.classes
        config |= {"dataset": generated(config, classes, examples(kind, model))}
    else:
        dataset = {**config["dataset"], "path": options.data}
        config = own_data.named({**config, "dataset": dataset})
        (cell,) = own_data.read(matrix.cells(config)[:1], workdir)
        arguments = datasets.arguments(cell.config["dataset"])
        classes = datasets.load(**arguments, data_dir=cell.data_dir).num_classes
    table = config_lib.method_table(config)
    if classes > ROWS_FROM and (options.data is None or "tied" not in model):
        # A step is of the touched rows, those of the words and users that are read too.
        rows = adagrad(0.1)
        if "tied" in model:  # the encoder reads the whole table of the head
            model = {"name": "matrix_factorisation", "batch_size": examples(kind, model)}
            model |= {"dim": options.dim or config["model"]["dim"]}
        model |= {"row_optimizer": rows} if options.kind != "labels" else {}
        table |= {m: with_row_updates(row, rows) for m, row in table.items() if m != REFERENCE}
    backend = options.backend or os.environ.get("KERAS_BACKEND") or BACKENDS[0]
    config |= {"model": model, "method_table": table, "backend": backend}
    config_lib.check(config)
    environment.check_backends([backend])
    return config, classes


def generated(config: Mapping, classes: int, batch: int) -> dict:
    """Returns the generated data set of a config, of a few batches."""
    dataset = config["presets"]["smoke"]["dataset"]
    sizes = {"num_users": 16, "num_train": 32, "num_valid": 2, "num_test": 2}
    sizes = {key: size * batch for key, size in sizes.items() if key in dataset}
    return {**dataset, **sizes, "num_classes": classes}


def sized(kind: Kind, model: Mapping, dim: int | None, batch: int | None) -> dict:
    """Returns the model of a config with another d and as many examples in a step."""
    model = {**model, kind.width: dim or model[kind.width]}
    if batch:
        longest = model.get(kind.steps, 1)
        steps = max(size for size in range(1, longest + 1) if batch % size == 0)
        model |= {"batch_size": batch // steps, **{k: steps for k in model if k == kind.steps}}
    return model


def examples(kind: Kind, model: Mapping) -> int:
    """Returns how many examples a step of a model has."""
    return model["batch_size"] * model.get(kind.steps, 1)


def _price(config: Mapping, kind: Kind, names: list[str], classes: int, folder: Path) -> dict:
    """The record of prices, with `full`; on a CPU without it where its step takes seconds."""
    size = classes * config["model"][kind.width] * max(examples(kind, config["model"]), 64)
    config = {**config, "reference": names[0], "methods": ",".join(names)}
    if size > LARGEST:
        (record,) = price.prices(config, folder, rounds=ROUNDS)
        if record["device"]["kind"] == "cpu":
            return record
    config = {**config, "methods": ",".join([*names, REFERENCE])}
    (record,) = price.prices(config, folder, rounds=ROUNDS)
    return record


def train(config: Mapping, kind: Kind, names: list[str], seconds: float, folder: Path) -> list:
    """Returns the records of methods that are trained for so many seconds in all; none for 0."""
    if not seconds:
        return []
    each = seconds / len(names)
    seeds = max(1, min(SEEDS, int(each / SHORTEST)))
    config = {**config, "methods": ",".join(names), "seeds": list(range(seeds)), "epochs": 8}
    config |= {"keep": "best", "keep_by": kind.measure, "max_train_seconds": each / seeds}
    cells = own_data.read(matrix.cells(config), folder)
    runner.prepare(folder)
    runner.run_cells(cells, folder, None, "softbench-advise", False)
    return records.read_all(folder)


def text(
    options: Any,
    classes: int,
    config: Mapping,
    source: Mapping | None,
    behind: Mapping[str, float],
    priced: Mapping,
    trained: list[dict],
) -> str:
    """Returns what is printed: at most 12 lines.

    Args:
        options, classes, config: of the problem.
        source: the nearest decided problem of the kind, or None.
        behind: how far behind the best methods can be expected to be, the least first.
        priced, trained: the record of prices, and those of training on the user's data.
    """
    kind, model, timed = KINDS[options.kind], config["model"], priced["methods"]
    ratios = {name: row["ratio"] for name, row in timed.items() if "ratio" in row}
    sizes = f"n = {classes:,}, d = {model[kind.width]}, batch {examples(kind, model)}"
    left = "" if REFERENCE in timed else f"; {REFERENCE} takes seconds a step here and is left out"
    unit = REFERENCE if REFERENCE in ratios else priced["reference"]
    lines = [
        f"{options.kind}: {sizes}; encoder {model['name']}, {config['backend']}{left}",
        advice.where(options.kind, source),
        f"{'method':<12}  {'step, ms':>9}  {f'of {unit}':>11}  {'there':>6}  result there",
    ]
    for name, row in timed.items():
        words = f"failed: {row.get('error')}"
        if name in ratios:
            there = advice.there(source, name)
            words = f"{row['step_ms']:9.4g}  {ratios[name] / ratios[unit]:11.3g}  {there}"
        lines.append(f"{name:<12}  {words}")
    best = next((name for name in behind if name in ratios), None)
    why = f"by all of its kind {100 * behind[best]:.2g} % behind the best" if best else ""
    if trained:
        line, rows = advice.trained(trained, f"test_{kind.measure}")
        lines.append(line)
        if len(rows) > 1:
            best, why = ranking.simplest(rows), "the simplest of the best on your data"
    elif source:
        rows = any("row_optimizer" in config["method_table"][m].get("kwargs", {}) for m in ratios)
        changes = advice.changes(classes, source, ratios, rows)
        lines.append(f"would change it: {changes}")
    if best is None:
        return "\n".join([*lines, "recommended: none, for no method that runs here is decided"])
    lines.append(f"recommended: {best}, {why}; to paste:")
    return "\n".join([*lines, *paste(classes, config["method_table"][best])])


def paste(classes: int, method: Mapping) -> list[str]:
    """Returns the Keras lines of a method."""
    kwargs = {key: _shown(value, classes) for key, value in method.get("kwargs", {}).items()}
    of_table = {key: kwargs.pop(key) for key in list(kwargs) if key in _OF_TABLE}
    joined = [", ".join(f"{k}={v}" for k, v in some.items()) for some in (of_table, kwargs)]
    return [
        f"  table = softbench.ClassTable({classes}, {joined[0]})  # counts: (n,) of the labels",
        f"  head = softbench.{method['head']}(table=table{', ' * bool(kwargs)}{joined[1]})",
        '  model = softbench.Classifier(encoder, head); model.compile("adam"); model.fit(x, y)',
    ]


def _shown(value: object, classes: int) -> str:
    """Python's text of an argument; counts of a config as the variable that holds them."""
    if isinstance(value, Mapping) and "learning_rate" in value:
        return f"softbench.RowAdagrad({value['learning_rate']})"
    if isinstance(value, Mapping):
        items = (f"{key!r}: {_shown(item, classes)}" for key, item in value.items())
        return "{" + ", ".join(items) + "}"
    if isinstance(value, str) and value.startswith(AT_MOST):
        return str(at_most(value, classes))
    return _DATA.get(value, repr(value)) if isinstance(value, str) else repr(value)


def run() -> None:
    """Entry point of the console script."""
    commands.run("softbench-advise", main, "run it again")


if __name__ == "__main__":
    run()

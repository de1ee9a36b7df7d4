"""The methods of a problem trained on the user's data, each for an equal time. No Keras.

Every method is a cell of the harness: a separate process, the config of the kind of data, and
the records that `softbench` writes.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from softbench import datasets
from softbench.advise import choices as choices_lib
from softbench.advise import kinds
from softbench.advise.choices import Choice, Problem
from softbench.advise.ranking import columns
from softbench.bench import app, matrix, own_data, records, runner
from softbench.bench import config as config_lib
from softbench.commands import ConfigError
from softbench.report.evidence import INPUTS

START = 15.0  # seconds of a cell that are no training: imports, data, evaluation
LEAST = 15.0  # seconds of training of a method
FEW = 200  # steps, from which on nobody should conclude anything
_EPOCHS = 3  # equal shares of the time, with an evaluation after each


class Question(NamedTuple):
    """The data and the config on which methods are compared.

    Attributes:
        problem: sizes of the data and of the model.
        config: plain, of the kind of data.
        data_dir: of a data set that is not the user's.
    """

    problem: Problem
    config: dict
    data_dir: str | None


class Trained(NamedTuple):
    """A method's record at its best point of the validation set; numbers None where it failed."""

    name: str
    choice: Choice
    note: str = ""
    steps: int | None = None
    step_ms: float | None = None
    megabytes: float | None = None
    nll: float | None = None
    ece: float | None = None
    precision: float | None = None


def question(
    data: str, kind: str, need: str, backend: str, data_dir: str | None, workdir: Path
) -> Question:
    """Reads the data, once for all methods.

    Args:
        data: path, or name of `kinds.names`.
        kind: of `kinds.CONFIGS`, or "" to look at the file.
        need: of the `Problem`.

    Raises:
        ConfigError: for data of no use.
    """
    detected, is_path = kinds.of_data(data)
    argv = ["softbench-advise", f"--config={kinds.SHIPPED[kind or detected]}"]
    config = app.read_config(app.parse(app.resolved(argv))) | {"backend": backend}
    dataset = {**config["dataset"], "path": data} if is_path else {"name": data}
    config = own_data.named({**config, "dataset": dataset})
    cell = matrix.cells({**config, "methods": "full"})[0]
    cell = own_data.read([cell], workdir)[0]
    folder = cell.data_dir or data_dir
    try:
        loaded: Any = datasets.load(
            **datasets.arguments(cell.config["dataset"]), **({"data_dir": folder} if folder else {})
        )
    except (ValueError, OSError) as error:
        raise ConfigError(f"--data: {error}") from None
    model = config["model"]
    batch = model["batch_size"] * model.get("num_steps", 1)
    inputs = INPUTS.get(model["name"], "")
    width = model.get("units") or model["dim"]
    problem = Problem(loaded.num_classes, width, batch, 1, need, inputs, True)
    return Question(problem, config, data_dir)


def train(
    question: Question, tried: Mapping[str, Choice], seconds: float, workdir: Path
) -> list[Trained]:
    """Trains every method for an equal share of the seconds; returns them, the best first."""
    share = max(LEAST, seconds / len(tried) - START)
    config = question.config | {
        "method_table": {name: choice.method for name, choice in tried.items()},
        "method_order": list(tried),
        "methods": "",
        "epochs": _EPOCHS,
        "max_train_seconds": round(share, 1),
        "timing": {"warmup_steps": 5, "head_repetitions": 0},
    }
    config_lib.check(config)
    cells = own_data.read(matrix.cells(config), workdir)
    runner.prepare(workdir)
    records.write_plan(workdir, config)
    runner.run_cells(cells, workdir, question.data_dir, "softbench-advise", False)
    rows = []
    for cell in cells:
        (name,) = cell.config["methods"]
        record = records.read(workdir / "runs" / f"{cell.id}.json")
        rows.append(_trained(name, tried[name], record, question.problem.need))
    return sorted(rows, key=lambda row: _order(row, question.problem.need))


def _trained(name: str, choice: Choice, record: Mapping, need: str) -> Trained:
    points = [p for p in record.get("curve", ()) if p.get("valid_nll") is not None]
    if not points or record["status"] not in ("ok", "timed_out"):
        error = (record["error"] or record["status"]).strip().splitlines()[-1]
        return Trained(name, choice, error)
    key, sign = ("valid_nll", 1) if need == "calibrated" else ("valid_precision_at_1", -1)
    best = min(points, key=lambda point: sign * point[key])
    return Trained(
        name,
        choice,
        "",
        points[-1]["step"],
        (record.get("step_ms") or {}).get("median"),
        (record.get("peak_memory_mb") or {}).get("host"),
        best["valid_nll"],
        best.get("valid_ece"),
        best["valid_precision_at_1"],
    )


def _order(row: Trained, need: str) -> float:
    if row.nll is None or row.precision is None:
        return math.inf
    return row.nll if need == "calibrated" else -row.precision


def text(question: Question, rows: list[Trained], where: str, seconds: float) -> str:
    """Returns the whole answer."""
    problem, best = question.problem, rows[0]
    data = question.config["dataset"]
    sizes = f"{data.get('label') or data['name']}: n = {problem.classes:,}, d = {problem.dim}"
    head = f"{sizes}, batch {problem.batch}, need {problem.need}; {where}, {seconds:.0f} s"
    sections = [head, columns(_cells(rows))]
    why = (f"  {i}. {row.name}: {_reason(row)}" for i, row in enumerate(rows, 1))
    sections += ["Why", "\n".join(why)]
    if best.nll is not None:
        lines = ["import softbench", *choices_lib.lines(problem, best.choice.method)]
        sections += [f"To paste ({best.name})", "\n".join(f"  {line}" for line in lines)]
    notes = [
        "Your encoder: this one is that of `softbench --config="
        f"{question.config['experiment'].removeprefix('own_')}`; `softbench.compare` takes yours.",
        "Another seed, and longer training: methods that are close here may change places.",
    ]
    if any(row.steps is not None and row.steps < FEW for row in rows):
        notes.append(f"More than what fewer than {FEW} steps teach: --minutes gives more of them.")
    if problem.need == "calibrated":
        notes.append(
            "What a temperature fitted on held-out data would make of the calibration error."
        )
    return "\n\n".join([*sections, "What this cannot know", "\n".join(f"  * {n}" for n in notes)])


def _cells(rows: list[Trained]) -> list[tuple[str, ...]]:
    names = ("steps", "step, ms", "memory, MB", "perplexity", "calibration error", "precision@1")
    cells = [("method", *names)]
    for row in rows:
        perplexity = None if row.nll is None else math.exp(min(row.nll, 700.0))
        values = row.steps, row.step_ms, row.megabytes, perplexity, row.ece, row.precision
        forms = (",d", ".4g", ",.0f", ",.4g", ".3f", ".4f")
        shown = ("-" if v is None else format(v, f) for v, f in zip(values, forms, strict=True))
        cells.append((row.name, *shown))
    return cells


def _reason(row: Trained) -> str:
    if row.note:
        return f"Failed: {row.note}"
    why = f"{row.choice.why[0].upper()}{row.choice.why[1:]}"
    return f"{why}. {choices_lib.prediction(row.choice.method)}."

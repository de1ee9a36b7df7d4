"""A grid of settings: a short run with each, then the cells with the best. Needs no Keras.

The short runs are separate cells in the folder `search` of the results, so they resume as all
others do. They have the first seed, end with the validation set as their judge, and never see the
test set.
"""

import itertools
import math
from collections.abc import Mapping
from pathlib import Path

from softbench.bench import arguments, learning_rates, matrix, records
from softbench.bench import config as config_lib
from softbench.bench.learning_rates import Rate
from softbench.bench.matrix import Cell

FOLDER = "search"
_LENGTH = ("epochs", "steps_per_epoch", "max_train_seconds", "budget", "steps")
_OF_THE_WHOLE = (*_LENGTH, "keep", "patience", "keep_by", "search", "search_budget", "refit")


def trials(cells: list[Cell]) -> list[Cell]:
    """Returns the short runs of those cells whose config has a `search`, each once.

    Raises:
        ConfigError: for a cell whose learning rate cannot be set.
    """
    searched = (cell for cell in cells if "search" in cell.config)
    runs = (trial for cell in searched for _, trial in _trials(cell))
    return list({trial.id: trial for trial in runs}.values())


def chosen(cells: list[Cell], workdir: Path, measure: str) -> tuple[list[Cell], list[str]]:
    """Returns the cells with the best settings, and the names of methods without any result.

    A cell's id has the chosen settings in it; what came of the others, `search` of its record, is
    not in the id.

    Args:
        cells: those without a `search` in their config stay as they are.
        workdir: of the cells; that of their short runs is in it.
        measure: the curve's, as "perplexity".
    """
    best, failed = [], []
    for cell in cells:
        if "search" not in cell.config:
            best.append(cell)
            continue
        grid = [_tried(settings, trial, workdir, measure) for settings, trial in _trials(cell)]
        scored = [row for row in grid if row["value"] is not None]
        if not scored:
            failed += cell.config["methods"]
            continue
        pick = min if measure.startswith(config_lib.LOWER) else max
        settings = pick(scored, key=lambda row: row["value"])["settings"]
        config = _with(cell.config, settings)
        found = {"measure": measure, "chosen": settings, "grid": grid}
        best.append(cell._replace(id=matrix.cell_id(config), config=config, search=found))
    return best, list(dict.fromkeys(failed))


def _trials(cell: Cell) -> list[tuple[dict, Cell]]:
    """Settings and their short run, for every combination of the values of a cell's `search`."""
    whole = {k: v for k, v in cell.config.items() if k not in _OF_THE_WHOLE}
    budget, grid = cell.config["search_budget"], cell.config["search"]
    whole |= {"epochs": budget["epochs"], "steps_per_epoch": 0}
    whole |= {"steps": budget["steps"]} if budget["steps"] else {}
    whole |= {"seed": budget["seed"], "test": False}
    whole |= {"timing": {**whole["timing"], "head_repetitions": 0}}
    whole = learning_rates.changed(whole, lambda rate: _falling(rate, cell.config, budget))
    made = []
    for values in itertools.product(*grid.values()):
        settings = dict(zip(grid, values, strict=True))
        config = _with(whole, settings)
        run = cell._replace(id=matrix.cell_id(config), config=config, price=None)
        made.append((settings, run))
    return made


def _falling(rate: Rate, config: Mapping, budget: Mapping) -> Rate:
    """A rate that falls as far in a short run as in the whole one."""
    if budget["steps"]:
        return learning_rates.ending(rate, budget["steps"])
    if "steps" in config or config["steps_per_epoch"] or not config["epochs"]:
        return rate  # of runs that do not count in whole epochs
    return learning_rates.shortened(rate, budget["epochs"] / config["epochs"])


def _with(config: Mapping, settings: Mapping) -> dict:
    """The config of a cell with other settings: a learning rate, and arguments of the head.

    All rates keep their ratios to that of the optimizer.
    """
    ((name, method),) = config["methods"].items()
    kwargs = dict(method.get("kwargs", {}))
    for argument, value in settings.items():
        if argument != arguments.RATE:
            kwargs = arguments.changed(kwargs, argument, value)
    config = {**config, "methods": {name: {**method, "kwargs": kwargs}}}
    if arguments.RATE not in settings:
        return config
    number = learning_rates.first(learning_rates.base(config))
    if number is None:
        raise config_lib.ConfigError(
            "--config.search.learning_rate needs an optimizer whose `learning_rate` is a number or "
            "a schedule with an `initial_learning_rate`. "
            f"Received: {config['optimizer']} for {name!r}"
        )
    factor = settings[arguments.RATE] / number
    return learning_rates.changed(config, lambda rate: learning_rates.scaled(rate, factor))


def _tried(settings: Mapping, trial: Cell, workdir: Path, measure: str) -> dict:
    """What came of a short run: the last value of its curve, None without one."""
    record = records.read(workdir / FOLDER / "runs" / f"{trial.id}.json")
    curve = record.get("curve") if record["status"] == "ok" else None
    value = curve[-1].get(f"valid_{measure}") if curve else None
    value = value if value is not None and math.isfinite(value) else None
    return {"settings": settings, "value": value, "status": record["status"], "cell": trial.id}

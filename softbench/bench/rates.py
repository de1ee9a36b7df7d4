"""A grid of learning rates: a short run with each, then the cells with the best. Needs no Keras.

The short runs are separate cells in the folder `rates` of the results, so they resume as all
others do. They have the first seed, and end with the validation set as their judge.
"""

import math
from collections.abc import Mapping
from pathlib import Path

from softbench.bench import config as config_lib
from softbench.bench import matrix, records
from softbench.bench.matrix import Cell

FOLDER = "rates"
_BUDGET = ("epochs", "steps_per_epoch")
_OTHERS = ("max_train_seconds", "budget", "steps")
_OF_THE_WHOLE = (*_BUDGET, *_OTHERS, "keep", "patience", "keep_by", "rates", "rate_budget")


def trials(cells: list[Cell]) -> list[Cell]:
    """Returns the short runs of cells whose config has `rates`, each once.

    Raises:
        ConfigError: for a cell whose rate cannot be set.
    """
    runs = (trial for cell in cells for trial in _trials(cell).values())
    return list({trial.id: trial for trial in runs}.values())


def _trials(cell: Cell) -> dict[float, Cell]:
    """{rate: its short run} of a cell."""
    whole = {k: v for k, v in cell.config.items() if k not in _OF_THE_WHOLE}
    budget = cell.config["rate_budget"]
    whole |= {key: budget[key] for key in _BUDGET}
    whole |= {"seed": budget["seed"], "timing": {**whole["timing"], "head_repetitions": 0}}
    made = {rate: _with_rate(whole, rate) for rate in cell.config["rates"]}
    return {
        rate: cell._replace(id=matrix.cell_id(config), config=config, price=None)
        for rate, config in made.items()
    }


def _with_rate(config: Mapping, rate: float) -> dict:
    """The config of a cell with another rate; the row optimizer of its head keeps the ratio."""
    ((name, method),) = config["methods"].items()
    base = {**config["optimizer"], **method.get("optimizer", {})}.get("learning_rate")
    is_schedule = isinstance(base, Mapping)
    number = base.get("config", {}).get("initial_learning_rate") if is_schedule else base
    if not isinstance(number, int | float):
        raise config_lib.ConfigError(
            "--config.rates needs an optimizer whose `learning_rate` is a number or a schedule "
            f"with an `initial_learning_rate`. Received: {config['optimizer']} for {name!r}"
        )
    new = rate
    if is_schedule:
        new = {**base, "config": {**base["config"], "initial_learning_rate": rate}}
    method = {**method, "optimizer": {**method.get("optimizer", {}), "learning_rate": new}}
    rows = method.get("kwargs", {}).get("row_optimizer") or {}
    if isinstance(rows.get("learning_rate"), int | float):
        rows = {**rows, "learning_rate": rows["learning_rate"] * rate / number}
        method["kwargs"] = {**method["kwargs"], "row_optimizer": rows}
    return {**config, "methods": {name: method}}


def chosen(cells: list[Cell], workdir: Path, measure: str) -> tuple[list[Cell], list[str]]:
    """Returns the cells with the best rates, and the names of methods of which none has a result.

    A cell's id has the chosen rate in it; its `grid`, which the record shows as `rates`, does not.

    Args:
        cells: whose config has `rates`.
        workdir: of the cells; that of their short runs is in it.
        measure: the curve's, as "perplexity".
    """
    best, failed = [], []
    for cell in cells:
        grid = [_tried(rate, trial, workdir, measure) for rate, trial in _trials(cell).items()]
        scored = [row for row in grid if row["value"] is not None]
        if not scored:
            failed += cell.config["methods"]
            continue
        pick = min if measure.startswith(config_lib.LOWER) else max
        rate = pick(scored, key=lambda row: row["value"])["rate"]
        config = _with_rate(cell.config, rate)
        grid = {"measure": measure, "chosen": rate, "grid": grid}
        best.append(cell._replace(id=matrix.cell_id(config), config=config, grid=grid))
    return best, list(dict.fromkeys(failed))


def _tried(rate: float, trial: Cell, workdir: Path, measure: str) -> dict:
    """What came of a short run: the last value of its curve, None without one."""
    record = records.read(workdir / FOLDER / "runs" / f"{trial.id}.json")
    curve = record.get("curve") if record["status"] == "ok" else None
    value = curve[-1].get(f"valid_{measure}") if curve else None
    value = value if value is not None and math.isfinite(value) else None
    return {"rate": rate, "value": value, "status": record["status"], "cell": trial.id}

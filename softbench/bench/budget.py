"""Budgets: the steps of each method that cost as much as so many of a reference. Needs no Keras.

`--config.budget=full:4000` is turned into `steps` by the records of `softbench.bench.price` before
any cell runs, so that a cell does the same on a busy machine, and again on the same one.
"""

import math
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from softbench.bench import config as config_lib
from softbench.bench import learning_rates, matrix, price
from softbench.bench.config import ConfigError
from softbench.bench.matrix import Cell


def budgeted(
    cells: list[Cell], config: Mapping, workdir: Path, command: Iterable[str]
) -> list[Cell]:
    """Returns the cells with the steps that their config's budget is for each method.

    A cell's config has them as `steps`, and its learning rates fall to their ends in them.

    Args:
        cells: of a checked config, which is returned as it is without a budget.
        config, workdir: of the cells.
        command: the command line, to say what measures a price.

    Raises:
        ConfigError: without the price of a method.
    """
    if not config["budget"]:
        return cells
    lacking, made = [], []
    for cell in cells:
        path = price.path_of(cell.config, config, workdir)
        record = price.read(path) or {"methods": {}}
        ((name, method),) = cell.config["methods"].items()
        row = record["methods"].get(name, {})
        if row.get("method") == method and len(row.get("rounds", ())) >= price.ROUNDS:
            paid = {key: row[key] for key in ("ratio", "low", "high", "step_ms", "before_seconds")}
            unit = record["methods"][config_lib.reference(config)[0]]["step_ms"]
            paid |= {"reference_ms": unit, "device": record["device"]}
            made.append(priced(cell, config, paid))
        else:
            why = f": {row['error']}" if "error" in row else ""
            lacking.append(f"{name} on {matrix.name(cell.config['dataset'])}{why}")
    if lacking:
        raise ConfigError(
            f"--config.budget needs prices; run {shlex.join([*command, '--price'])}. "
            f"Received: none of {', '.join(dict.fromkeys(lacking))}"
        )
    return made


def priced(cell: Cell, config: Mapping, paid: Mapping) -> Cell:
    """Returns a cell with the steps that its budget is worth.

    Args:
        cell, config: as `budgeted` takes them.
        paid: the price of its method: `ratio`, `before_seconds`, `reference_ms` and others.
    """
    reference, steps = config_lib.reference(config)
    before = paid["before_seconds"] * 1000 / paid["reference_ms"]
    total = max(1, math.floor((steps - before) / paid["ratio"]))
    changed = learning_rates.changed(cell.config, lambda rate: learning_rates.ending(rate, total))
    changed |= {"steps": total, "steps_per_epoch": 0}
    paid = {**paid, "reference": reference}
    return cell._replace(id=matrix.cell_id(changed), config=changed, price=paid)


def of_steps(price: Mapping, steps: int) -> dict[str, float]:
    """What so many steps of a budgeted cell cost: steps of the reference, and seconds of it."""
    unit = price["reference_ms"] / 1000
    count = steps * price["ratio"] + price["before_seconds"] / unit
    return {"reference_steps": round(count, 2), "price_seconds": round(count * unit, 3)}

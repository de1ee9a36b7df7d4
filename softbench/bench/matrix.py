"""The matrix: data set x model x method x seed, as a list of cells. Needs no Keras."""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import NamedTuple

from softbench.bench import config as config_lib

_LONGEST = 200  # bytes of an id: file systems hold names of 255, and drafts add to an id


class Cell(NamedTuple):
    """One run in one process.

    Attributes:
        id: Readable name and a hash of `config`: another configuration is another cell.
        config: Everything that decides the result, as plain data.
        timeout_s: Wall-clock limit; not in the id.
        data_dir: Where the data of the user are, instead of `--data_dir`; not in the id.
        search: What came of the settings that the cell's were chosen among; not in the id.
        price: Of its method, by which the steps of its budget were counted; not in the id.
    """

    id: str
    config: dict
    timeout_s: float
    data_dir: str | None = None
    search: dict | None = None
    price: dict | None = None


def cells(config: Mapping) -> list[Cell]:
    """Returns the cells of a checked, plain config, in the order in which they run.

    A `train` problem gives a cell per method and seed. A problem of another task gives one per
    seed: its methods take turns inside one process, so that noise of the machine hits all equally.
    A problem without any of the chosen methods gives none.

    Raises:
        ConfigError: For a chosen method that no problem has, or a name that can be no file's.
    """
    table = config_lib.method_table(config)
    chosen = config_lib.method_names(config["methods"], table)
    result, used = [], set()
    for problem in config_lib.problems(config):
        allowed = config_lib.method_names(problem["methods"], table)
        if config["methods"] and problem["on_request"]:
            allowed += config_lib.method_names(problem["on_request"], table)
        names = [name for name in chosen if name in allowed]
        used.update(names)
        for seed in config["seeds"] if names else ():
            if problem["task"] != "train":
                result.append(_cell(config, problem, names, seed))
            else:
                result.extend(_cell(config, problem, [name], seed) for name in names)
    missing = [name for name in chosen if config["methods"] and name not in used]
    if missing:
        raise config_lib.ConfigError(
            "--config.methods must name methods of the chosen problems. "
            f"Received: {', '.join(missing)}"
        )
    return result


def _cell(config: Mapping, problem: Mapping, names: list[str], seed: int) -> Cell:
    methods = {name: config["method_table"][name] for name in names}
    cell = {k: value for k, value in problem.items() if k not in ("methods", "on_request")}
    cell |= {"backend": config["backend"], "experiment": config["experiment"], "seed": seed}
    cell |= {"methods": methods}
    if grid := config_lib.grid(config, next(iter(methods.values()))):
        budget = {**config["search_budget"], "seed": config["seeds"][0]}
        cell |= {"search": grid, "search_budget": budget}
    path = cell["dataset"].get("path") or None
    cell["dataset"] = {key: value for key, value in cell["dataset"].items() if key != "path"}
    identifier = cell_id(cell)
    if re.search(r"^\.|[/\x00-\x1f]", identifier) or len(identifier.encode()) > _LONGEST:
        raise config_lib.ConfigError(
            "Names of data sets, models and methods together must be the name of a file: without "
            f"/ or control characters, no dot at first, at most {_LONGEST} bytes. "
            f"Received: {identifier!r}"
        )
    return Cell(identifier, cell, float(config["cell_timeout_s"]), path)


def shard(cells: list[Cell], text: str | None) -> list[Cell]:
    """Returns the cells of `--shard`, all without it.

    Raises:
        ConfigError: unless it is i/k, the i-th and every k-th after it.
    """
    if text is None:
        return cells
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    first, step = map(int, match.groups()) if match else (0, 0)
    if not 1 <= first <= step:
        rule = "--shard must be i/k with whole numbers 1 <= i <= k"
        raise config_lib.ConfigError(f"{rule}. Received: {text!r}")
    return cells[first - 1 :: step]


def cell_id(config: Mapping) -> str:
    """Returns the id of a cell: readable names, and a hash of all that decides its result.

    Records are looked up by their ids, so nothing here may change: `tests/test_matrix.py` compares
    those of all committed records. (`options` are hashed as the `timing` that they once were.)

    Args:
        config: the cell's, as a record holds it.
    """
    hashed = dict(config)
    if "options" in hashed:
        hashed["timing"] = hashed.pop("options")
    digest = hashlib.sha256(json.dumps(hashed, sort_keys=True).encode()).hexdigest()[:8]
    methods = list(config["methods"])
    label = methods[0] if len(methods) == 1 else "steps"
    words = [name(config["dataset"]), name(config["model"]), label, f"s{config['seed']}"]
    return "-".join([*words, config["backend"], digest])


def name(spec: Mapping) -> str:
    """The name of a data set or a model in an id."""
    text = spec.get("label") or spec.get("name", "none").rsplit(":", 1)[-1]
    text = text.replace("/", "_")
    return f"{text}_{spec['preset']}" if "preset" in spec else text

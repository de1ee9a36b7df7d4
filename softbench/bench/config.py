"""Benchmark configurations: their default fields and their checks. Needs no Keras.

A config file defines `get_config()`, which returns `experiment(name, ...)` below: a
`ConfigDict` whose every value can be overridden by `--config.<key>=<value>`.
"""

import copy
import functools
import json
import operator
import re
from collections.abc import Iterable, Mapping

from ml_collections import ConfigDict

from softbench.bench import arguments
from softbench.bench.tasks import TASKS
from softbench.commands import ConfigError
from softbench.common import BACKENDS

_DEFAULTS = {
    "experiment": "",
    "title": "",
    # A key of `tasks.TASKS`. "train": a learning curve per method; of all others the methods take
    # turns in one process.
    "task": "train",
    # Comma-separated names from `method_table`; empty means all of them.
    "methods": "",
    "method_table": {},
    # {problem: {field: value}}: each problem overrides the fields below. Empty: one problem. Of the
    # chosen methods it runs those in its `methods` (empty: all), and, if methods were chosen by
    # name, those in its `on_request`.
    "problems": {},
    "dataset": {},
    "model": {},
    "optimizer": {},
    "seeds": (0,),
    # 0, with `max_train_seconds`: as many as there is time for.
    "epochs": 1,
    # 0 means whole passes over the data; more than one pass has goes on into the next.
    "steps_per_epoch": 0,
    # If not 0: training takes this many seconds, compilation included and evaluation left out. Its
    # `epochs` are equal shares of them; if that is 0, the curve has a point after every whole epoch
    # and one when the time is over.
    "max_train_seconds": 0.0,
    # "full:4000": every method trains for as many steps as 4,000 of `full` cost, by the record that
    # `softbench --price` writes. `epochs` are then equal shares of them, and `steps_per_epoch` is
    # not used. Rates that fall to their end in `decay_steps` do so in these steps.
    "budget": "",
    # The method in whose steps `--price` counts without a budget.
    "reference": "full",
    # "best": the weights of the best validation point are tested too, as the record's `best`.
    "keep": "last",
    # After so many points that are no better than one before them, training ends. 0: never.
    "patience": 0,
    # The measure that is meant by these two, as "perplexity" or "ndcg_at_10"; empty: the first of
    # the page's columns that is one.
    "keep_by": "",
    "timing": {"warmup_steps": 5, "head_repetitions": 30},
    # What a task that times nothing is to do; it has no `timing`.
    "options": {},
    "cell_timeout_s": 3600.0,
    # {"learning_rate": values, argument of the head: values}, or {"objective": {"ratio": values}}
    # of what is inside of one: each method is tried with every combination of those that its row
    # has, in a run of `search_budget` with the first seed, which never sees the test set; it then
    # runs with the one that is best on the validation set by `keep_by`. Row optimizers keep the
    # ratio of their rates to `learning_rate`. Without values: it is not.
    "search": {"learning_rate": ()},
    # `steps`, if not 0, are those of the whole run, and `epochs` equal shares of them.
    "search_budget": {"epochs": 1, "steps": 0},
    # Whether a run with settings so chosen trains on the validation set too, which then judges
    # nothing: its curve is the training loss alone. For data of users and items.
    "refit": False,
    # What `--launcher=ray` gives to each cell, and how often it begins again after its worker is
    # lost.
    "cluster": {"num_cpus": 1.0, "num_gpus": 0.0, "max_retries": 3},
    # {name: value} of environment variables that a cell's process starts with.
    "environment": {},
    # Modules that a cell imports first: they register samplers and heads with Keras.
    "imports": (),
    # Keras callbacks of training: "module:Class", or {"class_name": ..., "config": {...}}.
    "callbacks": (),
    "backend": "tensorflow",
    # The paper's numbers: {row: {column: number}} next to ours in the report.
    "paper": {},
    # {"method", "metric"}: the report adds the seconds until each method has reached the value of
    # `metric` (a key of the learning curve, larger is better) that `method` ends with.
    "reach": {},
    # What learning curves of the report are drawn against, "seconds" or "step": of steps where the
    # cells shared their machine, or where a slow row would squeeze all others.
    "curves_against": "seconds",
    # Columns of the report's main table, as dotted keys of a record.
    "columns": (),
    # Name of one of `presets`; empty: the fields as they are, which fit the machine at hand.
    "preset": "",
    # {preset: {field: value}}: the preset overrides the fields above. `smoke` runs the same code in
    # seconds on generated data; `paper` has the paper's sizes, and overrides nothing where the
    # config already has them or follows no paper; `accelerator` has sizes for one GPU of 80 GB.
    "presets": {},
}
PRESETS = ("smoke", "paper", "accelerator")
LOWER = ("nll", "perplexity", "ece")  # how measures begin of which less is better
# What a problem may override.
_PROBLEM_FIELDS = (
    "dataset",
    "model",
    "optimizer",
    "epochs",
    "steps_per_epoch",
    "timing",
    "options",
    "task",
)
_LIMITS = ("methods", "max_train_seconds", "keep", "patience", "keep_by")
_WHERE_USED = ("max_train_seconds", "budget", "refit", "environment", "imports", "callbacks")


def experiment(name: str, **fields: object) -> ConfigDict:
    """Returns the configuration of an experiment.

    Args:
        name: Experiment name; results go to `results/<name>` unless `--workdir` says otherwise.
        **fields: Values for the fields of `_DEFAULTS`; an unknown one is an error.

    Raises:
        ConfigError: For an unknown field, or a preset of another name.
    """
    _check_names("Unknown config key. Known:", fields, _DEFAULTS)
    _check_names("`presets` may have", fields.get("presets", {}), PRESETS)
    for preset in fields.get("presets", {}).values():
        _check_names("A preset may set", preset, _DEFAULTS)
    config = {**_DEFAULTS, **fields, "experiment": name}
    # ConfigDict sorts its keys; the report keeps the order in which the methods were written.
    return ConfigDict(config | {"method_order": tuple(config["method_table"])})


def _check_names(what: str, names: Iterable[str], allowed: Iterable[str]) -> None:
    unknown = sorted(set(names) - set(allowed))
    if unknown:
        raise ConfigError(f"{what} {', '.join(allowed) or 'none'}. Received: {unknown}")


def plain(value: object) -> object:
    """Returns a config value as a record holds it: plain dicts, lists and scalars."""
    value = value.to_dict() if isinstance(value, ConfigDict) else value
    return json.loads(json.dumps(value))


def method_names(methods: str, table: Mapping) -> list[str]:
    """Returns comma-separated names of methods, all of the table if there are none, as a list.

    Raises:
        ConfigError: For a name that the table does not have.
    """
    names = [name.strip() for name in methods.split(",") if name.strip()]
    unknown = [name for name in names if name not in table]
    if unknown:
        allowed = ", ".join(table)
        raise _wrong(f"--config.methods must name methods of this config: {allowed}", unknown)
    return names or list(table)


def method_table(config: Mapping) -> dict[str, dict]:
    """Returns the method table of a plain config, in the order in which it was written."""
    return {name: config["method_table"][name] for name in config["method_order"]}


def problems(config: Mapping) -> list[dict]:
    """Returns one dict per problem of a plain config: dataset, model, optimizer, epochs, ...

    Raises:
        ConfigError: For a problem with an unknown field or task, or what its task does not read.
    """
    base = {key: config[key] for key in _PROBLEM_FIELDS}
    # A cell's id is a hash of its fields: these are fields only where they are used.
    base |= {key: config[key] for key in _WHERE_USED if config[key]}
    table = config["problems"] or {"": {}}
    for name, override in table.items():
        allowed = (*_PROBLEM_FIELDS, *_LIMITS, "on_request")
        _check_names(f"config.problems.{name} may set", override, allowed)
    merged = [{**base, "methods": "", "on_request": "", **override} for override in table.values()]
    for problem in merged:
        _check_task(problem)
        _set_best(problem, config)
        # Fields only where they are used, as above.
        del problem["timing" if problem["options"] else "options"]
    return merged


def _set_best(problem: dict, config: Mapping) -> None:
    """Sets those of `keep`, `patience` and `keep_by` that are used, and no others."""
    names = ("keep", "patience")
    keep, patience = (problem.pop(name, config[name]) for name in names)
    measure = judge(config, problem.pop("keep_by", ""))
    if keep not in ("last", "best"):
        raise _wrong('--config.keep must be "last" or "best"', keep)
    if patience < 0:
        raise _wrong("--config.patience must be 0 or more", patience)
    if keep == "best" or patience:
        if config["refit"]:
            rule = '--config.refit must be False where --config.keep is "best", or with patience'
            raise _wrong(rule, True)
        used = {"keep": keep} if keep == "best" else {}
        problem |= used | ({"patience": patience} if patience else {}) | {"keep_by": measure}


def judge(config: Mapping, keep_by: str = "") -> str:
    """Returns the measure by which points and settings are compared.

    Args:
        config: a config.
        keep_by: of a problem, which comes first.
    """
    shown = (re.fullmatch(r"(?:valid|test)_(\w+)", name) for name in config["columns"])
    return keep_by or config["keep_by"] or next((name[1] for name in shown if name), "perplexity")


def _check_task(problem: Mapping) -> None:
    """Checks that a task exists, and that `timing` and `options` hold only what it reads."""
    task, timing = problem["task"], problem["timing"]
    if task not in TASKS:
        raise _wrong(f"--config.task must be one of: {', '.join(TASKS)}", task)
    timed = TASKS[task].timing
    if timed:
        what = f"config.options of task {task!r}, which has config.timing, may set"
        _check_names(what, problem["options"], ())
    if timing != _DEFAULTS["timing"]:
        what = f"config.timing of task {task!r} (config.options says what to measure) may set"
        _check_names(what, timing, timed)


def check(config: Mapping) -> None:
    """Checks what can be checked before any cell starts.

    Raises:
        ConfigError: Naming the key and what was received.
    """
    if config["backend"] not in BACKENDS:
        raise _wrong("--backend must be `tensorflow` or `jax`", config["backend"])
    if not config["seeds"] or not all(type(seed) is int for seed in config["seeds"]):
        raise _wrong('--config.seeds must hold integers, such as "(0,1,2)"', config["seeds"])
    if config["cell_timeout_s"] <= 0:
        raise _wrong("--config.cell_timeout_s must be positive", config["cell_timeout_s"])
    _check_names("config.cluster may set", config["cluster"], _DEFAULTS["cluster"])
    if any(value < 0 for value in config["cluster"].values()):
        raise _wrong("--config.cluster must hold numbers that are 0 or more", config["cluster"])
    if not all(isinstance(value, str) for value in config["environment"].values()):
        raise _wrong("--config.environment must hold strings", config["environment"])
    if config["curves_against"] not in ("seconds", "step"):
        rule = '--config.curves_against must be "seconds" or "step"'
        raise _wrong(rule, config["curves_against"])
    _check_search(config)
    _check_budget(config)
    method_names(config["methods"], method_table(config))
    for problem in problems(config):
        seconds, epochs = problem.get("max_train_seconds", 0), problem["epochs"]
        if seconds < 0:
            raise _wrong("--config.max_train_seconds must be 0 or more", seconds)
        if epochs < (0 if seconds else 1):
            rule = "must be 1 or more, or 0 with --config.max_train_seconds"
            raise _wrong(f"--config.epochs {rule}", epochs)


def grid(config: Mapping, method: Mapping | None = None) -> dict[str, list]:
    """Returns the settings that are tried and their values: {"objective.ratio": [1.1, 1.2]}.

    Args:
        config: a config.
        method: a row, of whose settings alone; None: of any method.
    """
    tried = {name: list(values) for name, values in arguments.named(config["search"]) if values}
    if method is None:
        return tried
    return {name: values for name, values in tried.items() if arguments.has(method, name)}


def _check_search(config: Mapping) -> None:
    for _, values in arguments.named(config["search"]):
        if not isinstance(values, list | tuple):
            raise _wrong("--config.search must have a tuple for each setting", config["search"])
    budget, tried, rows = config["search_budget"], grid(config), config["method_table"].values()
    for name in tried:
        if not any(arguments.has(method, name) for method in rows):
            raise _wrong("--config.search must name an argument that a method's row has", name)
    rates = tried.get(arguments.RATE, ())
    if not all(isinstance(rate, int | float) and rate > 0 for rate in rates):
        raise _wrong("--config.search.learning_rate must hold positive numbers", rates)
    _check_names("--config.search_budget may set", budget, _DEFAULTS["search_budget"])
    if budget["epochs"] < 1 or budget["steps"] < 0:
        raise _wrong("--config.search_budget must have one epoch or more", budget)
    others = [problem["task"] for problem in problems(config) if problem["task"] != "train"]
    for key, used in (("search", tried), ("refit", config["refit"])):
        if used and others:
            raise _wrong(f"--config.{key} is for the task 'train'", others[0])


def reference(config: Mapping) -> tuple[str, int]:
    """Returns the method in whose steps a config counts, and how many its `budget` has; 0 without.

    Raises:
        ConfigError: for a budget that is not name:steps, or a name that is no method's.
    """
    name, colon, steps = config["budget"].rpartition(":")
    if config["budget"] and not (colon and re.fullmatch(r"[1-9]\d*", steps)):
        raise _wrong("--config.budget must be method:steps, as in full:4000", config["budget"])
    name = name or config["reference"]
    if name not in config["method_table"]:
        key = "budget" if config["budget"] else "reference"
        names = ", ".join(config["method_order"])
        raise _wrong(f"--config.{key} must name a method of this config: {names}", config[key])
    return name, int(steps or 0)


def _check_budget(config: Mapping) -> None:
    if not config["budget"]:
        return
    reference(config)
    for problem in problems(config):
        if problem["task"] != "train":
            raise _wrong("--config.budget is for the task 'train'", problem["task"])
        if problem.get("max_train_seconds", 0):
            rule = "--config.budget must not have --config.max_train_seconds with it"
            raise _wrong(rule, problem["max_train_seconds"])
        rows = config["method_table"].values()
        for optimizer in (problem["optimizer"], *(row.get("optimizer", {}) for row in rows)):
            if optimizer.get("schedule"):
                rule = "--config.budget must not have a schedule that counts epochs with it"
                raise _wrong(rule, optimizer["schedule"])


def _wrong(rule: str, received: object) -> ConfigError:
    return ConfigError(f"{rule}. Received: {received!r}")


def with_preset(config: Mapping, overrides: Mapping[str, object]) -> dict:
    """Returns a plain config whose fields are replaced by those of its preset.

    Args:
        config: A plain config, overrides included.
        overrides: {dotted key: value} of the command line, which win over the preset and over what
            a problem sets for itself (but for its methods: those that it can run).

    Raises:
        ConfigError: For a preset that the config does not have, or a key that it does not have.
    """
    name, presets = config["preset"], config["presets"]
    if name and name not in presets:
        raise _wrong(
            f"--config.preset must be empty or one of: {', '.join(presets) or 'none'}", name
        )
    result = copy.deepcopy({**config, **presets.get(name, {})})
    for key, value in overrides.items():
        path = key.split(".")
        _assign(result, path, value, key, name)
        for problem in result["problems"].values():
            if path[0] in problem and path[0] != "methods":
                _assign(problem, path, value, key, name)
    return result


def _assign(config: dict, path: list[str], value: object, key: str, preset: str) -> None:
    try:
        functools.reduce(operator.getitem, path[:-1], config)[path[-1]] = plain(value)
    except (KeyError, TypeError):
        raise ConfigError(
            f"Unknown config key of preset {preset!r}. Received: --config.{key}"
        ) from None

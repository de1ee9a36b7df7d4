"""Benchmark configurations: their default fields and their checks. Needs no Keras.

A config file defines `get_config()`, which returns `experiment(name, ...)` below: a
`ConfigDict` whose every value can be overridden by `--config.<key>=<value>`.
"""

from collections.abc import Mapping

from ml_collections import ConfigDict

# Each is the name of a module of softbench.bench.
TASKS = (
    "train",
    "step_time",
    "wall_time",
    "gradient_bias",
    "kernel_mse",
    "signal_to_noise",
    "mutual_information",
    "tree_fit",
    "nce_simulation",
    "nce_efficiency",
)
# Those that read a data set of softbench.datasets.
TRAINING_TASKS = ("train", "gradient_bias")

_DEFAULTS = {
    "experiment": "",
    "title": "",
    # "train": a learning curve per method. All methods in turn: "step_time", the cost of a step;
    # "wall_time", that of a sampler's draw, loss and update; "gradient_bias", the proposals of a
    # trained head; "kernel_mse", the error of feature maps; "signal_to_noise", that of noise laws;
    # "mutual_information", bounds on it; "tree_fit", fits of adversarial trees; "nce_simulation"
    # and "nce_efficiency", the error of exact NCE estimates against the numbers of data points and
    # negatives.
    "task": "train",
    # Comma-separated names from `method_table`; empty means all of them.
    "methods": "",
    "method_table": {},
    # {problem: {field: value}}: each problem overrides the fields below. Empty: one problem. Of the
    # chosen methods it runs those in its own `methods` (empty: all), and, if methods were chosen by
    # name, those in its `on_request`.
    "problems": {},
    "dataset": {},
    "model": {},
    "optimizer": {},
    "seeds": (0,),
    # 0, with `max_train_seconds`: as many as there is time for.
    "epochs": 1,
    # 0 means whole epochs.
    "steps_per_epoch": 0,
    # If not 0: training takes this many seconds, compilation included and evaluation left out. Its
    # `epochs` are equal parts of them; if that is 0, the curve has a point after every whole epoch
    # and one when the time is over.
    "max_train_seconds": 0.0,
    "timing": {"warmup_steps": 5, "head_repetitions": 30},
    "cell_timeout_s": 3600.0,
    # {name: value} of environment variables that a cell's process starts with.
    "environment": {},
    "backend": "tensorflow",
    # The paper's numbers: {row: {column: number}} beside ours in the report.
    "paper": {},
    # {"method", "metric"}: the report adds the seconds until each method has reached the value of
    # `metric` (a key of the learning curve, larger is better) that `method` ends with.
    "reach": {},
    # Columns of the report's main table, as dotted keys of a record.
    "columns": (),
    # Name of one of `presets`; empty: the fields as they are, which fit the machine at hand.
    "preset": "",
    # {preset: {field: value}}: the preset overrides the fields above. `smoke` runs the same code in
    # seconds on generated data; `paper` has the paper's own sizes, and overrides nothing where the
    # config already has them or follows no paper.
    "presets": {},
}
PRESETS = ("smoke", "paper")
# What a problem may override, and what a preset may.
_PROBLEM_FIELDS = ("dataset", "model", "optimizer", "epochs", "steps_per_epoch", "timing", "task")
_LIMITS = ("methods", "max_train_seconds")
_PRESET_FIELDS = (*_PROBLEM_FIELDS, *_LIMITS, "problems", "seeds", "cell_timeout_s")

# For smoke runs.
SMALL_TIMING = {"warmup_steps": 1, "head_repetitions": 2}
_SIZES = {"num_classes": 300, "num_train": 2_000, "num_valid": 500, "num_test": 500}
SMALL_LANGUAGE = {"name": "synthetic_language", **_SIZES}
SMALL_LABELS = {"name": "synthetic_xmc", "num_features": 64, **_SIZES}
SMALL_TRIPLES = {"name": "synthetic_triples", **_SIZES}


class ConfigError(ValueError):
    """A user's mistake in a flag or a config: shown as one line, without a traceback."""


def experiment(name: str, **fields: object) -> ConfigDict:
    """Returns the configuration of an experiment.

    Args:
        name: Experiment name; results go to `results/<name>` unless `--workdir` says otherwise.
        **fields: Values for the fields of `_DEFAULTS`; an unknown one is an error.

    Raises:
        ConfigError: For an unknown field, or a preset of another name or with other fields.
    """
    unknown = sorted(set(fields) - set(_DEFAULTS))
    if unknown:
        raise ConfigError(f"Unknown config key. Known: {sorted(_DEFAULTS)}. Received: {unknown}")
    presets = fields.get("presets", {})
    for known, given in ((PRESETS, presets), *((_PRESET_FIELDS, p) for p in presets.values())):
        unknown = sorted(set(given) - set(known))
        if unknown:
            raise ConfigError(f"`presets` may have {', '.join(known)}. Received: {unknown}")
    config = {**_DEFAULTS, **fields, "experiment": name}
    # ConfigDict sorts its keys; the report keeps the order in which the methods were written.
    return ConfigDict(config | {"method_order": tuple(config["method_table"])})


def plain(value: object) -> object:
    """Returns a config value as plain dicts, lists and scalars."""
    if isinstance(value, ConfigDict):
        value = value.to_dict()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def method_names(methods: str | tuple | list, table: Mapping) -> list[str]:
    """Returns the chosen method names in the order asked for, checked against the table.

    Args:
        methods: Comma-separated names or a sequence of them; empty means all.
        table: The config's `method_table`.

    Raises:
        ConfigError: For a name that the table does not have.
    """
    if isinstance(methods, str):
        methods = [name.strip() for name in methods.split(",") if name.strip()]
    unknown = [name for name in methods if name not in table]
    if unknown:
        raise ConfigError(
            f"--config.methods must name methods of this config: {', '.join(table)}. "
            f"Received: {', '.join(unknown)}"
        )
    return list(methods) or list(table)


def method_table(config: Mapping) -> dict[str, dict]:
    """Returns the method table of a plain config, in the order in which it was written."""
    return {name: config["method_table"][name] for name in config["method_order"]}


def problems(config: Mapping) -> list[dict]:
    """Returns one dict per problem: dataset, model, optimizer, epochs, methods, ...

    Args:
        config: A plain config, see `plain`.

    Raises:
        ConfigError: For a problem with an unknown field.
    """
    base = {key: config[key] for key in _PROBLEM_FIELDS}
    # A cell's id is a hash of its fields: these are fields only where they are used.
    base |= {key: config[key] for key in ("max_train_seconds", "environment") if config[key]}
    table = config["problems"] or {"": {}}
    for name, override in table.items():
        known = (*_PROBLEM_FIELDS, *_LIMITS, "on_request")
        unknown = sorted(set(override) - set(known))
        if unknown:
            raise ConfigError(
                f"config.problems.{name} may set {', '.join(known)}. Received: {unknown}"
            )
    return [{**base, "methods": "", "on_request": "", **override} for override in table.values()]


def check(config: Mapping) -> None:
    """Checks what can be checked before any cell starts.

    Raises:
        ConfigError: Naming the key and what was received.
    """
    if config["backend"] not in ("tensorflow", "jax"):
        raise ConfigError(
            f"--backend must be `tensorflow` or `jax`. Received: {config['backend']!r}"
        )
    if not config["seeds"]:
        raise ConfigError(f"--config.seeds must hold one seed or more. Received: {config['seeds']}")
    if config["cell_timeout_s"] <= 0:
        raise ConfigError(
            f"--config.cell_timeout_s must be positive. Received: {config['cell_timeout_s']}"
        )
    wrong = {k: v for k, v in config["environment"].items() if not isinstance(v, str)}
    if wrong:
        raise ConfigError(f"--config.environment must hold strings. Received: {wrong}")
    method_names(config["methods"], method_table(config))
    for problem in problems(config):
        seconds = problem.get("max_train_seconds", 0)
        if seconds < 0:
            raise ConfigError(f"--config.max_train_seconds must be 0 or more. Received: {seconds}")
        if problem["epochs"] < (0 if seconds else 1):
            raise ConfigError(
                "--config.epochs must be 1 or more, or 0 with --config.max_train_seconds. "
                f"Received: {problem['epochs']}"
            )
        if problem["task"] not in TASKS:
            raise ConfigError(
                f"--config.task must be one of: {', '.join(TASKS)}. Received: {problem['task']!r}"
            )

"""The harness of the command `softbench`: its flags, and nothing else."""

import ast
import difflib
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from absl import flags
from ml_collections import config_flags

import softbench
from softbench import commands
from softbench.bench import budget, driver, launchers, matrix, own_data, suites
from softbench.bench import config as config_lib
from softbench.bench.config import ConfigError
from softbench.datasets import own_files

_USAGE = """softbench --config=quickstart [--config.methods=full,uniform]

Runs every cell of an experiment that has no result yet and prints the tables. The experiment is the
path of a config, or the bare name of one that softbench ships; --config= lists these.
`softbench submit FOLDER` packs what --suite has written into one file for others."""


# {name of a shipped config: that which reads user data}.
USER_CONFIGS = {"xmc": "own_xmc", "sequences": "interactions"}
# The same where the path is a pattern, "folder/*.parquet".
STREAMED = {"interactions": "interaction_shards", "xmc": "xmc_shards", "own_xmc": "xmc_shards"}
_CONFIG = "Name or path of the experiment: a Python file, which is run. Trust it as you do code."
_TEXTS = {
    "workdir": "Folder for the results; default results/<experiment>, of smoke runs "
    "smoke_results/<experiment>, of a suite suite_results/<suite>.",
    "data_dir": "Folder of the data sets; without it they are downloaded.",
    "backend": "tensorflow or jax; overrides the config.",
    "launcher": "local (the default: here, one cell after the other) or ray (on a cluster, side by "
    "side; config.cluster says what a cell needs).",
    "suite": "Instead of --config: the runs of a suite, one after the other; other flags are given "
    f"to each. One of: {', '.join(suites.SUITES)}.",
    "shard": "i/k: the i-th, counted from 1, and every k-th cell after it, and no others.",
}


def _define(argv: list[str]) -> flags.FlagValues:
    values = flags.FlagValues()
    config_flags.DEFINE_config_file("config", None, _CONFIG, flag_values=values, sys_argv=argv)
    for name, text in _TEXTS.items():
        flags.DEFINE_string(name, None, text, flag_values=values)
    text = "Between two checkpoints within an epoch."
    flags.DEFINE_float("checkpoint_minutes", 10.0, text, 0.0, flag_values=values)
    text = "Ends after so many minutes; the same command goes on. 0: when all cells have run."
    flags.DEFINE_float("minutes", 0.0, text, 0.0, flag_values=values)
    flags.DEFINE_bool("retry_failed", False, "Runs failed cells again.", flag_values=values)
    text = "Measures what a step of each method costs in steps of config.reference; runs no cell."
    flags.DEFINE_bool("price", False, text, flag_values=values)
    flags.DEFINE_bool(
        "list", False, "Prints the cells and their status, and runs none.", flag_values=values
    )
    return values


def shipped() -> dict[str, Path]:
    """Returns {name: path} of the configs that softbench ships: in the wheel, or the checkout."""
    package = Path(softbench.__file__).parent
    folder = package / "configs"
    if not folder.is_dir():
        folder = package.parent / "configs"
    return {path.stem: path for path in sorted(folder.glob("*.py"))}


def first_line(path: Path) -> str:
    """Returns the first paragraph of a config's docstring, on one line."""
    words = (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n\n")[0]
    return " ".join(words.split()).removesuffix(".")


def resolved(argv: list[str]) -> list[str]:
    """The command line with values after equals signs, and the path of a config named barely.

    The flag of the config is `--config`, which may be written `-config`. With
    `--config.dataset.path`, the names in `USER_CONFIGS` mean the configs that read user data, and
    those in `STREAMED` the configs for a path that is a pattern of files.

    Raises:
        ConfigError: for a bare name that no shipped config has.
    """
    result, arguments = argv[:1], iter(argv[1:])
    prefixes = ("--config.dataset.path", "--config.dataset.name=tfds:")
    sources = [argument for argument in argv if argument.startswith(prefixes)]
    substitutes = (USER_CONFIGS if sources else {}) | (STREAMED if "*" in "".join(sources) else {})
    for argument in arguments:
        name, equals, value = argument.partition("=")
        flag = name.lstrip("-") if name.startswith("-") else ""
        if flag in ("config", "minutes", "checkpoint_minutes", *_TEXTS) and not equals:
            value = next(arguments, None)
            if value is None:
                result.append(argument)
                break
        if flag == "config":
            name, value = "--config", _config_path(substitutes.get(value, value))
        result.append(f"{name}={value}" if equals or value else name)
    return result


def _config_path(value: str) -> str:
    name, colon, choice = value.partition(":")
    if not re.fullmatch(r"[\w-]+", name) or Path(name).is_file():
        return value
    configs = shipped()
    if name not in configs:
        names = ", ".join(configs)
        raise ConfigError(f"--config must be a path or one of: {names}. Received: {name!r}")
    return f"{configs[name]}{colon}{choice}"


def parse(argv: list[str]) -> flags.FlagValues:
    """Returns the flags of a `resolved` command line; every mistake in them is a ConfigError."""
    configs = [argument for argument in argv if argument.startswith("--config=")]
    if len(configs) > 1:  # overrides would be checked with each
        raise ConfigError(f"--config must be given once. Received: {' '.join(configs)}")
    try:
        values = commands.parse(_define(argv), argv, _USAGE)
        if values.config is None:
            raise ConfigError("--config must name an experiment; --config= lists them.")
        values.config.experiment  # noqa: B018 - an unreadable file shows itself on first use
    except (AttributeError, KeyError) as error:
        raise ConfigError(_unknown_key(argv, str(error))) from None
    except OSError:
        path = config_flags.get_config_filename(values["config"])
        raise ConfigError(f"--config must name a readable file. Received: {path}") from None
    return values


def _unknown_key(argv: list[str], error: str) -> str:
    """What to say of a key that a config does not have, or of the nearest that it has."""
    words = re.findall(r"\w+", error)
    keys = [a.partition("=")[0] for a in argv if a.startswith("--config.")]
    wrong = next((key for key in keys if set(key.split(".")[1:]) & set(words)), None)
    if wrong is None:
        return f"--config: the file cannot be used. Received: {' '.join(error.split())}"
    if wrong == own_data.KEY:
        return f"{wrong} is for --config= with one of: {own_files.KNOWN}. Received: {wrong}"
    path = wrong.split(".")[1:]
    plain = flags.FlagValues()
    only = [*argv[:1], *(a for a in argv if a.startswith("--config="))]
    config_flags.DEFINE_config_file("config", None, flag_values=plain, sys_argv=only)
    plain(only)
    node = config_lib.plain(plain.config)
    for key in path[:-1]:
        node = node.get(key, {}) if isinstance(node, dict) else {}
    fields = sorted(node) if isinstance(node, dict) else []
    where = ".".join(["--config", *path[:-1]])
    near = difflib.get_close_matches(path[-1], fields, 1)
    if near:
        return f"Unknown config key; did you mean {where}.{near[0]}? Received: {wrong}"
    return f"Unknown config key. {where} has: {', '.join(fields) or 'none'}. Received: {wrong}"


def read_config(values: flags.FlagValues) -> dict:
    """Returns the plain config of parsed flags, its preset and overrides applied."""
    overrides = config_flags.get_override_values(values["config"])
    config = config_lib.with_preset(config_lib.plain(values.config), overrides)
    if config["budget"] and any(key.endswith("steps_per_epoch") for key in overrides):
        raise ConfigError("--config.budget must not have --config.steps_per_epoch with it.")
    return config | {"backend": values.backend or config["backend"]}


def configured(argv: list[str]) -> dict:
    """Returns the plain, checked config of a command line."""
    return _checked(parse(resolved(argv)))


def _checked(values: flags.FlagValues) -> dict:
    config = own_data.named(read_config(values))
    config_lib.check(config)
    return config


def default_workdir(config: Mapping) -> Path:
    """Returns where results go without `--workdir`; those of smoke runs are not kept."""
    smoke, accelerator = config["preset"] == "smoke", config["preset"] == "accelerator"
    name = config["experiment"] + "_accelerator" * accelerator
    return Path("smoke_results" if smoke else "results") / name


def main(argv: list[str], show: Callable[[Path], None]) -> int:
    """Runs the command line `argv`; returns the exit status.

    Args:
        argv: the program's name and its flags.
        show: called with the folder of the results at the end.
    """
    argv = resolved(argv)
    if "--config=" in argv:
        print("\n".join(f"{name}: {first_line(path)}" for name, path in shipped().items()))
        return 0
    if any(argument.startswith("--suite=") for argument in argv):
        return suites.run(argv, lambda line: main(line, lambda folder: None), configured, show)
    values = parse(argv)
    config = _checked(values)
    launcher = launchers.get(values.launcher or "local", config["cluster"], values.minutes)
    workdir = Path(values.workdir or default_workdir(config))
    run = driver.Run(values, config, launcher, workdir, _data_dir(values.data_dir), _command(argv))
    cells = matrix.cells(config)
    if values.price:
        return run.price(cells)
    cells = budget.budgeted(cells, config, workdir, ["softbench", *argv[1:]])
    if config_lib.grid(config):
        return run.search(cells, show)
    cells = matrix.shard(cells, values.shard)
    if values.list:
        return driver.shown(cells, workdir)
    return run.cells(cells, workdir, show)


def _data_dir(value: str | None) -> str | None:
    """The folder of `--data_dir`, from the root."""
    if value is not None and not Path(value).is_dir():
        raise ConfigError(f"--data_dir must be an existing folder. Received: {value}")
    return str(Path(value).resolve()) if value else None


def _command(argv: list[str]) -> str:
    """Returns a `resolved` command line without what names a path on this machine."""
    hidden = ("workdir", "data_dir", "shard", "retry_failed", "noretry_failed")
    hidden += ("checkpoint_minutes", "launcher", "minutes")
    kept = []
    for argument in argv[1:]:
        name, _, value = argument.lstrip("-").partition("=")
        if name == "config":
            value = "/".join(Path(value).parts[-2:])
        if name == "config.dataset.path":
            value = Path(value).name
        if name not in hidden and not name.startswith("config.cluster."):
            kept.append(f"--{name}={value}" if value else f"--{name}")
    return " ".join(["softbench", *kept])

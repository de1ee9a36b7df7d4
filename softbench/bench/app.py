"""The command `softbench`: flags, and nothing else."""

import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from absl import flags
from ml_collections import config_flags

from softbench import datasets
from softbench.bench import config as config_lib
from softbench.bench import matrix, presets, records, report, runner
from softbench.bench.config import ConfigError

_USAGE = """softbench --config=configs/quickstart.py [--config.methods=full,uniform]

Runs every cell of an experiment that has no result yet and prints the table."""


def _define(argv: list[str]) -> flags.FlagValues:
    values = flags.FlagValues()
    config_flags.DEFINE_config_file(
        "config", None, "Path of the experiment.", flag_values=values, sys_argv=argv
    )
    options = {
        "workdir": "Folder for the results; default results/<experiment>, of smoke runs "
        "smoke_results/<experiment>.",
        "data_dir": "Folder of the data sets; without it they are downloaded.",
        "backend": "tensorflow or jax; overrides the config.",
    }
    for name, text in options.items():
        flags.DEFINE_string(name, None, text, flag_values=values)
    flags.DEFINE_bool("retry_failed", False, "Runs failed cells again.", flag_values=values)
    flags.DEFINE_bool("list", False, "Prints the cells and runs none.", flag_values=values)
    flags.DEFINE_bool("help", False, "Shows this help.", short_name="h", flag_values=values)
    return values


def parse(argv: list[str]) -> flags.FlagValues:
    """Returns the parsed flags; every mistake in them is a ConfigError."""
    values = _define(argv)
    try:
        rest = values(argv)
        if values.help:
            print(f"{_USAGE}\n\n{values.main_module_help()}{values.get_help()}")
            raise SystemExit(0)
        if len(rest) > 1:
            raise ConfigError(f"Only flags are expected. Received: {rest[1:]}")
        if values.config is None:
            raise ConfigError("--config must name a config file. Received: none")
        values.config.experiment  # noqa: B018 - an unreadable file shows itself on first use
    except (AttributeError, KeyError) as error:
        name = str(error).strip("\"'")
        raise ConfigError(f"Unknown config key. Received: --config...{name}") from None
    except FileNotFoundError as error:
        raise ConfigError(f"--config must name a file. Received: {error.filename}") from None
    except OSError:
        path = next((a for a in argv if a.startswith("--config=")), "--config=")
        raise ConfigError(f"--config must name a readable file. Received: {path[9:]}") from None
    except flags.Error as error:
        raise ConfigError(str(error)) from None
    return values


def read_config(values: flags.FlagValues) -> dict:
    """Returns the plain config of parsed flags, its preset and overrides applied."""
    overrides = config_flags.get_override_values(values["config"])
    config = presets.with_preset(config_lib.plain(values.config), overrides)
    return config | {"backend": values.backend or config["backend"]}


def default_workdir(config: Mapping) -> Path:
    """Returns where results go without `--workdir`; those of smoke runs are not kept."""
    smoke = config["preset"] == "smoke"
    return Path("smoke_results" if smoke else "results") / config["experiment"]


def main(argv: list[str]) -> int:
    """Runs the command line `argv`; returns the exit code."""
    values = parse(argv)
    config = read_config(values)
    config_lib.check(config)
    cells = matrix.cells(config)
    if values.list:
        print("\n".join(cell.id for cell in cells))
        return 0
    if values.data_dir is not None and not Path(values.data_dir).is_dir():
        raise ConfigError(f"--data_dir must be an existing folder. Received: {values.data_dir}")
    data_dir = str(Path(values.data_dir).resolve()) if values.data_dir else None
    workdir = Path(values.workdir or default_workdir(config))
    pending = [
        cell
        for cell in cells
        if records.status(workdir / "runs" / f"{cell.id}.json")
        in (None, *(records.STATUSES[1:] if values.retry_failed else ()))
    ]
    _check_data(pending, data_dir)
    runner.prepare(workdir)
    report.write_plan(workdir, config)
    command = _command(argv)
    statuses = runner.run_cells(cells, workdir, data_dir, command, values.retry_failed)
    print("\n" + report.summary(workdir))
    return 0 if all(status == "ok" for status in statuses) else 1


def _check_data(cells: list[matrix.Cell], data_dir: str | None) -> None:
    """Raises a ConfigError unless the data of every cell that trains can be found."""
    for cell in cells:
        if cell.config["task"] not in config_lib.TRAINING_TASKS:
            continue
        options = {key: value for key, value in cell.config["dataset"].items() if key != "label"}
        try:
            datasets.check(**options, data_dir=data_dir)
        except (ValueError, OSError) as error:
            raise ConfigError(f"--data_dir, config.dataset: {error}") from None


def _command(argv: list[str]) -> str:
    """Returns the command line without what names a place on this machine."""
    hidden = ("workdir", "data_dir", "retry_failed", "noretry_failed")
    kept, arguments = [], iter(argv[1:])
    for argument in arguments:
        name, equals, value = argument.lstrip("-").partition("=")
        if not equals and name in ("config", "workdir", "data_dir", "backend"):
            value = next(arguments, "")
        if name == "config":
            value = "/".join(Path(value).parts[-2:])
        if name not in hidden:
            kept.append(f"--{name}={value}" if value else f"--{name}")
    return " ".join(["softbench", *kept])


def run() -> None:
    """Entry point of the console script."""
    # So that `kill` takes the same way out as Ctrl-C: the running cell ends, nothing is lost.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        sys.exit(main(sys.argv))
    except ConfigError as error:
        print(f"softbench: error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("softbench: stopped; run the same command to resume", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    run()

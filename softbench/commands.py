"""What the commands share: absl flags, and mistakes that are one line. Needs no Keras."""

import os
import re
import signal
import sys
from collections.abc import Callable

from absl import app, flags

import softbench


class ConfigError(ValueError):
    """A user's mistake in a flag or a config: shown as one line, without a traceback."""


def with_flags(message: object, prefix: str) -> str:
    """An error of a library call as that of a command: `name=value` is a flag with a prefix.

    Args:
        message: which names options in backticks, as `columns=user,item`.
        prefix: such as "--option=".
    """
    return re.sub(r"`(\w+=)", rf"`{prefix}\1", str(message))


def divided(argv: list[str]) -> tuple[list[str], list[str]]:
    """Returns a command line with its flags alone, and the arguments that are no flags."""
    names = [argument for argument in argv[1:] if not argument.startswith("-")]
    return [argv[0], *(argument for argument in argv[1:] if argument.startswith("-"))], names


def parse(values: flags.FlagValues, argv: list[str], usage: str) -> flags.FlagValues:
    """Returns the flags with the values of a command line; `--help` prints them and ends.

    Args:
        values: the command's flags, defined.
        argv: the command line, the program's name first.
        usage: the text above the flags in the help.

    Raises:
        ConfigError: for an unknown flag, a missing or wrong value, or an argument that is no flag.
    """
    flags.DEFINE_bool("help", False, "Shows this help.", short_name="h", flag_values=values)
    flags.DEFINE_bool("version", False, "Shows the version.", flag_values=values)
    try:
        rest = values(argv)
    except flags.Error as error:
        # The error of a config file is the last line of a traceback in the text.
        line = str(error).strip().splitlines()[-1]
        raise ConfigError(line.removeprefix(f"{__name__}.ConfigError: ")) from None
    if values.help:
        print(f"{usage}\n{values.get_help()}")
        raise SystemExit(0)
    if values.version:
        print(f"softbench {softbench.__version__}")
        raise SystemExit(0)
    if len(rest) > 1:
        raise ConfigError(f"Only flags are expected. Received: {rest[1:]}")
    return values


def run(name: str, main: Callable[[list[str]], int], stopped: str) -> None:
    """Runs a command under `absl.app`: the entry point of its console script.

    Args:
        name: of the command.
        main: command line -> exit status. A ConfigError or OSError that it raises is a mistake of
            the user's: one line (or a line for each of several), exit status 2.
        stopped: what Ctrl-C and `kill` print, with exit status 130.
    """

    def parsed(argv: list[str]) -> list[str]:
        flags.FLAGS(argv[:1])  # each command defines its flags
        return argv

    def guarded(argv: list[str]) -> int:
        # So that `kill` takes the same way out as Ctrl-C.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            status = main(argv)
            sys.stdout.flush()
            return status
        except (ConfigError, OSError) as error:
            if isinstance(error, BrokenPipeError):
                error = f"standard output was closed; {stopped}"
            for line in str(error).splitlines() or [""]:
                print(f"{name}: error: {line}", file=sys.stderr)
            _give_up_output()
            return 2
        except KeyboardInterrupt:
            print(f"{name}: stopped; {stopped}", file=sys.stderr)
            return 130

    app.run(guarded, flags_parser=parsed)


def _give_up_output() -> None:
    """Drops output that cannot be written: Python would try again at its end, and complain."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

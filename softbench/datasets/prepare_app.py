"""The command `softbench-prepare`: a data set's files to a folder of memory-mapped arrays."""

import ast
import contextlib
import json

from absl import flags

from softbench import commands
from softbench.commands import ConfigError
from softbench.datasets import catalog, prepared

_USAGE = """softbench-prepare --dataset=xmc/delicious --data_dir=FILES --out=ROOT

--option sets an argument of the reader, such as --option=valid_fraction=0.05 or
--option=columns=customer,product,when; see the functions write_histories, write_triples,
write_xmc and write_corpus of softbench.datasets. The data sets and where their files come from:

"""
_REQUIRED = {
    "dataset": "Name, such as xmc/delicious.",
    "data_dir": "Folder that holds the files.",
    "out": "Root folder; the set goes to <out>/<name>.",
}


def _define() -> flags.FlagValues:
    values = flags.FlagValues()
    for name, text in _REQUIRED.items():
        flags.DEFINE_string(name, None, text, flag_values=values)
    flags.DEFINE_multi_string("option", [], "NAME=VALUE, of the reader.", flag_values=values)
    return values


def _options(texts: list[str]) -> dict:
    options = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"--option must be NAME=VALUE. Received: {text!r}")
        options[name] = value
        with contextlib.suppress(ValueError, SyntaxError):
            if not isinstance(parsed := ast.literal_eval(value), tuple):  # columns=0,1,2 is a text
                options[name] = parsed
    return options


def main(argv: list[str]) -> int:
    """Runs the command line; returns the exit status."""
    sources = "\n".join(f"  {name}: {entry.about}" for name, entry in catalog.ENTRIES.items())
    values = commands.parse(_define(), argv, _USAGE + sources)
    for name in _REQUIRED:
        if values[name].value is None:
            raise ConfigError(f"--{name} must be given. Received: none")
    options = _options(values.option)
    try:
        manifest = prepared.prepare(values.dataset, values.data_dir, values.out, **options)
    except (ValueError, ImportError) as error:
        raise ConfigError(commands.with_flags(error, "--option=")) from None
    print("\n".join(prepared.summary(manifest)))
    print(f"{values.dataset}: {json.dumps(manifest['facts'])}")
    return 0


def run() -> None:
    """Entry point of the console script."""
    commands.run("softbench-prepare", main, "nothing was written")


if __name__ == "__main__":
    run()

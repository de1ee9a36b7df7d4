"""The command `softbench-prepare`: a data set's files to a folder of memory-mapped arrays."""

import argparse
import ast
import json
import signal
import sys

from softbench.datasets import catalog, prepared

_EPILOG = """--option sets an argument of the reader, such as --option=valid_fraction=0.05 or
--option=first_id=1; see the functions write_xmc, write_corpus and write_triples of
softbench.datasets. The data sets and where their files come from:
"""


def _parser() -> argparse.ArgumentParser:
    places = "\n".join(f"  {name}: {entry.about}" for name, entry in catalog.ENTRIES.items())
    parser = argparse.ArgumentParser(
        "softbench-prepare",
        description=__doc__,
        epilog=f"{_EPILOG}\n{places}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--dataset", required=True, help="name, such as xmc/delicious")
    parser.add_argument("--data_dir", required=True, help="folder that holds the files")
    parser.add_argument("--out", required=True, help="root folder; the set goes to <out>/<name>")
    parser.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="of the reader"
    )
    return parser


def _options(texts: list[str]) -> dict:
    options = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"--option must be NAME=VALUE. Received: {text!r}")
        try:
            options[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            options[name] = value
    return options


def main(argv: list[str]) -> int:
    """Runs the command line; returns the exit code."""
    arguments = _parser().parse_args(argv)
    options = _options(arguments.option)
    manifest = prepared.prepare(arguments.dataset, arguments.data_dir, arguments.out, **options)
    facts = {key: value for key, value in manifest["facts"].items() if key != "repairs"}
    print(f"{arguments.dataset}: {json.dumps(facts)}")
    for name, count in manifest["facts"]["repairs"].items():
        print(f"  {name}: {count}")
    return 0


def run() -> None:
    """Entry point of the console script."""
    # So that `kill` takes the way out that removes what is half-written.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        sys.exit(main(sys.argv[1:]))
    except (ValueError, OSError) as error:
        print(f"softbench-prepare: error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("softbench-prepare: stopped; nothing was written", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    run()

"""The command `softbench-report`: pages from records, the same for the same records."""

import sys
from collections.abc import Mapping
from pathlib import Path

from absl import flags

from softbench import commands
from softbench.commands import ConfigError
from softbench.report import html
from softbench.report import plots as plots_lib

_USAGE = """softbench-report --results=results [--check | --html=report.html]

Writes the pages, tables and plots of an experiment's folder, or of a folder of many: then with a
front page."""


def _stale(results: Path, texts: Mapping[str, str], plots: Mapping[str, tuple]) -> list[str]:
    """Returns the files that do not follow from the records."""
    return [
        *(name for name, text in texts.items() if not _is_written(results / name, text)),
        *(
            f"{name}.{kind}"
            for name, plot in plots.items()
            for kind in plots_lib.FORMATS
            if not _is_drawn(results / f"{name}.{kind}", *plot)
        ),
    ]


def _is_written(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text() == text


def _is_drawn(path: Path, caption: str, data: Mapping) -> bool:
    """Whether a plot was drawn from this data; its bytes depend on Matplotlib's version too."""
    digest = plots_lib.digest(caption, data).encode()
    return path.is_file() and digest in path.read_bytes()


def _left_over(results: Path, texts: Mapping[str, str], plots: Mapping[str, tuple]) -> list[str]:
    """Returns tables and plots beside the pages that are none of theirs (any more)."""
    known = {*texts, *(f"{name}.{kind}" for name in plots for kind in plots_lib.FORMATS)}
    endings = (".csv", *(f".{kind}" for kind in plots_lib.FORMATS))
    folders = sorted({results / Path(name).parent for name in texts})
    found = [path for folder in folders for path in sorted(folder.iterdir())]
    names = [path.relative_to(results).as_posix() for path in found if path.suffix in endings]
    return [name for name in names if name not in known]


def _write(results: Path, texts: Mapping[str, str], plots: Mapping[str, tuple]) -> None:
    for name, plot in plots.items():
        paths = {kind: results / f"{name}.{kind}" for kind in plots_lib.FORMATS}
        if not all(_is_drawn(path, *plot) for path in paths.values()):
            for kind, content in plots_lib.pictures(*plot).items():
                paths[kind].write_bytes(content)
    for name, text in texts.items():
        (results / name).write_text(text)
    print(f"Wrote {len(texts)} files of text and {len(plots)} plots to {results}")


def _define() -> flags.FlagValues:
    values = flags.FlagValues()
    flags.DEFINE_string("results", None, "Folder of an experiment, or of many.", flag_values=values)
    flags.DEFINE_bool("check", False, "Exits 1 if a file is out of date.", flag_values=values)
    flags.DEFINE_string(
        "html", None, "Writes the report to this one file, and nothing else.", flag_values=values
    )
    return values


def main(argv: list[str]) -> int:
    """Writes the report of `--results`, or checks it with `--check`; returns the exit status."""
    options = commands.parse(_define(), argv, _USAGE)
    if options.results is None:
        raise ConfigError("--results must name a folder. Received: none")
    if options.check and options.html:
        raise ConfigError("--check and --html exclude each other.")
    try:
        from softbench.report import front as front_page
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"the report needs {error.name}: install the `report` extra, "
            "pip install 'softbench[report]'"
        ) from None
    results = Path(options.results)
    pages, front = front_page.read_all(results)
    texts, plots = front_page.contents(results, pages, front)
    if options.html:
        schema = results / "RECORDS.md"
        texts |= {schema.name: schema.read_text()} if front and schema.is_file() else {}
        Path(options.html).write_text(html.document(texts, plots))
        print(f"Wrote {options.html}")
        return 0
    if not options.check:
        _write(results, texts, plots)
        return 0
    problems = {
        "out of date": _stale(results, texts, plots),
        "no record accounts for": _left_over(results, texts, plots),
    }
    for problem, files in problems.items():
        if files:
            print(f"softbench-report: {problem}: {', '.join(files)}", file=sys.stderr)
    return 1 if any(problems.values()) else 0


def run() -> None:
    """Entry point of the console script."""
    commands.run("softbench-report", main, "run it again")


if __name__ == "__main__":
    run()

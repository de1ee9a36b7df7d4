"""The command `softbench-report`: pages from records, the same for the same records."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from absl import flags

from softbench import commands
from softbench.commands import ConfigError
from softbench.report import extra, html
from softbench.report import plots as plots_lib
from softbench.report.markdown import NOTES

_USAGE = """softbench-report --results=results [--check | --readme | --html=report.html]

Writes the pages, tables and plots of an experiment's folder, or of a folder of many: then with a
front page."""


def _files(texts: Mapping[str, str], plots: Mapping[str, tuple]) -> dict[str, str | tuple]:
    """{path: text or plot} of all files of a report."""
    kinds = plots_lib.FORMATS
    return {**texts} | {f"{name}.{kind}": plot for name, plot in plots.items() for kind in kinds}


def _is_current(path: Path, content: str | tuple) -> bool:
    """Whether a file is what it should be; the bytes of a plot depend on Matplotlib's version."""
    if not path.is_file():
        return False
    if isinstance(content, str):
        return path.read_text() == content
    return plots_lib.digest(*content).encode() in path.read_bytes()


def _left_over(results: Path, files: Mapping[str, str | tuple]) -> list[str]:
    """Returns tables and plots next to the pages that none of these shows (any more)."""
    endings = (".csv", *(f".{kind}" for kind in plots_lib.FORMATS))
    folders = sorted({(results / name).parent for name in files})
    paths = [path for folder in folders for path in sorted(folder.iterdir())]
    names = [path.relative_to(results).as_posix() for path in paths if path.suffix in endings]
    return [name for name in names if name not in files]


def _notes(
    results: Path, pages: list, front: bool, verdicts: Mapping[str, str]
) -> tuple[dict[str, str], list[str]]:
    """Fills the numbers of the notes; returns {path: text}, and those without a marker."""
    from softbench.report import numbers

    texts, unmarked = {}, []
    path = results / NOTES
    if front and path.is_file():
        texts[NOTES] = numbers.filled(path.read_text(), results, verdicts=verdicts)
        records = [record for page in pages for record in page.records]
        unknown = numbers.unmarked(texts[NOTES], records, {})
        unmarked += [f"{NOTES} ({', '.join(unknown)})"] if unknown else []
    for page in filter(lambda page: page.plan["notes"], pages):
        folder = results if front else results.resolve().parent
        page.plan["notes"] = numbers.filled(page.plan["notes"], folder, page.name)
        path = f"{page.name}/{NOTES}" if front else NOTES
        texts[path] = page.plan["notes"] + "\n"
        unknown = numbers.unmarked(page.plan["notes"], page.records, page.plan["paper"])
        unmarked += [f"{path} ({', '.join(unknown)})"] if unknown else []
    return texts, unmarked


def _damaged(results: Path, pages: list, front: bool) -> int:
    """Names the files among the records that are none; returns how many these are."""
    for page in pages:
        folder = (results / page.name if front else results) / "runs"
        for name, why in page.damaged.items():
            print(f"softbench-report: {folder / name} {why}; it is left out", file=sys.stderr)
    return sum(len(page.damaged) for page in pages)


def _write(results: Path, texts: Mapping[str, str], plots: Mapping[str, tuple]) -> None:
    for name, plot in plots.items():
        paths = {kind: results / f"{name}.{kind}" for kind in plots_lib.FORMATS}
        if not all(_is_current(path, plot) for path in paths.values()):
            for kind, content in plots_lib.pictures(*plot).items():
                paths[kind].write_bytes(content)
    for name, text in texts.items():
        (results / name).write_text(text)
    print(f"Wrote {len(texts)} files of text and {len(plots)} plots to {results}")


def _write_html(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise ConfigError(
            f"--html must be a file that can be written. Received: {path} ({error.strerror})"
        ) from None


def _define() -> flags.FlagValues:
    values = flags.FlagValues()
    flags.DEFINE_string("results", None, "Folder of an experiment, or of many.", flag_values=values)
    flags.DEFINE_bool("check", False, "Exits 1 if a file is out of date.", flag_values=values)
    flags.DEFINE_string(
        "html", None, "Writes the report to this one file, and nothing else.", flag_values=values
    )
    flags.DEFINE_bool(
        "readme", False, "Writes the numbers of the README.md next to it too.", flag_values=values
    )
    return values


def main(argv: list[str]) -> int:
    """Writes the report of `--results`, or checks it with `--check`; returns the exit status."""
    options = commands.parse(_define(), argv, _USAGE)
    if options.results is None:
        raise ConfigError("--results must name a folder. Received: none")
    if options.check and options.html:
        raise ConfigError("--check and --html exclude each other.")
    with extra("the report"):
        from softbench.report import evidence, numbers
        from softbench.report import front as front_page
    results = Path(options.results)
    pages, front = front_page.read_all(results)
    damaged = _damaged(results, pages, front)
    decided = front_page.verdicts(pages) if front else {}
    verdicts = {name: str(verdict) for name, verdict in decided.items()}
    notes, unmarked = _notes(results, pages, front, verdicts)
    texts, plots = front_page.contents(results, pages, front, notes.get(NOTES, ""), decided)
    readme = results.resolve().parent / "README.md"
    if front and readme.is_file():
        text = numbers.filled(readme.read_text(), results, verdicts=verdicts)
        texts |= {"../README.md": text} if options.readme or options.check else {}
    summary = evidence.checkout_path(results) if front and not options.html else None
    if summary:
        texts |= {f"../{evidence.PATH}": evidence.text(pages)}
    if options.html:
        schema = results / "RECORDS.md"
        texts |= {schema.name: schema.read_text()} if front and schema.is_file() else {}
        target = Path(options.html)
        relative = os.path.relpath(results, target.parent)
        _write_html(target, html.document(texts, plots, Path(relative).as_posix()))
        print(f"Wrote {options.html}")
        return 0
    texts |= notes
    if not options.check:
        _write(results, texts, plots)
        return 0
    files = _files(texts, plots)
    problems = {
        "out of date": [n for n, file in files.items() if not _is_current(results / n, file)],
        "no record accounts for": _left_over(results, files),
        "neither a marker nor a config accounts for numbers in": unmarked,
    }
    for problem, names in problems.items():
        if names:
            print(f"softbench-report: {problem}: {', '.join(names)}", file=sys.stderr)
    return 1 if damaged or any(problems.values()) else 0


def run() -> None:
    """Entry point of the console script."""
    commands.run("softbench-report", main, "run it again")


if __name__ == "__main__":
    run()

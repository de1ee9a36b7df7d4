"""The command `softbench-report`: pages from records, the same for the same records."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from absl import flags

from softbench import commands
from softbench.commands import ConfigError
from softbench.report import extra

_USAGE = """softbench-report --results=results [--check | --undecided | --html=report.html]
softbench-report --merge FILE FILE ...

Writes the page, rows and picture of an experiment's folder, or of a folder of many: then with a
front page, the claims of the papers, what is decided, and the numbers of README.md and
docs/choosing.md next to it. With --merge, prints the table of what `softbench submit` has packed
on several machines."""
_MADE = (".csv", ".svg")  # endings of files that only a report writes
_BY_HAND = ("README.md", "docs/choosing.md")  # with markers, next to the folder of results


class Report(NamedTuple):
    """What the records of a folder give.

    Attributes:
        texts: {path from the folder: content}.
        pictures: {path from the folder: (caption, data)}.
        unaccounted: numbers of prose that neither a function nor a config accounts for.
    """

    texts: dict[str, str]
    pictures: dict[str, tuple[str, dict]]
    unaccounted: list[str]


def _report(results: Path, frames: Mapping, front: bool) -> Report:
    from softbench.report import checks, claims, decisions, pages, tables

    decided = claims.verdicts(frames)
    made = Report({}, {}, [])

    def add(name: str, folder: Path, prefix: str, default: str, target: str = "README.md") -> None:
        page = pages.Page(frames, name, decided)
        made.texts[prefix + target] = pages.render(page, folder, default)
        made.pictures.update({prefix + path: page.pictures[path] for path in page.pictures})
        template = folder / pages.TEMPLATE if folder else None
        if template and template.is_file():
            own = [frames[name]] if name else frames.values()
            records = [record for frame in own for record in frame.records]
            paper = frames[name].plan["paper"] if name else {}
            unknown = checks.unaccounted(template.read_text(), records, paper)
            if unknown:
                made.unaccounted.append(f"{prefix}{pages.TEMPLATE} ({', '.join(unknown)})")

    for name, frame in frames.items():
        prefix = f"{name}/" if front else ""
        add(name, results / prefix, prefix, "page.md")
        made.texts[f"{prefix}rows.csv"] = tables.csv(frame.runs)
        if pages.has_curves(frame):
            made.texts[f"{prefix}curves.csv"] = tables.csv(frame.curves)
    if front:
        add("", results, "", "front.md")
        if decided:
            add("", None, "", "claims.md", "CLAIMS.md")
            made.texts["claims.csv"] = tables.csv(claims.table(decided))
        outside = results.resolve().parent
        if (outside / decisions.PATH).is_file():
            made.texts[f"../{decisions.PATH}"] = decisions.text(decisions.of(frames))
        for page in filter(lambda page: (outside / page).is_file(), _BY_HAND):
            made.texts[f"../{page}"] = pages.filled((outside / page).read_text(), frames)
    return made


def _is_current(path: Path, content: str | tuple) -> bool:
    """Whether a file is what it should be; a picture's bytes depend on Matplotlib's version."""
    from softbench.report import plots

    if not path.is_file():
        return False
    if isinstance(content, str):
        return path.read_text() == content
    return plots.digest(*content).encode() in path.read_bytes()


def _left_over(results: Path, files: Mapping[str, str | tuple]) -> list[str]:
    """Returns rows and pictures next to the pages that no page shows (any more)."""
    folders = sorted({(results / name).parent for name in files if not name.startswith("..")})
    paths = [path for folder in folders for path in sorted(folder.iterdir())]
    names = [path.relative_to(results).as_posix() for path in paths if path.suffix in _MADE]
    return [name for name in names if name not in files]


def _damaged(results: Path, frames: Mapping, front: bool) -> int:
    """Names the files among the records that are none; returns how many these are."""
    for frame in frames.values():
        folder = (results / frame.name if front else results) / "runs"
        for name, why in frame.damaged.items():
            print(f"softbench-report: {folder / name} {why}; it is left out", file=sys.stderr)
    return sum(len(frame.damaged) for frame in frames.values())


def _write(results: Path, made: Report) -> None:
    from softbench.report import plots

    for name, picture in made.pictures.items():
        if not _is_current(results / name, picture):
            (results / name).write_bytes(plots.svg(*picture))
    for name, text in made.texts.items():
        if not _is_current(results / name, text):
            (results / name).write_text(text)
    print(f"Wrote {len(made.texts)} files of text and {len(made.pictures)} pictures to {results}")


def _check(results: Path, made: Report) -> int:
    from softbench.report import checks

    files = {**made.texts, **made.pictures}
    markdown = {
        name: text
        for name, text in made.texts.items()
        if name.endswith(".md") and not name.startswith("..")
    }
    problems = {
        "out of date": [n for n, file in files.items() if not _is_current(results / n, file)],
        "no record accounts for": _left_over(results, files),
        "neither a function nor a config accounts for numbers in": made.unaccounted,
        "too long": checks.too_long(markdown),
    }
    for problem, names in problems.items():
        if names:
            print(f"softbench-report: {problem}: {', '.join(names)}", file=sys.stderr)
    return int(any(problems.values()))


def _write_html(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise ConfigError(
            f"--html must be a file that can be written. Received: {path} ({error.strerror})"
        ) from None
    print(f"Wrote {path}")


def _define() -> flags.FlagValues:
    values = flags.FlagValues()
    flags.DEFINE_string("results", None, "Folder of an experiment, or of many.", flag_values=values)
    flags.DEFINE_bool("check", False, "Exits 1 if a file is out of date.", flag_values=values)
    text = "Prints the commands whose runs would decide the claims that are not."
    flags.DEFINE_bool("undecided", False, text, flag_values=values)
    text = "Writes a page that compares the methods to this one file, and nothing else."
    flags.DEFINE_string("html", None, text, flag_values=values)
    text = "Prints one table of files of `softbench submit`; needs no --results."
    flags.DEFINE_bool("merge", False, text, flag_values=values)
    return values


def main(argv: list[str]) -> int:
    """Writes the report of `--results`, or checks it with `--check`; returns the exit status."""
    if "--merge" in argv:
        return _merge(argv)
    options = commands.parse(_define(), argv, _USAGE)
    if options.results is None:
        raise ConfigError("--results must name a folder. Received: none")
    if options.check + options.undecided + bool(options.html) > 1:
        raise ConfigError("--check, --undecided and --html exclude each other.")
    with extra("the report"):
        from softbench.report import claims, explorer, pages
    results = Path(options.results)
    frames, front = pages.read_all(results)
    if options.undecided:
        print("\n".join(claims.undecided(claims.verdicts(frames), frames)))
        return 0
    damaged = _damaged(results, frames, front)
    if options.html:
        _write_html(Path(options.html), explorer.document(*explorer.runs_of(frames.values())))
        return 0
    made = _report(results, frames, front)
    if options.check:
        return max(_check(results, made), int(damaged > 0))
    _write(results, made)
    return 0


def _merge(argv: list[str]) -> int:
    """Prints the table of several machines; returns the exit status."""
    line, paths = commands.divided(argv)
    commands.parse(_define(), line, _USAGE)
    if len(line) > 2 or not paths:
        raise ConfigError(f"--merge takes files and no other flag. Received: {argv[1:]}")
    with extra("the report"):
        from softbench.report import merge
    print(merge.merged(map(Path, paths)))
    return 0


def run() -> None:
    """Entry point of the console script."""
    commands.run("softbench-report", main, "run it again")


if __name__ == "__main__":
    run()

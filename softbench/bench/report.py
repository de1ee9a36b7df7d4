"""The command `softbench-report`: pages from records, the same for the same records."""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from softbench.bench import records as records_lib
from softbench.bench import report_front, report_html, report_page, report_style
from softbench.bench.config import ConfigError
from softbench.bench.report_page import PLAN, Page


def write_plan(workdir: Path, config: Mapping) -> None:
    """Writes what a report needs beyond the records: title, columns, rows, paper's numbers."""
    plan = {key: config[key] for key in ("experiment", "title", "columns", "paper", "reach")}
    plan["methods"] = list(config["method_order"])
    records_lib.write_json(Path(workdir) / PLAN, plan)


def summary(workdir: Path) -> str:
    """Returns the tables of a results folder as text, for the end of a run."""
    return report_page.summary(report_page.read(Path(workdir)))


def read_all(results: Path) -> tuple[list[Page], bool]:
    """Returns the pages of a folder, and whether it holds experiments and is not one itself.

    Raises:
        ConfigError: when it is neither.
    """
    folders = sorted(path.parent for path in results.glob(f"*/{PLAN}"))
    if (results / PLAN).is_file() or not folders:
        return [report_page.read(results)], False
    return [report_page.read(folder) for folder in folders], True


def contents(
    results: Path, pages: list[Page], front: bool
) -> tuple[dict[str, str], dict[str, tuple[str, dict]]]:
    """Returns the text files and the plots of a report, by path from `results`.

    Args:
        results: the folder.
        pages: of its experiments.
        front: whether it has a front page.
    """
    texts, plots = {}, {}
    for page in pages:
        folder = f"{page.name}/" if front else ""
        texts |= {folder + name: text for name, text in report_page.texts(page).items()}
        plots |= {folder + name: plot for name, plot in report_page.plots(page).items()}
    if front:
        texts["README.md"] = report_front.text(results, pages)
        plots |= report_front.plots(pages)
    return texts, plots


def _stale(results: Path, texts: Mapping[str, str], plots: Mapping[str, tuple]) -> list[str]:
    """Returns the files that do not follow from the records."""
    stale = [
        name
        for name, text in texts.items()
        if not (results / name).is_file() or (results / name).read_text() != text
    ]
    for name, plot in plots.items():
        files = (f"{name}.{kind}" for kind in report_style.FORMATS)
        stale += [file for file in files if not _is_drawn(results / file, *plot)]
    return stale


def _left_over(results: Path, texts: Mapping[str, str], plots: Mapping[str, tuple]) -> list[str]:
    """Returns tables and plots beside the pages that are none of theirs (any more)."""
    known = {*texts, *(f"{name}.{kind}" for name in plots for kind in report_style.FORMATS)}
    kinds = (".csv", *(f".{kind}" for kind in report_style.FORMATS))
    folders = sorted({results / Path(name).parent for name in texts})
    found = [path for folder in folders for path in sorted(folder.iterdir())]
    names = [path.relative_to(results).as_posix() for path in found if path.suffix in kinds]
    return [name for name in names if name not in known]


def _is_drawn(path: Path, caption: str, data: Mapping) -> bool:
    """Whether a plot was drawn from this data; its bytes depend on Matplotlib's version too."""
    digest = report_style.digest(caption, data).encode()
    return path.is_file() and digest in path.read_bytes()


def _write(results: Path, texts: Mapping[str, str], plots: Mapping[str, tuple]) -> None:
    for name, plot in plots.items():
        paths = {kind: results / f"{name}.{kind}" for kind in report_style.FORMATS}
        if not all(_is_drawn(path, *plot) for path in paths.values()):
            for kind, content in report_style.pictures(*plot).items():
                paths[kind].write_bytes(content)
    for name, text in texts.items():
        (results / name).write_text(text)
    print(f"Wrote {len(texts)} files of text and {len(plots)} plots to {results}")


def main(argv: list[str]) -> int:
    """Writes the report of `--results`, or checks it with `--check`; returns the exit code."""
    parser = argparse.ArgumentParser("softbench-report", description=__doc__)
    help_text = "folder of an experiment, or of many: then with a front page"
    parser.add_argument("--results", required=True, type=Path, help=help_text)
    parser.add_argument("--check", action="store_true", help="exit 1 if a file is out of date")
    help_text = "write the report to this one HTML file, and nothing else"
    parser.add_argument("--html", type=Path, metavar="FILE", help=help_text)
    options = parser.parse_args(argv)
    if options.check and options.html:
        parser.error("--check and --html exclude each other")
    pages, front = read_all(options.results)
    texts, plots = contents(options.results, pages, front)
    if options.html:
        schema = options.results / "RECORDS.md"
        texts |= {schema.name: schema.read_text()} if front and schema.is_file() else {}
        options.html.write_text(report_html.document(texts, plots))
        print(f"Wrote {options.html}")
    elif options.check:
        problems = {
            "out of date": _stale(options.results, texts, plots),
            "no record accounts for": _left_over(options.results, texts, plots),
        }
        for problem, files in problems.items():
            if files:
                print(f"softbench-report: {problem}: {', '.join(files)}", file=sys.stderr)
        return 1 if any(problems.values()) else 0
    else:
        _write(options.results, texts, plots)
    return 0


def run() -> None:
    """Entry point of the console script."""
    try:
        sys.exit(main(sys.argv[1:]))
    except ConfigError as error:
        print(f"softbench-report: error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    run()

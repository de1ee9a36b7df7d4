"""The command `softbench`, and `python -m softbench`: an experiment, then its tables and page.

`softbench submit` packs what a suite has written.
"""

from pathlib import Path

from softbench import commands
from softbench.bench import app
from softbench.bench.records import PLAN

PAGE = "report.html"  # in the folder of the results


def main(argv: list[str]) -> int:
    """Runs the command line `argv`; returns the exit status."""
    if argv[1:2] == ["submit"]:
        from softbench.report import submission

        return submission.main(argv)
    return app.main(argv, _show)


def _show(workdir: Path) -> None:
    """Prints the tables of an experiment and writes its page, as far as libraries are there."""
    try:
        from softbench.report import explorer, frame, merge, pages
    except ModuleNotFoundError as error:
        print(f"\nNo tables: {error.name} is missing, pip install 'softbench[report]'")
        return
    if not (workdir / PLAN).is_file():  # the folder of a suite
        print("\n" + merge.of_folder(workdir))
        return
    found = frame.read(workdir)
    print("\n" + pages.summary(found))
    try:
        text = explorer.document(*explorer.runs_of([found]))
    except commands.ConfigError as error:
        print(f"\nNo page: {error}")
        return
    (workdir / PAGE).write_text(text)
    print(f"Wrote {workdir / PAGE}")


def run() -> None:
    """Entry point of the console script."""
    commands.run("softbench", main, "run the same command to resume")


if __name__ == "__main__":
    run()

"""The command `softbench`, and `python -m softbench`: an experiment, then its tables and page."""

from pathlib import Path

from softbench import commands
from softbench.bench import app

PAGE = "report.html"  # in the folder of the results


def main(argv: list[str]) -> int:
    """Runs the command line `argv`; returns the exit status."""
    return app.main(argv, _show)


def _show(workdir: Path) -> None:
    """Prints the tables of an experiment and writes its page, as far as libraries are there."""
    try:
        from softbench.report import explorer, frame, pages
    except ModuleNotFoundError as error:
        print(f"\nNo tables: {error.name} is missing, pip install 'softbench[report]'")
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

"""The command `softbench`, and `python -m softbench`: an experiment, then its tables and page."""

import sys
from pathlib import Path

from softbench import commands
from softbench.bench import app, records

PAGE = "report.html"  # in the folder of the results


def main(argv: list[str]) -> int:
    """Runs the command line `argv`; returns the exit status."""
    return app.main(argv, _show)


def _show(workdir: Path) -> None:
    """Prints the tables and writes the page, naming records that cannot be read."""
    try:
        from softbench.report import app as report
        from softbench.report import frame, pages
    except ModuleNotFoundError as error:
        print(f"\nNo tables: {error.name} is missing, pip install 'softbench[report]'")
        for name, why in records.read_folder(workdir)[1].items():
            print(f"softbench: {workdir / 'runs' / name} {why}", file=sys.stderr)
    else:
        print("\n" + pages.summary(frame.read(workdir)))
        report.main(["softbench-report", f"--results={workdir}", f"--html={workdir / PAGE}"])


def run() -> None:
    """Entry point of the console script."""
    commands.run("softbench", main, "run the same command to resume")


if __name__ == "__main__":
    run()

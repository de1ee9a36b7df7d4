"""The command `softbench`, and `python -m softbench`: an experiment, and then its tables."""

from pathlib import Path

from softbench import commands
from softbench.bench import app


def main(argv: list[str]) -> int:
    """Runs the command line `argv`; returns the exit status."""
    return app.main(argv, _print_tables)


def _print_tables(workdir: Path) -> None:
    try:
        from softbench.report import page
    except ModuleNotFoundError as error:
        print(f"\nNo tables: {error.name} is missing, pip install 'softbench[report]'")
    else:
        print("\n" + page.summary(page.read(workdir)))


def run() -> None:
    """Entry point of the console script."""
    commands.run("softbench", main, "run the same command to resume")


if __name__ == "__main__":
    run()

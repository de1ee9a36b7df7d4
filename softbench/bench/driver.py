"""What a command does with the cells of a config: prices, a search, or runs. Needs no Keras."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from absl import flags

from softbench import datasets
from softbench.bench import config as config_lib
from softbench.bench import (
    environment,
    own_data,
    price,
    provenance,
    records,
    runner,
    search,
    suites,
)
from softbench.bench.config import ConfigError
from softbench.bench.matrix import Cell
from softbench.bench.tasks import TASKS

Show = Callable[[Path], None]  # is called with the folder of the results at the end


def shown(cells: list[Cell], workdir: Path) -> int:
    """Prints a line for each cell, its id and the status of its record, "-" without one."""
    for cell in cells:
        print(cell.id, records.status(runner.record_path(cell, workdir)) or "-")
    return 0


class Run(NamedTuple):
    """A command line, and what it says; its methods return the exit status.

    Attributes:
        values: its flags.
        config: plain and checked.
        launcher: see `softbench.bench.launchers`.
        workdir, data_dir: folders of the results and of the data sets.
        command: the command line that records show.
    """

    values: flags.FlagValues
    config: Mapping
    launcher: Any
    workdir: Path
    data_dir: str | None
    command: str

    def price(self, cells: list[Cell]) -> int:
        """Measures what steps cost."""
        if self.values.shard or self.values.list or self.launcher.is_parallel:
            raise ConfigError("--price does not go with --shard, --list or --launcher=ray.")
        self._check(cells, self.workdir)
        deadline = self.launcher.deadline.last
        made = price.prices(self.config, self.workdir, self.data_dir, deadline=deadline)
        chosen = {name for cell in cells for name in cell.config["methods"]}
        rows = [row for one in made for name, row in one["methods"].items() if name in chosen]
        if any(len(row["rounds"]) < price.ROUNDS for row in rows if "error" not in row):
            print("softbench: the time is over; the same command goes on", flush=True)
            return suites.OUT_OF_TIME
        return int(any("error" in row for row in rows))

    def search(self, cells: list[Cell], show: Show) -> int:
        """Runs the grid of settings, then the cells with the best of each."""
        if self.values.shard:
            raise ConfigError(
                "--shard does not go with --config.search, which needs all short runs of a "
                "method: start the same command several times, they share the cells. "
                f"Received: {self.values.shard!r}"
            )
        trials, folder = search.trials(cells), self.workdir / search.FOLDER
        if self.values.list:
            return shown(trials, folder)
        if self.cells(trials, folder, lambda folder: None) == suites.OUT_OF_TIME:
            return suites.OUT_OF_TIME
        best, failed = search.chosen(cells, self.workdir, config_lib.judge(self.config))
        for name in failed:
            print(f"softbench: {folder}: no run of {name} has a result; it is left out", flush=True)
        status = self.cells(best, self.workdir, show) if best else 1
        return max(bool(failed), status)

    def cells(self, cells: list[Cell], workdir: Path, show: Show) -> int:
        """Runs cells in a folder and shows what came of them."""
        again = self.values.retry_failed
        pending = [cell for cell in cells if runner.is_pending(cell, workdir, again)]
        self._check(pending, workdir)
        cells = own_data.read(cells, workdir)
        records.write_json(workdir / records.PLAN, records.plan(self.config))
        if other := provenance.mixture(workdir, pending, self.data_dir):
            print(f"softbench: {workdir}: {other}; their rows stay", file=sys.stderr)
        how = again, self.values.checkpoint_minutes, self.launcher
        statuses = runner.run_cells(cells, workdir, self.data_dir, self.command, *how)
        _, damaged = records.read_folder(workdir)
        for name, why in damaged.items():
            print(f"softbench: {workdir / 'runs' / name} {why}; it is left out", file=sys.stderr)
        show(workdir)
        if left := statuses.count(runner.LEFT):
            print(
                f"softbench: the time is over; cells left for the same command: {left}", flush=True
            )
            return suites.OUT_OF_TIME
        return 0 if not damaged and all(status == "ok" for status in statuses) else 1

    def _check(self, cells: list[Cell], workdir: Path) -> None:
        """Raises a ConfigError if data, a backend or the folder of results cannot be had."""
        for cell in cells:
            if not TASKS[cell.config["task"]].reads_data or "digest" in cell.config["dataset"]:
                continue  # of the user: `own_data.named` has read them
            try:
                options = datasets.arguments(cell.config["dataset"])
                datasets.check(**options, data_dir=self.data_dir)
            except (ValueError, OSError) as error:
                raise ConfigError(f"--data_dir, config.dataset: {error}") from None
        runner.prepare(workdir)
        environment.check_backends(cell.config["backend"] for cell in cells)

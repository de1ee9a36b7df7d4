"""The page of one experiment: what `runs/*.json` say, as Markdown and CSV. Needs no Keras."""

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from softbench.bench import records as records_lib
from softbench.bench import tasks
from softbench.bench.records import PLAN
from softbench.commands import ConfigError
from softbench.report import frame
from softbench.report import markdown as md
from softbench.report.tables import Table

# With pyarrow, pandas has another string type, and Markdown in it would be taken literally.
pd.set_option("mode.string_storage", "python")
_ROW = ["task", "group", "backend", "variant", "method"]  # whose seeds are of one row
_POOLED = ("proposals",)  # tasks of quality alone, whose seeds count together on any device
_HOURS = """\
Hours are of training alone; where other programs ran beside a row, its steps took longer than on
an idle machine."""
_PLAN = {"experiment", "title", "columns", "paper", "methods"}


@dataclass(frozen=True)
class Page:
    """An experiment's folder.

    Attributes:
        name: of the folder.
        plan: content of `experiment.json`, and the notes.
        records: all records, by cell id.
        damaged: {file name: why it is no record}, of the other files among them.
    """

    name: str
    plan: dict
    records: list[dict]
    damaged: dict[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """What the page is about."""
        return self.plan["title"] or self.plan["experiment"]

    @property
    def link(self) -> str:
        """A link from the front page."""
        return md.link(self.name, f"{self.name}/README.md")

    @functools.cached_property
    def cells(self) -> pd.DataFrame:
        """All records, see `softbench.report.frame.cells`."""
        return frame.cells(self.records)

    @functools.cached_property
    def tasks(self) -> dict[str, list[dict]]:
        """{task: its records by cell id}, in the order of the registry.

        Rows of training say why they have no result; other tasks show what ended well.
        """
        by_task: dict[str, list[dict]] = {task: [] for task in tasks.TASKS}
        for record in sorted(self.records, key=lambda record: record["cell"]):
            task = record["config"]["task"]
            if task == "train" or record["status"] == "ok":
                by_task[task].append(record)
        return {task: records for task, records in by_task.items() if records}

    @functools.cached_property
    def plots(self) -> dict[str, tuple[str, dict]]:
        """{file name without ending: (caption, data)} of the plots, by name."""
        plots: dict[str, tuple[str, dict]] = {}
        for task, records in self.tasks.items():
            draw = getattr(tasks.page_module(task), "plots", None)
            plots |= draw(self.plan, records) if draw else {}
        return {md.file_name(name): plots[name] for name in sorted(plots)}

    def tables(self, paper: Mapping) -> list[Table]:
        """Returns every table; rows of `paper` that nobody has run are of training."""
        groups = self.tasks or ({"train": []} if paper else {})
        plan = self.plan | {"paper": paper}
        return [
            table
            for task, records in groups.items()
            for table in tasks.page_module(task).tables(plan, records)
        ]


def read(results: Path) -> Page:
    """Returns what a results folder holds.

    Raises:
        ConfigError: when it holds no experiment.
    """
    try:
        plan = json.loads((results / PLAN).read_text())
    except OSError:
        raise ConfigError(
            f"--results must be a folder that `softbench` wrote. Received: {results}"
        ) from None
    except ValueError:
        plan = None
    if not isinstance(plan, dict) or not plan.keys() >= _PLAN:
        raise ConfigError(
            f"{PLAN} must be one that `softbench` wrote: run it again. Received: {results / PLAN}"
        )
    notes = results / md.NOTES
    plan["notes"] = notes.read_text().strip() if notes.is_file() else ""
    return Page(results.resolve().name, plan, *records_lib.read_folder(results))


def summary(page: Page) -> str:
    """Returns the tables as text, for the end of a run; rows that were not run are left out."""
    if not page.records:
        return "No results."
    ran = set(page.cells["group"] + "-" + page.cells["method"])
    tables = page.tables({name: row for name, row in page.plan["paper"].items() if name in ran})
    sections = [f"{table.title}\n\n{table.markdown()}\n" for table in tables]
    return "\n".join(sections) or "No results."


def texts(page: Page, lacking: Sequence[str] = ()) -> dict[str, str]:
    """Returns the text files of a page: {file name: content}.

    Args:
        page: of an experiment.
        lacking: sentences on what its paper has and it lacks, in Markdown.
    """
    tables = page.tables(page.plan["paper"])
    lines = [f"# {md.one_line(page.title)}", ""]
    lines += ["Generated by `softbench-report` from `runs/*.json`. Do not edit.", ""]
    lines += _provenance(page.cells.drop_duplicates("record"), _seeds(page.cells))
    if page.plan.get("notes"):
        lines += [md.without_markers(page.plan["notes"]), ""]
    for table in tables:
        lines += [f"## {md.literal(table.title)}", ""]
        lines += [table.words, ""] if table.words else []
        lines += [table.markdown(links=True), ""]
    if lacking:
        lines += ["## Not run, or shorter than in the paper", "", _HOURS, ""]
        lines += [*(f"* {line}" for line in lacking), ""]
    for name, (caption, _) in page.plots.items():
        lines += [md.picture(caption, f"{name}.svg"), ""]
    lines += _shared_records(page)
    failed = page.cells[page.cells["status"] != "ok"].drop_duplicates("record")
    if len(failed) or page.damaged:
        lines += ["## Cells without a result", ""]
        lines += [
            f"* {md.code(f'runs/{name}')} {md.literal(why)}." for name, why in page.damaged.items()
        ]
        lines += [
            f"* {md.code(row.cell)}: {row.status}. {md.message(row.error)}"
            for row in failed.itertuples()
        ]
        lines.append("")
    csv = {
        f"{md.file_name(table.title)}.csv": table.csv()
        for table in tables
        if table.data is not None
    }
    return {"README.md": "\n".join(lines)} | csv


def _shared_records(page: Page) -> list[str]:
    """Links to the records of tasks whose methods take turns in one process."""
    cells = [r["cell"] for task, records in page.tasks.items() if task != "train" for r in records]
    links = ", ".join(md.link(cell, f"runs/{cell}.json") for cell in sorted(cells))
    return [f"Records: {links}.", ""] if cells else []


def _provenance(cells: pd.DataFrame, seeds: list[str]) -> list[str]:
    if not len(cells):
        return ["No cell has run.", ""]
    first, last = cells["date"].min(), cells["date"].max()
    values = {
        name: sorted(set(cells[name].dropna())) for name in ("hardware", "software", "commit")
    }
    return [
        *md.block(cells["command"].unique()),
        "",
        f"* Date: {md.literal(first if first == last else f'{first} to {last}')}",
        f"* Device: {md.literal('; '.join(values['hardware']) or 'unknown')}",
        *_device_memory(cells),
        f"* Software: {md.literal('; '.join(values['software']))}",
        f"* Commit: {md.literal(', '.join(values['commit']))}",
        *seeds,
        *_clock(cells),
        *_versions("the code", cells["code"]),
        *(line for name, rows in cells.groupby("corpus") for line in _versions(name, rows["data"])),
        "",
    ]


def _device_memory(cells: pd.DataFrame) -> list[str]:
    """A line that names the cell which held most on its device; none where no record says so."""
    used = cells["device_memory_mb"].astype(float).dropna()
    if not len(used):
        return []
    most = md.code(cells.loc[used.idxmax(), "cell"])
    return [f"* Memory of the device: {used.max() / 1024:.1f} GiB at most, by {most}."]


def _seeds(cells: pd.DataFrame) -> list[str]:
    """A line that marks the rows of a single seed; none if all have several.

    Where a method has other rows, with several, it says on what data and model it has one.
    """
    variants = cells["variant"].where(~cells["task"].isin(_POOLED), cells["problem"])
    done = cells.assign(variant=variants)[cells["status"] == "ok"]
    rows = done.groupby(_ROW, dropna=False, sort=False)["seed"].nunique()
    rows = rows.reset_index()
    single, several = rows[rows["seed"] == 1], rows[rows["seed"] > 1]
    if not len(single):
        return []
    if not len(several):
        return ["* Seeds: every row is of a single seed."]
    groups_of = single.groupby("method", sort=False)["group"].unique()
    among = several["method"].unique()
    words = [
        f"{md.code(name)} on {', '.join(map(md.code, groups))}" if name in among else md.code(name)
        for name, groups in groups_of.items()
    ]
    return [f"* Seeds: a single one for {'; '.join(words)}."]


def _clock(cells: pd.DataFrame) -> list[str]:
    """A line that names the rows whose times are not those of an idle machine."""
    shared = cells[cells["shared_clock"]]
    if not len(shared):
        return []
    rows = (shared["method"] + " (seed " + shared["seed"].astype(str) + ")").unique()
    return [
        "* Clock: shared with other programs, so that times are longer than on an idle machine, "
        f"for {', '.join(map(md.code, rows))}."
    ]


def _versions(name: str, digests: pd.Series) -> list[str]:
    """A line that says so if rows come from several versions of something."""
    count = digests.nunique()
    return [f"* The rows come from {count} versions of {md.literal(name)}."] if count > 1 else []

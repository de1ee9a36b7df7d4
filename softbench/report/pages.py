"""Pages: templates over the frames. Needs no Keras.

A page is `templates/page.md`, or `page.jinja` in the experiment's folder, which extends it: the
question, the picture, the table and what follows are its blocks. Templates call the methods of
`Page`; a number of their prose comes from the frames by these.
"""

import functools
import re
from collections.abc import Mapping
from pathlib import Path

import jinja2
import pandas as pd
from jinja2.sandbox import SandboxedEnvironment

from softbench.bench.records import PLAN
from softbench.commands import ConfigError
from softbench.report import (
    claims,
    colours,
    decision_tables,
    decisions,
    measures,
    pictures,
    tables,
    transfer,
)
from softbench.report import frame as frame_lib
from softbench.report import markdown as md
from softbench.report.claims import Verdict
from softbench.report.frame import Frame
from softbench.report.selection import Selection, said

TEMPLATE = "page.jinja"  # of an experiment, or of the front page of them all
_WRONG = (jinja2.TemplateError, LookupError, TypeError, ValueError, ZeroDivisionError)
_MOST_FAILED = 5  # that a page names; the others are among its rows


def read_all(results: Path) -> tuple[dict[str, Frame], bool]:
    """Returns the frames of a folder by name, and whether it is one of many experiments.

    Raises:
        ConfigError: when it is neither.
    """
    folders = sorted(path.parent for path in results.glob(f"*/{PLAN}"))
    front = bool(folders) and not (results / PLAN).is_file()
    frames = [frame_lib.read(folder) for folder in (folders if front else [results])]
    return {frame.name: frame for frame in frames}, front


class Page:
    """The functions that a template calls, and the pictures that it has drawn.

    Args:
        frames: {experiment: its frame}.
        name: of the page's experiment; "" of the front page.
        decided: {claim: its verdict}.

    Attributes:
        pictures: {file name: (caption, data)}.
    """

    def __init__(
        self,
        frames: Mapping[str, Frame],
        name: str = "",
        decided: Mapping[str, Verdict] | None = None,
    ) -> None:
        self._frames, self._name, self._decided = frames, name, decided or {}
        self.pictures: dict[str, tuple[str, dict]] = {}

    def functions(self) -> dict[str, object]:
        """Returns {name in a template: function}."""
        numbers = Selection(self._frames, self._name)
        own = (
            "title",
            "link",
            "table",
            "picture",
            "footer",
            "claims",
            "methods_by_price",
            "curves_by_price",
        )
        return {
            **{name: getattr(numbers, name) for name in ("value", "interval", "ratio", "change")},
            **{name: getattr(self, name) for name in own},
            "names": lambda: list(self._frames),
            "verdict": lambda claim: self._decided[claim].word,
            "counts": lambda: claims.counts(self._decided),
            "recommended": lambda *a, **k: decision_tables.summary(self._decisions, *a, **k),
            "recommended_by_price": lambda: decision_tables.levels(self._decisions),
            "regret": lambda: decision_tables.regret(self._decisions),
            "one_for_all": lambda: decision_tables.one_for_all(self._decisions),
            "said": said,
            "rule_of_decisions": decisions.RULE,
        }

    def title(self, name: str = "") -> str:
        """The title of an experiment."""
        plan = self._frames[name or self._name].plan
        return md.one_line(plan["title"] or plan["experiment"])

    def link(self, name: str) -> str:
        """A link from the front page to an experiment's page."""
        return md.link(name, f"{name}/README.md")

    def claims(self) -> str:
        """The table of all claims, a line each."""
        rows = []
        for claim in claims.library():
            made = self._decided[claim.name]
            i = made.decisive
            word = made.word
            if claim.experiment in self._frames:
                word = md.link(word, f"{claim.experiment}/README.md")
            if made.word != claims.HOLDS and len(made.parts) > 1:
                word += f" ({made.states.count(made.states[i])} of {len(made.parts)})"
            where = f"{claim.paper.split()[0]}, {claim.place}" if claim.place != "ours" else "ours"
            rows.append([where, claim.says, word, str(made.ratios[i]), made.parts[i].range])
        return md.table(["place", "claim", "verdict", "ratio", "claimed"], rows)

    @functools.cached_property
    def _decisions(self) -> list[dict]:
        return decisions.of(self._frames)

    def _problem(self) -> dict:
        """The page's problem in `decisions.json`."""
        name = self._name.removeprefix(decisions.FOLDER)
        (problem,) = (one for one in self._decisions if one["problem"] == name)
        return problem

    def methods_by_price(self) -> str:
        """All methods of the page's problem."""
        return decision_tables.rows(self._problem())

    def curves_by_price(self) -> str:
        """Learning curves at the highest price of the page's problem that is decided.

        Of its best methods, no two of one look, and of the reference, against what training cost.
        """
        problem = self._problem()
        level = next(iter(transfer.decided(problem)[::-1]), None)
        if level is None:
            return self.picture()
        names: dict[int, str] = {}
        for method in (decisions.REFERENCE, *level["rows"]):
            names.setdefault(colours.preferred(method), method)
        return self.picture(
            "reference_steps",
            measures.on_curve(problem["measure"]),
            curves=True,
            method=[*names.values()][: pictures.LINES],
            reference_budget=level["steps"],
        )

    def table(self, *columns: str, experiment: str = "", **options: object) -> str:
        """A table, see `softbench.report.tables.table`."""
        return tables.table(self._frames[experiment or self._name], columns, **options)

    def picture(
        self, *columns: str, name: str = "picture", experiment: str = "", **options: object
    ) -> str:
        """A picture of some name, see `softbench.report.pictures.picture`."""
        made = pictures.picture(self._frames[experiment or self._name], *columns, **options)
        if made is None:
            return ""
        self.pictures[f"{name}.svg"] = made
        return md.picture(made[0], f"{name}.svg")

    def footer(self) -> str:
        """Where the rows are, and how they came about."""
        frame = self._frames[self._name]
        runs = frame.runs.drop_duplicates("record")
        if runs.empty:
            return "No cell has run."
        files = [md.link(f"All {len(frame.runs)} rows", "rows.csv")]
        files += [md.link("learning curves", "curves.csv")] if has_curves(frame) else []
        words = [f"{', '.join(files)}.", *_provenance(frame.runs)]
        failed = runs[runs["status"] != "ok"]
        lines = [
            f"* {md.code(f'runs/{name}')} {md.literal(why)}." for name, why in frame.damaged.items()
        ]
        lines += [
            f"* {md.code(row.cell)}: {row.status.replace('_', ' ')}. {md.message(row.error)}"
            for row in failed.head(_MOST_FAILED).itertuples()
        ]
        if lines:
            lines = [f"Without a result: {len(failed) + len(frame.damaged)}.", "", *lines]
        return "\n".join([" ".join(words), "", *lines])


def _provenance(rows: pd.DataFrame) -> list[str]:
    """Sentences on how the rows came about, and what a reader should not trust."""
    runs = rows.drop_duplicates("record")
    dates = " to ".join(sorted({runs["date"].min(), runs["date"].max()}))
    devices = md.literal("; ".join(sorted(set(runs["hardware"].dropna()))))
    words = [f"Records of {dates}{' on ' * bool(devices)}{devices}."]
    flags = runs["command"].dropna().str.extract(r"(--config=\S+)")[0].dropna()
    if len(flags):  # the config that most runs are of
        words.append(f"Made by {md.code(f'softbench {flags.mode().iloc[0]}')}.")
    if "device_memory_mb" in runs and runs["device_memory_mb"].notna().any():
        words.append(f"On the device {runs['device_memory_mb'].max() / 1024:.1f} GiB at most.")
    done = rows[rows["status"] == "ok"]
    seeds = done.groupby(["task", "problem", "method", "epochs"], dropna=False)["seed"].nunique()
    if (seeds == 1).all() and len(seeds):
        words.append("Every row is of a single seed.")
    elif (seeds == 1).any():
        words.append(f"{(seeds == 1).sum()} of {len(seeds)} rows are of a single seed.")
    shared = int(runs["shared_clock"].astype(bool).sum())
    times = "; times are of the others where a row has any" * tables.of_training(runs)
    words += [f"Other programs slowed {shared} of {len(runs)} runs{times}."] * bool(shared)
    if "at_edge" in runs:
        edges = runs.loc[runs["at_edge"].fillna(False).astype(bool), "method"].unique()
        names = ", ".join(map(md.code, edges))
        words += [f"Best at the edge of its search: {names}."] * bool(len(edges))
    versions = {"the code": runs["code"]}
    versions |= {name: own["data"] for name, own in runs.groupby("dataset")}
    return words + [
        f"The rows come from {digests.nunique()} versions of {md.literal(name)}."
        for name, digests in versions.items()
        if digests.nunique() > 1
    ]


def has_curves(frame: Frame) -> bool:
    """Whether a frame has learning curves that are written next to its rows."""
    return bool((frame.curves["task"].isin(["train", "states"])).any())


def environment(folder: Path | None = None) -> SandboxedEnvironment:
    """Returns the environment of templates: a folder's, then the shipped ones."""
    loaders = [jinja2.FileSystemLoader(folder)] if folder else []
    shipped = jinja2.FileSystemLoader(Path(__file__).with_name("templates"))
    return SandboxedEnvironment(
        loader=jinja2.ChoiceLoader([*loaders, shipped]),
        undefined=jinja2.StrictUndefined,
        autoescape=False,
    )


def render(page: Page, folder: Path | None, default: str) -> str:
    """Returns a page in Markdown.

    Args:
        page: its functions.
        folder: that may hold a `page.jinja`.
        default: the shipped template otherwise.

    Raises:
        ConfigError: where a template asks for what no record has.
    """
    own = folder is not None and (folder / TEMPLATE).is_file()
    name = TEMPLATE if own else default
    try:
        text = environment(folder).get_template(name).render(page.functions())
    except _WRONG as error:
        path = folder / TEMPLATE if own else name
        raise ConfigError(f"{path} has no page: {error}") from None
    return md.filled(text)


def filled(text: str, frames: Mapping[str, Frame]) -> str:
    """Returns a page that a person writes, with what its markers ask for between them.

        <!--= value("step_ms", experiment="scaling", method="full", n=10000) -->21<!--/-->

    is what a template would write in double braces.

    Raises:
        ConfigError: for a marker that asks for what no record has.
    """
    functions, templates = Page(frames).functions(), environment()

    def replaced(match: re.Match) -> str:
        try:
            shown = templates.from_string(f"{{{{ {match['what']} }}}}").render(functions)
        except _WRONG as error:
            raise ConfigError(f"Marker `{match['what']}` has no number: {error}") from None
        shown = md.filled(shown).strip()
        shown = f"\n\n{shown}\n\n" if "\n" in shown else shown  # lines are blocks to themselves
        return f"<!--= {match['what']} -->{shown}<!--/-->"

    return md.MARKED.sub(replaced, text)


def summary(frame: Frame) -> str:
    """Returns the table of a run as text, all rows of it, for the end of a run."""
    return tables.table(frame, top=None) or "No results."

"""Pages: templates over the frames. Needs no Keras.

A page is `templates/page.md`, or `page.jinja` in the experiment's folder, which extends it: the
question, the picture, the table and what follows are its blocks. Templates call the methods of
`Page`; a number of their prose comes from the frames by these.
"""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path

import jinja2
import pandas as pd
from jinja2.sandbox import SandboxedEnvironment

from softbench.bench.records import PLAN
from softbench.commands import ConfigError
from softbench.report import claims, decision_tables, decisions, intervals, measures, tables
from softbench.report import frame as frame_lib
from softbench.report import markdown as md
from softbench.report.claims import Verdict
from softbench.report.colours import LOOKS
from softbench.report.frame import Frame
from softbench.report.selection import Selection, said

TEMPLATE = "page.jinja"  # of an experiment, or of the front page of them all
_LINES = 8  # of a picture, unless a template asks for more
_MOST_FAILED = 5  # that a page names; the others are among its rows
_LEVELS = {"oracle": "oracle", "most_frequent": "class frequencies"}


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
        own = ("title", "names", "link", "table", "picture", "footer", "verdict", "counts")
        own += ("claims", "recommended", "recommended_by_price", "regret", "methods_by_price")
        return {
            **{name: getattr(numbers, name) for name in ("value", "interval", "ratio", "change")},
            **{name: getattr(self, name) for name in own},
            "said": said,
            "rule": claims.RULE,
            "rule_of_decisions": decisions.RULE,
        }

    def title(self, name: str = "") -> str:
        """The title of an experiment."""
        plan = self._frames[name or self._name].plan
        return md.one_line(plan["title"] or plan["experiment"])

    def names(self) -> list[str]:
        """The names of all experiments."""
        return list(self._frames)

    def link(self, name: str) -> str:
        """A link from the front page to an experiment's page."""
        return md.link(name, f"{name}/README.md")

    def verdict(self, claim: str) -> str:
        """What the records say of a claim, in a word; the page of the claims says why."""
        return self._decided[claim].word

    def counts(self) -> str:
        """How many claims have which verdict."""
        return claims.counts(self._decided)

    def claims(self) -> str:
        """The table of all claims, a line each."""
        rows, pages = [], {}
        for claim in claims.library():
            made = self._decided[claim.name]
            i = made.decisive
            count = f" ({made.states.count(made.states[i])} of {len(made.parts)})"
            word = f"[{made.word}][{claim.experiment}]"
            if claim.experiment in self._frames:
                pages[claim.experiment] = f"[{claim.experiment}]: {claim.experiment}/README.md"
            else:
                word = made.word
            word += count if made.word != claims.HOLDS and len(made.parts) > 1 else ""
            where = f"{claim.paper.split()[0]}, {claim.place}" if claim.place != "ours" else "ours"
            rows.append([where, claim.says, word, str(made.ratios[i]), made.parts[i].range])
        header = ["place", "claim", "verdict", "ratio", "claimed"]
        return "\n\n".join([md.table(header, rows), "\n".join(sorted(pages.values()))])

    @functools.cached_property
    def _decisions(self) -> list[dict]:
        return decisions.of(self._frames)

    def recommended(self, folder: str = "", short: bool = False) -> str:
        """What to use, see `softbench.report.decision_tables.summary`."""
        return decision_tables.summary(self._decisions, folder, short)

    def recommended_by_price(self) -> str:
        """What to use at each price of each problem."""
        return decision_tables.levels(self._decisions)

    def regret(self) -> str:
        """How far the advice of the other problems is from the best."""
        return decision_tables.regret(self._decisions)

    def methods_by_price(self) -> str:
        """All methods of the page's problem."""
        name = self._name.removeprefix(decisions.FOLDER)
        (problem,) = (one for one in self._decisions if one["problem"] == name)
        return decision_tables.rows(problem)

    def table(
        self,
        *columns: str,
        rows: Sequence[str] = (),
        over: str = "",
        top: int | None = tables.MOST_ROWS,
        experiment: str = "",
        **where: object,
    ) -> str:
        """A table, see `softbench.report.tables.table`."""
        frame = self._frames[experiment or self._name]
        return tables.table(frame, columns, rows, over, top, **where)

    def picture(
        self,
        x: str = "",
        y: str = "",
        *,
        curves: bool = False,
        by: str | Sequence[str] = "method",
        log: str | None = None,
        guide: str = "",
        names: Mapping[str, str] | None = None,
        top: int = _LINES,
        name: str = "picture",
        caption: str = "",
        experiment: str = "",
        **where: object,
    ) -> str:
        """A picture: a measure against a column, a line for each value of `by`.

        Args:
            x, y: columns of the runs, or of the learning curves; none: the task's picture.
            curves: whether they are of the learning curves.
            by: what a line is named by.
            log: axes among "xy" that are logarithmic; None: as the measures say.
            guide: a column that is drawn dashed, the same for all lines.
            names: {method: words} of the lines, the only ones then.
            top: the most lines, the best ones.
            name, caption: of the picture.
            experiment, where: whose runs.
        """
        frame = self._frames[experiment or self._name]
        if not y:
            chosen = _default(frame, where)
            if chosen is None:
                return ""
            return self.picture(**chosen, name=name, caption=caption, experiment=experiment)
        rows = frame_lib.select(frame.curves if curves else frame.runs, status="ok", **where)
        if names:
            rows = rows[rows["method"].isin(names)]
        if not {x, y} <= set(rows):
            return ""
        rows = rows.dropna(subset=[x, y])
        if isinstance(by, str) and pd.api.types.is_numeric_dtype(rows[by]):
            rows = rows.sort_values(by, kind="stable")
        if curves:
            lines = _curves(rows, x, y, by)
        else:
            lines = {
                line: _means(own, x, y) for line, own in rows.groupby(_names(rows, by), sort=False)
            }
        if not lines:
            return ""
        kept = _best(lines, y, min(top, len(LOOKS)))
        lines = {line: lines[line] for line in lines if line in kept}
        values = [point[1] for line in lines.values() for point in line]
        if log is None:
            log = "x" * measures.of(x).log + "y" * measures.of(y).log
            if min(values) <= 0 or (curves and max(values) < 10 * min(values)):
                log = log.replace("y", "")
        data = {"x": measures.words(x), "y": measures.words(y), "log": log, "lines": lines}
        if names:
            data["lines"] = {names[line]: points for line, points in lines.items()}
            data["of"] = {words: method for method, words in names.items()}
        if guide:
            data["dashed"] = {measures.words(guide): [p[:2] for p in _means(rows, x, guide)]}
        if curves:
            data["levels"] = _levels(frame_lib.select(frame.runs, **where), y)
        caption = caption or f"{data['y'][:1].upper()}{data['y'][1:]} against {data['x']}"
        self.pictures[f"{name}.svg"] = (caption, data)
        return md.picture(caption, f"{name}.svg")

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
    words += [f"Other programs slowed {shared} of {len(runs)} runs."] * bool(shared)
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


def _default(frame: Frame, where: Mapping) -> dict | None:
    """The picture of a frame's task; of training the first learning curves of its columns."""
    runs = frame_lib.select(frame.runs, status="ok", **where)
    view = frame.view
    if view.picture or runs.empty:
        return {**view.picture, **where} if view.picture else None
    group = runs["group"].iloc[0]
    curves = frame_lib.select(frame.curves, status="ok", **{"group": group, **where})
    columns = [name for name in frame.plan["columns"] if measures.is_quality(name)]
    wanted = [*map(measures.on_curve, columns), "valid_perplexity", "valid_precision_at_1"]
    shown = [name for name in wanted if name in curves]
    if shown and curves.groupby("record").size().max() > 1:
        several = curves.groupby(["method", "variant"])["machine"].nunique().max() > 1
        x = "step" if several else frame.plan.get("curves_against") or "seconds"
        x = "reference_steps" if curves["reference_budget"].all() else x
        return {"x": x, "y": shown[0], "curves": True, "group": group, **where}
    quality = [name for name in columns if name in runs]
    if quality and runs["step_ms"].notna().sum() > 1:
        return {"x": "step_ms", "y": quality[0], "group": group, **where}
    return None


def _names(rows: pd.DataFrame, by: str | Sequence[str]) -> pd.Series:
    """What each row's line is named by; the method where all of `by` is missing."""
    columns = [by] if isinstance(by, str) else list(by)

    def name(row: pd.Series) -> str:
        values = {column: row[column] for column in columns if not pd.isna(row[column])}
        words = [
            value if isinstance(value, str) else f"{measures.of(column).words} = {value:g}"
            for column, value in values.items()
        ]
        return ", ".join(words) or str(row["method"])

    return rows.apply(name, axis="columns")


def _means(rows: pd.DataFrame, x: str, y: str) -> list[list[float]]:
    """[x, mean, half of the interval where there are several] at each x; one x is one mark."""
    if measures.of(x).of_machine or measures.of(x).better:  # measured: no two runs have the same
        means = [intervals.interval(rows[column]).mean for column in (x, y)]
        return [means]
    points = []
    for value, own in rows.groupby(x)[y]:
        interval = intervals.interval(own)
        points.append([float(value), interval.mean, *([interval.half] * (interval.count > 1))])
    if len({len(point) for point in points}) > 1:
        points = [point[:2] for point in points]
    return points


def _curves(rows: pd.DataFrame, x: str, y: str, by: str | Sequence[str]) -> dict[str, list]:
    """Learning curves, of several seeds their mean; rows of one name that differ are told apart."""
    names = _names(rows, by)
    lines: dict[str, list] = {}
    for (name, _), own in rows.groupby([names, "variant"], sort=False):
        label = name if name not in lines else f"{name}, {own['cell'].iloc[0][-8:-4]}"
        seeds = [
            line[[x, y]].sort_values(x).to_numpy().tolist() for _, line in own.groupby("record")
        ]
        lines[label] = intervals.averaged(seeds)
    return lines


def _best(lines: Mapping[str, list], y: str, top: int) -> set[str]:
    """The names of the lines that end best."""
    sign = 1 if measures.lower_is_better(y) else -1
    return set(sorted(lines, key=lambda name: sign * lines[name][-1][1])[:top])


def _levels(runs: pd.DataFrame, y: str) -> dict[str, float]:
    """What needs no training, where records have it of the validation set and agree on it."""
    levels = {}
    for field, name in _LEVELS.items():
        values = runs.get(f"{field}.{y}", pd.Series(dtype=float)).dropna().unique()
        if len(values) == 1:
            levels[name] = float(values[0])
    return levels


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
    except (jinja2.TemplateError, LookupError, TypeError, ValueError, ZeroDivisionError) as error:
        path = folder / TEMPLATE if own else name
        raise ConfigError(f"{path} has no page: {error}") from None
    return md.filled(text)


def summary(frame: Frame) -> str:
    """Returns the table of a run as text, all rows of it, for the end of a run."""
    return tables.table(frame, top=None) or "No results."

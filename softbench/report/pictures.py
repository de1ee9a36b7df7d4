"""What pictures of pages show: lines, marks and levels of a frame. Needs no Keras."""

from collections.abc import Mapping, Sequence

import pandas as pd

from softbench.report import frame as frame_lib
from softbench.report import intervals, measures
from softbench.report.colours import LOOKS
from softbench.report.frame import Frame

LINES = 8  # of a picture, unless a template asks for more
_LEVELS = {"oracle": "oracle", "most_frequent": "class frequencies"}


def picture(
    frame: Frame,
    x: str = "",
    y: str = "",
    *,
    curves: bool = False,
    by: str | Sequence[str] = "method",
    log: str | None = None,
    marks: bool = False,
    guide: str = "",
    names: Mapping[str, str] | None = None,
    top: int = LINES,
    caption: str = "",
    **where: object,
) -> tuple[str, dict] | None:
    """Returns (caption, data) of a measure against a column, a line for each value of `by`.

    None where there is nothing to draw. The data are those of `softbench.report.plots.svg`.

    Args:
        frame: of an experiment.
        x, y: columns of the runs, or of the learning curves; none: the task's picture.
        curves: whether they are of the learning curves.
        by: what a line is named by.
        log: axes among "xy" that are logarithmic; None: as the measures say.
        marks: whether points are not joined.
        guide: a column that is drawn dashed, the same for all lines.
        names: {method: words} of the lines, the only ones then.
        top: the most lines, the best ones.
        caption: of the picture.
        where: whose runs.
    """
    if not y:
        chosen = _default(frame, where)
        return picture(frame, **chosen, caption=caption) if chosen else None
    rows = frame_lib.select(frame.curves if curves else frame.runs, status="ok", **where)
    if names:
        rows = rows[rows["method"].isin(names)]
    if not {x, y} <= set(rows):
        return None
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
        return None
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
    if marks:
        data["marks"] = True
    if guide:
        data["dashed"] = {measures.words(guide): [p[:2] for p in _means(rows, x, guide)]}
    if curves:
        data["levels"] = _levels(frame_lib.select(frame.runs, **where), y)
    caption = caption or f"{data['y'][:1].upper()}{data['y'][1:]} against {data['x']}"
    return caption, data


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

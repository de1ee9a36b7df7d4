"""Learning curves of the task "train", one line for each row of its tables. Needs no Keras."""

from collections.abc import Mapping

import pandas as pd

from softbench.report import frame, intervals, measures, sweeps

ROW = ["method", "variant"]  # the seeds of one row
_AXES = {
    "seconds": ("training time, s", "training time"),
    "step": ("training steps", "steps"),
    "reference_steps": ("cost of training, steps of the reference", "cost"),
}
_LEVELS = {"oracle": "oracle", "most_frequent": "class frequencies"}


def plots(plan: Mapping, records: list[dict]) -> dict[str, tuple[str, dict]]:
    """Returns {file name: (caption, data)}: learning curves, and quality against sizes of draws.

    Curves are of the measures among the columns, of all without columns. They are against
    `curves_against` of the plan, "seconds" or "step"; the latter where seeds of a row are of
    several machines. Where all rows have a budget in steps of a reference, they are against those.
    Plots of marks that say what the table says are left out.
    """
    cells, points = frame.cells(records), frame.points(records)
    names = _line_names(cells)
    sizes = points["record"].value_counts()
    by_name = sweeps.plots(plan, records)
    for key, measure in measures.drawn().items():
        if not _is_shown(plan, key) or key not in points:
            continue
        for group, rows in points.dropna(subset=key).groupby("group", sort=False):
            lines: dict[str, list] = {}
            several_machines = rows.groupby(ROW)["machine"].nunique().max() > 1
            axis = "step" if several_machines else plan.get("curves_against", "seconds")
            axis = "reference_steps" if rows["reference_budget"].all() else axis
            label, against = _AXES[axis]
            for record, line in rows.groupby("record", sort=False):
                line = sorted(line[[axis, key]].to_numpy().tolist())
                lines.setdefault(names[record], []).append(line)
            shown = {name: intervals.averaged(seeds) for name, seeds in lines.items()}
            several = {names[record] for record in rows["record"] if sizes[record] > 1}
            if not _says_more_than_the_table(shown, several):
                continue
            words = f"validation {measure.words}"
            data = {"x": label, "y": words, "log": _log(shown) * measure.log, "lines": shown}
            data["levels"] = _levels(cells[cells["group"] == group], key)
            by_name[f"{group}-{key}"] = (f"{group}: {words} against {against}", data)
    return by_name


def _says_more_than_the_table(lines: Mapping[str, list], several: set[str]) -> bool:
    """Whether two rows (of one alone: it) were evaluated several times, or have intervals."""
    return len(several) >= min(2, len(lines)) or any(len(line[0]) > 2 for line in lines.values())


def _log(lines: Mapping[str, list]) -> str:
    """A logarithmic axis where values span a decade: elsewhere it hides differences."""
    values = [point[1] for line in lines.values() for point in line]
    return "y" if max(values) > 10 * min(values) > 0 else ""


def _is_shown(plan: Mapping, key: str) -> bool:
    shown = set(map(measures.on_curve, plan["columns"]))
    # Of data with one label a row they are the same.
    shown |= {"valid_precision_at_1"} if "valid_accuracy" in shown else set()
    return not plan["columns"] or key in shown


def _levels(cells: pd.DataFrame, key: str) -> dict[str, float]:
    """What needs no training, where records have it of the validation set and agree on it."""
    levels = {}
    for field, name in _LEVELS.items():
        values = cells.get(f"{field}.{key}", pd.Series(dtype=float)).dropna().unique()
        if len(values) == 1:
            levels[name] = float(values[0])
    return levels


def _line_names(cells: pd.DataFrame) -> dict[int, str]:
    """Returns {record: name}: the method, and what tells rows of one method apart."""
    rows = cells.drop_duplicates(["group", *ROW])
    several = rows.duplicated(["group", "method"], keep=False)
    digests = rows["cell"].str.rsplit("-", n=1).str[-1].str[:4]
    long = rows["method"] + ", " + rows["backend"] + ", " + digests
    names = rows.assign(name=rows["method"].where(~several, long)).set_index(["group", *ROW])
    keys = pd.MultiIndex.from_frame(cells[["group", *ROW]])
    return dict(zip(cells["record"], names["name"].reindex(keys), strict=True))

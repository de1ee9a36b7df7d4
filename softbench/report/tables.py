"""A table of a page: rows of a frame over seeds, columns of measures. Needs no Keras."""

import json
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd

from softbench.report import frame as frame_lib
from softbench.report import intervals, measures
from softbench.report import markdown as md
from softbench.report.frame import Frame
from softbench.report.intervals import EMPTY, Interval, interval, number
from softbench.report.training import BOUNDS

MOST_ROWS, MOST_COLUMNS = 12, 8
SEEDS = "±: half of the 95 % interval over seeds."


def table(
    frame: Frame,
    columns: Sequence[str] = (),
    rows: Sequence[str] = (),
    over: str = "",
    top: int | None = MOST_ROWS,
    **where: object,
) -> str:
    """Returns a table in Markdown.

    Args:
        frame: of an experiment.
        columns: measures, or other columns; none: those of the task, or of the config.
        rows: columns that name a row, of which those that vary are shown; none: the task's.
        over: a column whose values become columns, of the one measure in `columns`.
        top: how many rows at most, the best by the first measure of quality; None: all.
        where: fields of the rows; a list of methods is their order.
    """
    runs = frame_lib.select(frame.runs, **where)
    if runs.empty:
        return ""
    view = frame_lib.view(runs["task"].iloc[0])
    columns = list(columns or _columns(frame, view, runs))
    keys = [key for key in (*(rows or view.keys), over) if key and key in runs]
    order = where.get("method", frame.plan["methods"])
    runs = _in_order(runs, keys, [order] if isinstance(order, str) else order)
    trains = of_training(runs)
    # What several processes have is of the first of them.
    if trains:
        runs = _of_one_machine(_undisturbed(runs, columns), columns)
    else:
        runs = runs.drop_duplicates([*keys, "seed"])
    shown = [key for key in keys if runs[key].nunique(dropna=False) > 1 and key != over]
    shown = shown or ["method"]
    by = [*shown, *([over] if over else []), *(["variant"] if trains else [])]
    groups = list(runs.groupby(by, sort=False, dropna=False))
    firsts = list(dict.fromkeys(str(key[0]) for key, _ in groups))
    groups.sort(key=lambda group: firsts.index(str(group[0][0])))
    if over:
        return _wide(groups, shown, columns[0], over, top)
    return _long(groups, shown, columns, _bounds(runs, columns) if trains else {}, top)


def _long(
    groups: list[tuple], keys: list[str], columns: list[str], bounds: Mapping, top: int | None
) -> str:
    """A row for each group, over its seeds, and one for each of the bounds."""
    bounds = bounds if keys == ["method"] else {}
    names = [key[: len(keys)] for key, _ in groups]
    rows = [rows for _, rows in groups]
    chosen = _best_of(rows, names, columns, top and top - len(bounds))
    counts = [rows[i].query("status == 'ok'")["seed"].nunique() for i in chosen]
    several = max(counts, default=0) > 1
    columns = columns[: MOST_COLUMNS - len(keys) - several] if top else columns
    # The best is marked among rows that are told apart by words alone, and trained as long.
    in_words = all(isinstance(value, str) for name in names for value in name)
    firsts = [name[0] if len(keys) > 1 else "" for name in names]
    equal = {
        first: in_words
        and _equally_long(
            pd.concat([own for f, own in zip(firsts, rows, strict=True) if f == first])
        )
        for first in dict.fromkeys(firsts)
    }
    parts = [firsts[i] if equal[firsts[i]] else None for i in chosen]
    lines = _lines([rows[i] for i in chosen], columns, parts)
    header = [*map(measures.words, keys), *["seeds"] * several, *map(measures.words, columns)]
    body = [
        [*map(_cell, keys, names[i]), *[str(count)] * several, *line]
        for i, count, line in zip(chosen, counts, lines, strict=True)
    ]
    body += [
        [BOUNDS[field], *[""] * several, *line[: len(columns)]] for field, line in bounds.items()
    ]
    return _explained(header, body, len(rows) - len(chosen))


def _columns(frame: Frame, view: frame_lib.View, runs: pd.DataFrame) -> list[str]:
    """The columns of a task's table that have a number, with the paper's next to ours."""
    wanted = list(view.columns or frame.plan["columns"])
    shown = []
    for name in [*wanted, "goal_s"]:
        shown += [c for c in (name, f"{name}.paper") if c in runs and runs[c].notna().any()]
    return shown or wanted or ["steps"]


def _cell(column: str, value: object) -> str:
    if isinstance(value, str):
        return md.literal(value)
    return number(value, measures.of(column).form)


def _in_order(runs: pd.DataFrame, keys: Iterable[str], names: Iterable[str]) -> pd.DataFrame:
    """Rows in the order of the methods' names, others last; then by the numbers among the keys."""
    numeric = [key for key in keys if pd.api.types.is_numeric_dtype(runs[key])]
    order = {name: i for i, name in enumerate(names)}
    ranks = runs["method"].map(lambda name: order.get(name, len(order)))
    ordered = runs.assign(_rank=ranks).sort_values(["_rank", *numeric], kind="stable")
    return ordered.drop(columns="_rank")


def of_training(runs: pd.DataFrame) -> bool:
    """Whether all rows train, so that their times are of undisturbed runs of one machine."""
    return bool(runs["task"].isin(["train", "states"]).all())


def _costs(runs: pd.DataFrame, columns: Iterable[str]) -> list[str]:
    return [column for column in columns if measures.of(column).of_machine and column in runs]


def _undisturbed(runs: pd.DataFrame, columns: Iterable[str]) -> pd.DataFrame:
    """Runs without the times that other programs made longer, where a row has other runs."""
    slowed = runs["shared_clock"].astype(bool)
    good = (runs["status"] == "ok") & ~slowed
    runs = runs.copy()
    left_out = slowed & good.groupby(runs["variant"]).transform("any")
    runs.loc[left_out, _costs(runs, columns)] = np.nan
    return runs


def _of_one_machine(runs: pd.DataFrame, columns: Iterable[str]) -> pd.DataFrame:
    """Runs whose times and memory are of one machine for each backend, where seeds are of several.

    Of the one that ran most rows without other programs running, else of that with most rows.
    """
    costs = _costs(runs, columns)
    done = runs[runs["status"] == "ok"]
    for _, group in done.groupby("backend", dropna=False):
        if group.groupby(["method", "variant"])["machine"].nunique().max() > 1:
            rows = group.groupby("machine")["variant"].nunique()
            alone = group[group["alone"].astype(bool)].groupby("machine")["variant"].nunique()
            most = pd.DataFrame(
                {"alone": alone, "rows": rows, "records": group["machine"].value_counts()}
            )
            machine = most.fillna(0).sort_values([*most], kind="stable").index[-1]
            left_out = group.index[group["machine"] != machine]
            runs = runs.copy()
            runs.loc[left_out, costs] = np.nan
    return runs


def _equally_long(runs: pd.DataFrame) -> bool:
    """Whether all rows of training trained as long: else no row is the best."""
    cut = runs["problem"].map(lambda key: json.loads(key)[1].get("steps_per_epoch"))
    return len(runs.assign(cut=cut)[["epochs", "budget", "cut"]].drop_duplicates()) == 1


def _best_of(
    groups: list[pd.DataFrame], names: list[tuple], columns: list[str], top: int | None
) -> list[int]:
    """Indices of the rows to show: of each first name as many, the best by a measure of quality."""
    indices = list(range(len(groups)))
    quality = [name for name in columns if measures.is_quality(name) and name in groups[0]]
    if top is None or len(groups) <= top:
        return indices
    if not quality:
        return indices[:top]
    sign = 1 if measures.lower_is_better(quality[0]) else -1
    worth = [sign * rows[quality[0]].mean() for rows in groups]
    firsts: dict[object, list[int]] = {}
    for i in indices:
        firsts.setdefault(names[i][0] if len(names[i]) > 1 else "", []).append(i)
    share = max(1, top // len(firsts))
    kept = [
        i
        for own in firsts.values()
        for i in sorted(own, key=lambda i: (pd.isna(worth[i]), worth[i]))[:share]
    ]
    return sorted(kept)[:top]


def _lines(groups: list[pd.DataFrame], columns: list[str], parts: list[object]) -> list[list[str]]:
    """The texts of rows; of a measure of quality the best of each part is marked."""
    texts = []
    for column in columns:
        measure = measures.of(column)
        if not all(column in rows for rows in groups):
            texts.append([EMPTY] * len(groups))
        elif not all(pd.api.types.is_numeric_dtype(rows[column]) for rows in groups):
            texts.append([md.literal(str(rows[column].iloc[0])) for rows in groups])
        else:
            values = [_interval(rows, column) for rows in groups]
            shown = [value.text(measure.form) for value in values]
            marked = {part for part in parts if part is not None}
            for part in marked if measures.is_quality(column) else ():
                own = [i for i, other in enumerate(parts) if other == part]
                lower = measures.lower_is_better(column)
                marks = intervals.marked([values[i] for i in own], measure.form, lower)
                for i, text in zip(own, marks, strict=True):
                    shown[i] = text
            texts.append(shown)
    lines = [list(line) for line in zip(*texts, strict=True)]
    for line, rows in zip(lines, groups, strict=True):
        if not (rows["status"] == "ok").any():
            line[:] = [rows["status"].iloc[0].replace("_", " "), *[EMPTY] * (len(line) - 1)]
    return lines


def _interval(rows: pd.DataFrame, column: str) -> Interval:
    """Over the seeds; none where a run that ended well lacks a number of quality."""
    if column.endswith(".paper") or column == "epochs":  # the same for all seeds
        return interval(rows[column].head(1))
    values = rows.loc[rows["status"] == "ok", column]
    if values.isna().any() and not measures.of(column).of_machine:
        return interval([])
    return interval(values)


def _bounds(runs: pd.DataFrame, columns: list[str]) -> Mapping[str, list[str]]:
    """{field: texts} of what needs no training, the same for all methods, where records have it."""
    found = {}
    for field in BOUNDS:
        names = [f"{field}.{column}" for column in columns]
        values = [runs[name].max() if name in runs else np.nan for name in names]
        if not all(map(pd.isna, values)):
            pairs = zip(values, columns, strict=True)
            found[field] = [number(value, measures.of(column).form) for value, column in pairs]
    return found


def _wide(groups: list[tuple], keys: list[str], measure: str, over: str, top: int | None) -> str:
    """A row for each name, with one measure against the values of a column."""
    form, cells = measures.of(measure).form, {}
    for key, rows in groups:
        name, value = key[: len(keys)], key[len(keys)]
        cells.setdefault(name, {})[value] = _interval(rows, measure).text(form)
    values = sorted({value for row in cells.values() for value in row if not pd.isna(value)})
    # As many columns as a table has at most: the ends, and others evenly between.
    most = MOST_COLUMNS - len(keys)
    if len(values) > most:
        kept = np.linspace(0, len(values) - 1, most).round().astype(int)
        values = [values[i] for i in kept]
    heads = [f"{measures.words(over)} {_cell(over, value)}" for value in values]
    header = [*map(measures.words, keys), *heads]
    header[len(keys)] = f"{measures.words(measure)}: {header[len(keys)]}"
    body = [
        [*map(_cell, keys, name), *(row.get(value, EMPTY) for value in values)]
        for name, row in cells.items()
    ]
    return _explained(header, body[:top], 0)


def _explained(header: list[str], body: list[list[str]], left_out: int) -> str:
    """A table, and below it what its signs say."""
    text = md.table(header, body)
    more = "1 more row is" if left_out == 1 else f"{left_out} more rows are"
    words = [f"{more} left out here."] if left_out else []
    words += [SEEDS] if "±" in text else []
    words += ["Tied: it overlaps that of the best."] if " tied |" in text else []
    return f"{text}\n\n{' '.join(words)}" if words else text


def csv(rows: pd.DataFrame) -> str:
    """Returns rows as a CSV file, without columns that are empty or tell rows apart inside."""
    shown = rows.drop(columns=frame_lib.HIDDEN, errors="ignore").dropna(axis="columns", how="all")
    return shown.convert_dtypes().to_csv(index=False, float_format="%.7g", lineterminator="\n")

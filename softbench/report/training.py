"""Tables and plots of the task "train". Needs no Keras."""

from collections.abc import Mapping

import pandas as pd

from softbench.report import frame, measures
from softbench.report.tables import Table, in_order, number, seeds, table

_ROW = ["method", "variant"]  # the seeds of one row


def tables(plan: Mapping, records: list[dict]) -> list[Table]:
    """Returns the results, the validation perplexity on the way, and who reached what when.

    Args:
        plan: the content of `experiment.json`.
        records: records of the task, those of failed cells too.
    """
    cells, points = frame.cells(records), frame.points(records)
    return [*results(plan, cells), *curves(plan, points), *reach(plan, cells, points)]


def results(plan: Mapping, cells: pd.DataFrame) -> list[Table]:
    """Returns one table per data set and model: a row per method, the paper's numbers beside ours.

    Args:
        plan: the content of `experiment.json`.
        cells: a row for each record.
    """
    paper = [
        dict(zip(("group", "method"), name.rsplit("-", 1), strict=True)) | numbers
        for name, numbers in plan["paper"].items()
    ]
    names = dict.fromkeys(["group", "method", "epochs", *plan["columns"]])
    paper = pd.DataFrame(paper, columns=list(names))
    return [
        _results(plan, group, *(part[part["group"] == group] for part in (cells, paper)))
        for group in dict.fromkeys([*cells["group"], *paper["group"]])
    ]


def _results(plan: Mapping, group: str, cells: pd.DataFrame, paper: pd.DataFrame) -> Table:
    columns = {name: measures.columns(name) for name in plan["columns"]}
    measured = [part for parts in columns.values() for part in parts]
    data = cells.reindex(columns=list(dict.fromkeys([*cells, *measured, "epochs"])))
    data.loc[data["status"] != "ok", measured] = None
    paper = paper.set_index("method").drop(columns="group").add_suffix(" (paper)")
    data = data.merge(paper.reset_index(), on="method", how="outer")
    data = data.fillna({"status": "not run", "backend": "-", "variant": ""})
    data = in_order(plan, data.sort_values("cell", kind="stable"))
    shown = {}  # {heading: column}
    for name, (first, *_) in columns.items():
        shown[name] = first
        if paper[f"{name} (paper)"].notna().any():
            shown[f"{name} (paper)"] = f"{name} (paper)"
            if name != "epochs":
                shown[f"{name} / paper"] = f"{name} / paper"
                ratio = data[first] / data[f"{name} (paper)"].astype(float)
                data[f"{name} / paper"] = ratio.where(_as_long(data))
    data = pd.concat([data, _most_frequent(cells, shown)])
    page = [_texts(shown, columns, rows) for _, rows in data.groupby(_ROW, sort=False)]
    page = pd.DataFrame(page, columns=["method", "backend", *shown])
    kept = ["method", "backend", "seed", "status", *measured, *shown.values(), "cell"]
    return Table(group, page, data[list(dict.fromkeys(kept))])


def _as_long(data: pd.DataFrame) -> pd.Series:
    """Which runs are as many epochs long as the paper's, where it says how long these are."""
    return data["epochs (paper)"].isna() | (data["epochs (paper)"] == data["epochs"])


def _most_frequent(cells: pd.DataFrame, shown: Mapping) -> pd.DataFrame:
    """What the most frequent classes score as the answer to every input, where records have it."""
    known = {name: f"most_frequent.{name}" for name in shown if f"most_frequent.{name}" in cells}
    scores = cells[list(known.values())].dropna(how="all").head(1)
    scores.columns = list(known)
    return scores.assign(**dict.fromkeys(_ROW, "(most frequent)"), backend="-", status="ok")


def _texts(shown: Mapping, measured: Mapping, rows: pd.DataFrame) -> list[str]:
    """A line of the page: mean and range over the seeds, or why there is no result."""
    first = rows.iloc[0]
    failed = not (rows["status"] == "ok").any()
    state = first["status"].replace("_", " ")
    values = [
        state if failed and name in measured else seeds(rows[column])
        for name, column in shown.items()
    ]
    return [first["method"], first["backend"], *values]


def curves(plan: Mapping, points: pd.DataFrame) -> list[Table]:
    """Returns validation perplexity along the learning curves.

    One table per data set and model with more than one point and whose page shows the validation
    perplexity: after each epoch, so that equal epochs can be compared, and at the end of a budget
    of seconds; or, where a budget was cut into equal parts, after each of these. With a budget, the
    lowest value and the seconds until it beside it.
    """
    score = "valid_perplexity"
    if score not in plan["columns"] or score not in points:
        return []
    found = []
    for group, own in points[points["method"].isin(plan["methods"])].groupby("group", sort=False):
        own = in_order(plan, own)
        marks = _marks(own)
        heads = sorted(set(zip(marks["unit"], marks["at"], strict=True)))
        if len(heads) < 2:
            continue
        page = marks.groupby([*_ROW, "unit", "at"])[score].agg(seeds).unstack(["unit", "at"])
        page = page.reindex(columns=heads).fillna("-")
        page.columns = [f"epoch {n:.0f}" if unit == "epoch" else f"{n:,.0f} s" for unit, n in heads]
        if heads[-1][0] == "seconds":
            lowest = own.loc[own.dropna(subset=score).groupby("record")[score].idxmin()]
            best = lowest.groupby(_ROW)[[score, "seconds"]].agg(seeds)
            page[["lowest", "after, s"]] = best.reindex(page.index).fillna("-")
        rows = own.drop_duplicates(_ROW).set_index(_ROW)["backend"]
        page = rows.to_frame().join(page).fillna("-").droplevel("variant").reset_index()
        when = "epoch" if heads[0][0] == "epoch" else "part of the time"
        data = own[["method", "backend", "seed", "epoch", "step", "seconds", score]]
        found.append(Table(f"{group}: validation perplexity after each {when}", page, data))
    return found


def _marks(points: pd.DataFrame) -> pd.DataFrame:
    """The points at the ends of epochs or of parts of a budget: `at` this number or second."""
    budget, parts = points["budget"], points["epochs"]
    count = points["point"] + 1
    whole = points["step"] == count * points["steps_per_epoch"]
    last = ~points["record"].duplicated(keep="last") & (points["seconds"] >= budget)
    open_end = (budget > 0) & (parts == 0)
    after_epoch = points.assign(unit="epoch", at=count)
    after_part = points.assign(unit="seconds", at=(budget * points["epoch"] / parts).round())
    at_the_end = points.assign(unit="seconds", at=budget.round())
    return pd.concat(
        [
            after_epoch[(budget == 0) | (open_end & whole)],
            after_part[(budget > 0) & (parts > 0)],
            at_the_end[open_end & last],
        ]
    )


def reach(plan: Mapping, cells: pd.DataFrame, points: pd.DataFrame) -> list[Table]:
    """Returns one table for each data set, model and time budget: when who has reached what.

    Args:
        plan: the content of `experiment.json`; `reach` is {"method", "metric"}, or missing: the
            value of a measure of learning curves that a method ends with.
        cells, points: of all records.
    """
    goal = plan.get("reach") or {}
    if not goal:
        return []
    tree = cells.set_index("record")["tree_s"]
    points = points[points["status"] == "ok"]
    found = []
    for place, own in points.groupby(["group", "backend", "budget", "seed"]):
        ends = own[own["method"] == goal["method"]].tail(1)
        if len(ends):
            (target,), (seconds,) = ends[goal["metric"]], ends["seconds"]
            rows = [
                {"method": part["method"].iloc[0], "tree_s": tree[record]}
                | _way(part, goal["metric"], target)
                for record, part in in_order(plan, own).groupby("record", sort=False)
            ]
            data = pd.DataFrame(rows)
            data["share"] = data["reached_s"] / seconds
            found.append(_reach_table(goal, place, data, target, seconds))
    return found


def _way(curve: pd.DataFrame, metric: str, target: float) -> dict:
    """The metric along a curve, and the seconds at the first point that is not below the target."""
    values, seconds = curve[metric], curve["seconds"]
    return {
        "first_s": seconds.iloc[0],
        "first": values.iloc[0],
        "best": values.max(),
        "last": values.iloc[-1],
        "reached_s": seconds[values >= target].min(),
    }


def _reach_table(
    goal: Mapping, place: tuple, data: pd.DataFrame, target: float, seconds: float
) -> Table:
    group, backend, _, seed = place
    name = measures.name(goal["metric"])
    title = f"{group}: seconds to the validation {name} that {goal['method']} ends with, {backend}"
    columns = {
        "method": "method",
        "tree, s": "tree_s",
        "first evaluation, s": "first_s",
        f"{name} there": "first",
        f"best {name}": "best",
        f"last {name}": "last",
        f"s to {number(target)}": (lambda s: "not" if pd.isna(s) else number(s), "reached_s"),
        f"of {number(seconds)} s": ("{:.2f}", "share"),
    }
    return table(title + (f", seed {seed}" if seed else ""), data, columns)


def plots(plan: Mapping, records: list[dict]) -> dict[str, tuple[str, dict]]:
    """Returns {file name: (caption, data)}: learning curves, unless all columns are of costs."""
    columns = plan["columns"]
    if columns and not any(map(measures.on_curve, columns)):
        return {}
    cells, points = frame.cells(records), frame.points(records)
    lines = _line_names(cells)
    found = {}
    for key, measure in measures.drawn().items():
        shown = points.dropna(subset=key) if key in points else points.head(0)
        for group, own in shown.groupby("group", sort=False):
            words = f"validation {measure.words}"
            data = {"x": "training time, s", "y": words, "log": "y" * measure.log}
            data["lines"] = {
                lines[record]: sorted(line[["seconds", key]].to_numpy().tolist())
                for record, line in own.groupby("record", sort=False)
            }
            found[f"{group}-{key}"] = (f"{group}: {words} against training time", data)
    return found


def _line_names(cells: pd.DataFrame) -> dict[int, str]:
    """Returns {record: name}: the method, and what tells cells of one method apart."""
    several = cells.duplicated(["group", "method"], keep=False)
    digests = cells["cell"].str.rsplit("-", n=1).str[-1].str[:4]
    long = cells["method"] + ", " + cells["backend"] + ", seed " + cells["seed"].astype(str)
    return dict(
        zip(cells["record"], cells["method"].where(~several, long + ", " + digests), strict=True)
    )

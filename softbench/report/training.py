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
    paper = [[*name.rsplit("-", 1), numbers] for name, numbers in plan["paper"].items()]
    return [
        _results(plan, own, cells[cells["group"] == own], {m: n for g, m, n in paper if g == own})
        for own in dict.fromkeys([*cells["group"], *(group for group, *_ in paper)])
    ]


def _results(plan: Mapping, group: str, cells: pd.DataFrame, paper: Mapping) -> Table:
    columns = {name: measures.columns(name) for name in plan["columns"]}
    measured = list(dict.fromkeys(part for parts in columns.values() for part in parts))
    missing = [{"method": name} for name in paper if name not in set(cells["method"])]
    data = pd.concat([cells.sort_values("cell", kind="stable"), pd.DataFrame(missing)])
    data = data.reindex(columns=list(dict.fromkeys([*data, *measured, "epochs"])))
    data = in_order(plan, data.fillna({"status": "not run", "backend": "-", "variant": ""}))
    data[measured] = data[measured].where(data["status"] == "ok")
    shown = {}  # {heading: column}
    for name, (first, *_) in columns.items():
        shown[name] = first
        known = data["method"].map(lambda method, name=name: paper.get(method, {}).get(name))
        if known.notna().any():
            shown[f"{name} (paper)"] = f"{name}_paper"
            data[f"{name}_paper"] = known
            if name != "epochs":
                shown[f"{name} / paper"] = f"{name}_over_paper"
                data[f"{name}_over_paper"] = (data[first] / known).where(_as_long(data, paper))
    bounds = {"most_frequent": "(most frequent)", "oracle": "(oracle)"}
    data = pd.concat([data, *(_bound(cells, shown, *row) for row in bounds.items())])
    page = [_texts(shown, columns, rows) for _, rows in data.groupby(_ROW, sort=False)]
    page = pd.DataFrame(page, columns=["method", "backend", *shown])
    kept = ["method", "backend", "seed", "status", *measured, *shown.values(), "cell"]
    return Table(group, page, data[list(dict.fromkeys(kept))])


def _as_long(data: pd.DataFrame, paper: Mapping) -> list[bool]:
    """Which runs are as many epochs long as the paper's, where it says how long these are."""
    return [
        paper.get(method, {}).get("epochs") in (None, epochs)
        for method, epochs in zip(data["method"], data["epochs"], strict=True)
    ]


def _bound(cells: pd.DataFrame, shown: Mapping, field: str, row: str) -> pd.DataFrame:
    """A row of what needs no training, the same for all methods, where records have it.

    The most frequent classes as the answer to every input; the distribution that generated data
    were drawn from.
    """
    known = {f"{field}.{name}": name for name in shown}
    scores = cells.filter(known, axis="columns").dropna(how="all").head(1).rename(columns=known)
    return scores.assign(**dict.fromkeys(_ROW, row), backend="-", status="ok")


def _texts(shown: Mapping, measured: Mapping, rows: pd.DataFrame) -> list[str]:
    """A line of the page: mean and range over the seeds, or why there is no result."""
    first = rows.iloc[0]
    state = "" if (rows["status"] == "ok").any() else first["status"].replace("_", " ")
    values = [
        state if state and name in measured else seeds(rows[column])
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
    goal, found = plan.get("reach") or {}, []
    if not goal:
        return []
    name = measures.name(goal["metric"])
    tree = cells.set_index("record")["tree_s"]
    points = points[points["status"] == "ok"]
    for place, own in points.groupby(["group", "backend", "budget", "seed"]):
        end = own[own["method"] == goal["method"]].tail(1)
        if end.empty:
            continue
        target, seconds = end[goal["metric"]].item(), end["seconds"].item()
        curves = in_order(plan, own).groupby("record", sort=False)
        data = pd.DataFrame([_way(curve, goal["metric"], target) for _, curve in curves])
        data["tree_s"] = data["record"].map(tree)
        data["share"] = data["reached_s"] / seconds
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
        group, backend, _, seed = place
        title = f"{group}: seconds to the validation {name} that {goal['method']} ends with"
        title += f", {backend}" + (f", seed {seed}" if seed else "")
        found.append(table(title, data, columns))
    return found


def _way(curve: pd.DataFrame, metric: str, target: float) -> dict:
    """The metric along a curve, and the seconds at the first point that is not below the target."""
    values, seconds = curve[metric], curve["seconds"]
    return {
        "record": curve["record"].iloc[0],
        "method": curve["method"].iloc[0],
        "first_s": seconds.iloc[0],
        "first": values.iloc[0],
        "best": values.max(),
        "last": values.iloc[-1],
        "reached_s": seconds[values >= target].min(),
    }


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

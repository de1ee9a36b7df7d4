"""Tables and plots of the task "train". Needs no Keras."""

import json
from collections.abc import Iterable, Mapping
from itertools import starmap

import pandas as pd

from softbench.report import frame, intervals, measures, paired
from softbench.report import markdown as md
from softbench.report.curves import ROW as _ROW
from softbench.report.curves import plots as plots
from softbench.report.intervals import Interval, interval
from softbench.report.markdown import Markdown
from softbench.report.tables import Table, in_order, number, table, text

# {field of a record: its row}: what needs no training, the same for all methods.
_BOUNDS = {"most_frequent": "(most frequent)", "oracle": "(oracle)"}
_UNITS = {"seconds": "s", "reference": "steps"}
_WHEN = {"epoch": "epoch", "seconds": "part of the time", "reference": "part of the budget"}
_COSTS = ("reference_steps", "price_seconds")
_MACHINE = """\
Seeds are of several machines. Times and memory are those of one, {}; a row without a
record there has none."""


def tables(plan: Mapping, records: list[dict]) -> list[Table]:
    """Returns the results, differences, perplexity on the way, who reached what.

    Args:
        plan: the content of `experiment.json`.
        records: records of the task, those of failed cells too.
    """
    cells, points = frame.cells(records), frame.points(records)
    return [
        *results(plan, cells),
        *paired.tables(plan, cells),
        *curves(plan, points),
        *reach(plan, cells, points),
    ]


def results(plan: Mapping, cells: pd.DataFrame) -> list[Table]:
    """Returns one table per data set and model: a row per method, the paper's numbers next to ours.

    Args:
        plan: the content of `experiment.json`.
        cells: a row for each record.
    """
    paper = [[*name.rsplit("-", 1), numbers] for name, numbers in plan["paper"].items()]
    return [
        _results(
            plan, group, cells[cells["group"] == group], {m: n for g, m, n in paper if g == group}
        )
        for group in cells["group"].unique()
    ]


def _results(plan: Mapping, group: str, cells: pd.DataFrame, paper: Mapping) -> Table:
    columns = {name: measures.columns(name) for name in plan["columns"]}
    measured = list(dict.fromkeys(column for names in columns.values() for column in names))
    data = cells.sort_values("cell", kind="stable")
    data = in_order(plan, data.reindex(columns=list(dict.fromkeys([*data, *measured, "epochs"]))))
    data[measured] = data[measured].where(data["status"] == "ok")
    elsewhere, machines = _elsewhere(data)
    costs = [column for name in columns if measures.of_machine(name) for column in columns[name]]
    data[costs] = data[costs].mask(elsewhere)
    shown = {}  # {heading: column}
    for name, (first, *_) in columns.items():
        shown[name] = first
        published = data["method"].map(lambda method, name=name: paper.get(method, {}).get(name))
        if published.notna().any():
            shown[f"{name} (paper)"] = f"{name}_paper"
            data[f"{name}_paper"] = published
            if name != "epochs":
                shown[f"{name} / paper"] = f"{name}_over_paper"
                data[f"{name}_over_paper"] = (data[first] / published).where(_as_long(data, paper))
    data = pd.concat([data, *(_bound(cells, shown, *row) for row in _BOUNDS.items())])
    groups = [rows for _, rows in data.groupby(_ROW, sort=False)]
    equal = cells.loc[cells["status"] == "ok", ["epochs", "budget", "cut"]]
    equal = len(equal.drop_duplicates()) == 1
    page = {key: [rows[key].iloc[0] for rows in groups] for key in ("method", "backend")}
    counts = [rows.loc[rows["status"] == "ok", "seed"].nunique() for rows in groups]
    several = max(counts, default=0) > 1
    page |= {"seeds": list(map(intervals.seeds, counts))} if several else {}
    for name, column in shown.items():
        values = _column(groups, name, column, equal)
        states = map(_state, groups) if name in columns else [""] * len(groups)
        page[name] = [state or value for state, value in zip(states, values, strict=True)]
    kept = ["method", "backend", "seed", "status", *measured, *shown.values()]
    data = data[list(dict.fromkeys([*kept, "cell", "variant"]))]
    data = (_with_intervals(data, measured) if several else data).drop(columns="variant")
    links = [_links(rows) for rows in groups]
    words = [_words(several, counts), *(machines if costs else [])]
    page = pd.DataFrame(page, dtype=object)
    return Table(group, page, data, "\n\n".join(filter(None, words)), links)


def _elsewhere(data: pd.DataFrame) -> tuple[pd.Series, list[str]]:
    """Which records' times and memory a table leaves out, and sentences that say so.

    Where seeds of one row are of several machines, these columns are of the one that ran
    most rows without other programs running, else of the one with most rows, then records.
    """
    left_out, words = pd.Series(False, data.index), []
    done = data[data["status"] == "ok"]
    kind = done["machine"].map(lambda machine: json.loads(machine)[0].get("kind"))
    for _, runs in done.groupby([done["backend"], kind], dropna=False):
        if runs.groupby(_ROW)["machine"].nunique().max() > 1:
            rows = runs.groupby("machine")["variant"].nunique()
            alone = runs[runs["alone"].astype(bool)].groupby("machine")["variant"].nunique()
            most = pd.DataFrame(
                {"alone": alone, "rows": rows, "records": runs["machine"].value_counts()}
            )
            machine = most.fillna(0).sort_values([*most], kind="stable").index[-1]
            left_out |= data.index.isin(runs.index[runs["machine"] != machine])
            words.append(_MACHINE.format(_described(machine)))
    return left_out, words


def _described(machine: str) -> str:
    """A machine of a table in Markdown: its device, and the environment variables."""
    device, variables = json.loads(machine)
    words = f"{device.get('name')} ({device.get('kind')} x {device.get('count')})"
    return ", ".join(
        md.code(x) for x in (words, *starmap("{}={}".format, (variables or {}).items()))
    )


def _links(rows: pd.DataFrame) -> str:
    """A link to the record of each seed of a row."""
    made = rows.dropna(subset="cell").sort_values("seed")
    pairs = zip(made["seed"], made["cell"], strict=True)
    return Markdown(", ".join(md.link(f"s{s:.0f}", f"runs/{c}.json") for s, c in pairs) or "-")


def _column(groups: list, name: str, column: str, equal: bool) -> list[str]:
    """The texts of one column; of quality the best is marked, where all rows trained as long."""
    if name == "epochs" or name.endswith("(paper)"):  # the same for all seeds of a row
        return [text(rows[column].max()) for rows in groups]
    values = [interval(rows[column]) for rows in groups]
    if not equal or name != column or measures.on_curve(name) is None:
        return list(map(str, values))
    nothing = interval([])
    ours = [rows["method"].iloc[0] not in _BOUNDS.values() for rows in groups]
    kept = [value if is_ours else nothing for value, is_ours in zip(values, ours, strict=True)]
    shown = intervals.marked(kept, measures.lower_is_better(name))
    return [
        best if is_ours else str(v) for best, is_ours, v in zip(shown, ours, values, strict=True)
    ]


def _state(rows: pd.DataFrame) -> str:
    """Why a row has no result; "" if it has one."""
    return "" if (rows["status"] == "ok").any() else rows["status"].iloc[0].replace("_", " ")


def _words(several: bool, counts: Iterable[int]) -> str:
    """The text above a table about its seeds."""
    if several:
        return intervals.SEVERAL
    return intervals.ALONE if any(counts) else ""


def _with_intervals(data: pd.DataFrame, measured: list[str]) -> pd.DataFrame:
    """The numbers of a table with the mean over a row's seeds, its half interval and the count."""
    rows, data = data.groupby(_ROW, sort=False), data.copy()
    for name in measured:
        data[f"{name}_mean"] = rows[name].transform("mean")
        data[f"{name}_half"] = rows[name].transform(lambda values: interval(values).half)
        data[f"{name}_count"] = rows[name].transform("count")
    return data


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
    renamed = {f"{field}.{name}": name for name in shown}
    scores = cells.filter(renamed, axis="columns").dropna(how="all").head(1).rename(columns=renamed)
    return scores.assign(**dict.fromkeys(_ROW, row), backend="-", status="ok")


def curves(plan: Mapping, points: pd.DataFrame) -> list[Table]:
    """Returns validation perplexity along the learning curves.

    One table per data set and model with more than one point and whose page shows the validation
    perplexity: after each epoch, so that equal epochs can be compared, and at the end of a budget
    of seconds; or, where a budget was cut into equal intervals, after each of these. With a budget
    of seconds, also the lowest value and the seconds until it.
    """
    score = "valid_perplexity"
    if score not in plan["columns"] or score not in points:
        return []
    tables = []
    for group, runs in points[points["method"].isin(plan["methods"])].groupby("group", sort=False):
        runs = in_order(plan, runs)
        marks = _marks(runs)
        heads = sorted(set(zip(marks["unit"], marks["at"], strict=True)))
        if len(heads) < 2:
            continue
        rows = runs.drop_duplicates(_ROW).set_index(_ROW)["backend"]
        page = rows.to_frame()
        counts = runs.groupby(_ROW)["seed"].nunique().reindex(page.index)
        if several := counts.max() > 1:
            page["seeds"] = counts.map(intervals.seeds)
        for unit, n in heads:
            at = marks[(marks["unit"] == unit) & (marks["at"] == n)]
            name = f"epoch {n:.0f}" if unit == "epoch" else f"{n:,.0f} {_UNITS[unit]}"
            page[name] = intervals.marked(_by_row(at, score, page.index), lower=True)
        if heads[-1][0] == "seconds":
            lowest = runs.loc[runs.dropna(subset=score).groupby("record")[score].idxmin()]
            page["lowest"] = intervals.marked(_by_row(lowest, score, page.index), lower=True)
            page["after, s"] = list(map(str, _by_row(lowest, "seconds", page.index)))
        page = page.droplevel("variant").reset_index()
        when = _WHEN[heads[0][0]]
        axes = ["epoch", "step", "seconds", *(x for x in _COSTS if x in runs)]
        data = runs[["method", "backend", "seed", *axes, score]]
        title = f"{group}: validation perplexity after each {when}"
        tables.append(Table(title, page, data, _words(several, counts)))
    return tables


def _by_row(data: pd.DataFrame, column: str, rows: pd.Index) -> list[Interval]:
    per_row = data.groupby(_ROW)[column].agg(list).reindex(rows)
    return [interval(values if isinstance(values, list) else []) for values in per_row]


def _marks(points: pd.DataFrame) -> pd.DataFrame:
    """The points at the ends of epochs or of intervals of a budget.

    `at` is the number of the epoch, the second, or the step of the reference.
    """
    reference, budget, epochs = points["reference_budget"], points["budget"], points["epochs"]
    count = points["point"] + 1
    whole = points["step"] == count * points["steps_per_epoch"]
    last = ~points["record"].duplicated(keep="last") & (points["seconds"] >= budget)
    open_end = (budget > 0) & (epochs == 0)
    after_epoch = points.assign(unit="epoch", at=count)
    after_interval = points.assign(unit="seconds", at=(budget * points["epoch"] / epochs).round())
    of_reference = points.assign(
        unit="reference", at=(reference * points["epoch"] / epochs).round()
    )
    at_the_end = points.assign(unit="seconds", at=budget.round())
    return pd.concat(
        [
            after_epoch[((budget == 0) & (reference == 0)) | (open_end & whole)],
            of_reference[reference > 0],
            after_interval[(budget > 0) & (epochs > 0)],
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
    goal, tables = plan.get("reach") or {}, []
    if not goal:
        return []
    name = measures.name(goal["metric"])
    tree = cells.set_index("record")["tree_s"]
    points = points[points["status"] == "ok"]
    if "price_seconds" in points:  # of a budget in steps of a reference those of the price
        points = points.assign(seconds=points["price_seconds"].fillna(points["seconds"]))
    for key, runs in points.groupby(["group", "backend", "budget", "reference_budget", "seed"]):
        end = runs[runs["method"] == goal["method"]].tail(1)
        if end.empty:
            continue
        target, seconds = end[goal["metric"]].item(), end["seconds"].item()
        curves = in_order(plan, runs).groupby("record", sort=False)
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
        group, backend, *_, seed = key
        title = f"{group}: seconds to the validation {name} that {goal['method']} ends with"
        title += f", {backend}" + (f", seed {seed}" if seed else "")
        tables.append(table(title, data, columns))
    return tables


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

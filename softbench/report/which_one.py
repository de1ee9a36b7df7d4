"""Which method to use when: comparisons that the records bear out, by fixed rules. No Keras.

A comparison is made among the rows of one experiment, data set, model, backend and kind of device
(for equal times: one device), after the same number of epochs, by the first measure of quality
among the columns of the page.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd

from softbench.report import frame, intervals, measures
from softbench.report.markdown import Markdown, code, file_name
from softbench.report.page import Page
from softbench.report.tables import Table, number, text

REFERENCE = "full"
# Rows whose time outside the head, which all share, differs by more of the reference's step did
# not have the machine to themselves.
SPREAD = 0.5
FEWEST = 1_000  # classes
OUTSIDE = 3.0  # perplexity of a row, as a multiple, from which on a frontier leaves it out
WITHIN = 0.1  # a row that is at most this far behind the best one may be chosen for its speed
_WORDS = f"""\
Rows of one experiment after the same number of training steps (where a page compares equal times:
the best value within them, as early stopping keeps it), by the first measure of quality of its
page, on the validation set. `exp` draws from
the softmax itself, which costs as much as `full`, and is left out; so are rows whose scores are
computed in another way than `full`'s (normalised vectors, absolute values). I is the largest
estimate of the mutual information of input and class among the rows: where it is small, class
frequencies tell most of what there is to know. Fastest: the shortest step among the rows that are
at most {100 * WITHIN:.0f} % behind the best one and have a time, which only a record gives that
says that it had the processors to itself. Not comparable: the rest of the step, which all rows
share, differs by more than {100 * SPREAD:.0f} % of `full`'s step between rows, as on a busy
machine. Where `full` ends no better than the most frequent classes do, it has had
too few steps to be a yardstick, and no ratio to it is given. Data with fewer than {FEWEST:,}
classes are left out: there is nothing to save. ±: half of the 95 % interval over seeds, of a
difference over those that both rows have; tied: it holds zero. Of a single seed there is none, and
differences of a few per cent may be the seed's."""


class Comparison(NamedTuple):
    """Rows that can be compared.

    Attributes:
        page, group, backend, num_classes: where.
        information: the largest estimate of I(input; class) among the rows, in nats, or NaN.
        metric: key of the learning curve.
        after: the common point, in words.
        timing: "step" where times of steps can be compared, or why not.
        learned: whether the reference ends better on the test set than the most frequent classes
            do; True where that was not recorded.
        reference: the reference's row.
        rows: of the methods at the common point, the best first: `method`; `seeds` {seed: value};
            means over these of `value`, and of `step_ms` and `head_ms` of a whole step and of its
            head alone, over the seeds that had the processors of the reference's machine to
            themselves, or NaN without one;
            `same_model`, whether its scores are the reference's (normalisation, temperature, ...);
            `exact`, whether it draws from the softmax itself, at the cost of all scores.
    """

    page: Page
    group: str
    backend: str
    num_classes: int
    information: float
    metric: str
    after: str
    timing: str
    learned: bool
    reference: tuple
    rows: list[tuple]

    @property
    def measure(self) -> str:
        """Name of the measure of quality."""
        return measures.name(self.metric)

    def behind(self, row: tuple, base: tuple) -> float:
        """How much worse a row is than another, as a fraction of the other's value."""
        change = row.value / base.value - 1
        return change if measures.lower_is_better(self.metric) else -change


def comparisons(page: Page) -> list[Comparison]:
    """Returns the comparisons of a page: none where nothing can be compared with the reference.

    Data with fewer than `FEWEST` classes are left out: there is nothing to save.
    """
    if "train" not in page.tasks:
        return []
    reach = page.plan.get("reach") or {}
    shown = filter(None, map(measures.on_curve, page.plan["columns"]))
    metric = reach.get("metric") or next(shown, None)
    runs, points = page.cells, frame.points(page.records)
    runs = runs[(runs["task"] == "train") & (runs["status"] == "ok")]
    runs = runs[runs["num_classes"] >= FEWEST]
    if metric not in points:
        return []
    compared = []
    for _, curves in points[points["record"].isin(runs["record"])].groupby("setting"):
        methods = set(curves["method"])
        base = REFERENCE if REFERENCE in methods else reach.get("method")
        if base in methods:
            compared.append(_comparison(page, metric, curves, runs.set_index("record"), base))
    return [comparison for comparison in compared if comparison and len(comparison.rows) > 1]


def _comparison(
    page: Page, metric: str, points: pd.DataFrame, runs: pd.DataFrame, base: str
) -> Comparison | None:
    lower = measures.lower_is_better(metric)
    first = points[points["method"] == base].iloc[0]
    # Of a budget the best point, as early stopping keeps it: rows see the data unequally often.
    if not first["budget"]:
        points = _common_point(points, base)
    last = points.groupby("record").tail(1)
    runs = runs.loc[last["record"]].assign(
        value=points.groupby("record")[metric].agg("min" if lower else "max")
    )
    of_base = runs[runs["method"] == base]
    rows = list(_rows(runs, of_base, lower).itertuples(index=False, name="Row"))
    reference = next((row for row in rows if row.method == base), None)
    if reference is None:
        return None
    steps = last.loc[last["record"] == first["record"], "step"].item()
    after = f"at most {first['budget']:,.0f} s" if first["budget"] else f"{steps:,} steps"
    return Comparison(
        page=page,
        group=first["group"],
        backend=first["backend"],
        num_classes=int(first["num_classes"]),
        information=last["mutual_information"].max() if "mutual_information" in last else np.nan,
        metric=metric,
        after=after,
        timing="equal time" if first["budget"] else _timing(rows, reference),
        learned=_learned(of_base, metric.replace("valid_", "test_"), lower),
        reference=reference,
        rows=rows,
    )


def _common_point(points: pd.DataFrame, base: str) -> pd.DataFrame:
    """The points of the last epoch that three methods (or all) and the reference have."""
    lengths = points.groupby(["method", "record"]).size().groupby("method").min()
    epochs = min(lengths.nlargest(3).min(), lengths[base])
    longer = points["method"].map(lengths) >= epochs
    return points[longer & (points["point"] == epochs - 1)]


def _rows(runs: pd.DataFrame, of_base: pd.DataFrame, lower: bool) -> pd.DataFrame:
    """The methods that have a value for every seed, the best first."""
    runs = runs.rename(columns=lambda name: name.removesuffix("_p50"))
    times, alone = runs[["step_ms", "head_ms"]], runs["alone"].astype(bool)
    machine = runs["machine"].isin(of_base.loc[alone, "machine"].head(1))
    runs[times.columns] = times.where(alone & machine & times.notna().all(axis=1))
    groups = runs.groupby("method")
    means = groups[[*times]].mean().assign(value=groups["value"].agg(_mean))
    means["same_model"] = groups["scores"].first() == of_base["scores"].iloc[0]
    means["exact"] = groups["sampler"].first() == "exp"
    means["seeds"] = {name: rows.set_index("seed")["value"].to_dict() for name, rows in groups}
    means = means.dropna(subset="value").sort_values("value", ascending=lower, kind="stable")
    return means.reset_index()


def _mean(values: pd.Series) -> float:
    return values.mean(skipna=False)


def _learned(runs: pd.DataFrame, score: str, lower: bool) -> bool:
    ends = runs.reindex(columns=[score, f"most_frequent.{score}"]).dropna()
    lead = ends.iloc[:, 0] - ends.iloc[:, 1]
    return bool(((-lead if lower else lead) > 0).all())


def _timing(rows: list[tuple], reference: tuple) -> str:
    rest = [row.step_ms - row.head_ms for row in rows if not pd.isna(row.step_ms)]
    if pd.isna(reference.step_ms) or len(rest) < 2:
        return "not measured"
    if max(rest) - min(rest) > SPREAD * reference.step_ms:
        return "not comparable"
    return "step"


def choices(compared: list[Comparison]) -> tuple[str, Table]:
    """A sentence on what is best, and a table of comparisons.

    Each has its best row, the next ones, and the fastest that is as good.
    """
    rows, nearest = [], []
    for item in compared:
        comparable = [row for row in item.rows if row.same_model and not row.exact]
        if len(comparable) < 2:
            continue
        rows.append(_line(item, comparable))
        first = next(row for row in comparable if row is not item.reference)
        if item.reference.method == REFERENCE and item.learned:
            words = f"{code(first.method)} with {item.measure} {_change(first, item.reference)}"
            words += ", single seed" * (len(first.seeds) == 1)
            nearest.append(f"{words} ({code(item.group)}, {item.page.link})")
    answer = f"Best against `{REFERENCE}`: {', '.join(nearest)}." if nearest else ""
    page = pd.DataFrame(rows, dtype=object).map(text)
    return answer, Table("Quality after the same training", page, words=_WORDS)


def _line(item: Comparison, rows: list[tuple]) -> dict:
    best, *others = rows
    fastest = item.timing
    timed = [row for row in rows if not pd.isna(row.step_ms)]
    near = [row for row in timed if item.behind(row, best) <= WITHIN]
    if item.timing == "step" and near:
        fast = min(near, key=lambda row: row.step_ms)
        share = fast.step_ms / item.reference.step_ms
        fastest = f"{code(fast.method)}, {share:.2f} of {code(item.reference.method)}'s step"
    return {
        "data, model": code(item.group),
        "backend": item.backend,
        "n": f"{item.num_classes:,}",
        "I, nats": item.information,
        "measure": item.measure,
        "after": item.after,
        "seeds": intervals.seeds(min(len(row.seeds) for row in rows)),
        "best": Markdown(f"{code(best.method)} {intervals.interval(best.seeds.values())}"),
        "next": Markdown(
            ", ".join(f"{code(row.method)} {_change(row, best)}" for row in others[:2])
        ),
        f"fastest within {100 * WITHIN:.0f} %": Markdown(fastest),
        "page": item.page.link,
    }


def _change(row: tuple, base: tuple) -> str:
    return intervals.change(row.seeds, base.seeds).percent()


def frontiers(compared: list[Comparison]) -> dict[str, tuple[str, dict]]:
    """Returns {file name without ending: (caption, data)}, where times can be compared."""
    return {
        file_name(f"frontier-{item.page.name}-{item.group}-{item.backend}"): _frontier(item)
        for item in compared
        if item.timing == "step"
    }


def _frontier(item: Comparison) -> tuple[str, dict]:
    points, outside, untimed, base = {}, [], [], item.reference
    sign = 1 if measures.lower_is_better(item.metric) else -1
    for row in item.rows:
        name = row.method if row.same_model else f"{row.method} *"
        value = row.value / base.value
        if pd.isna(row.step_ms):
            untimed.append(name)
        elif sign > 0 and value > OUTSIDE:
            outside.append(f"{name} at {number(value)}")
        else:
            points[name] = [row.step_ms / base.step_ms, value]
    line: list[list[float]] = []
    for name, point in sorted(points.items(), key=lambda pair: (pair[1][0], sign * pair[1][1])):
        if not name.endswith("*") and (not line or sign * (point[1] - line[-1][1]) < 0):
            line.append(point)
    data = {
        "x": f"step, multiple of {base.method}'s",
        "y": f"{item.measure}, multiple of {base.method}'s",
        "log": "xy" if sign > 0 else "x",
        "lines": {"frontier": line, **{name: [point] for name, point in points.items()}},
        "dashed": ["frontier"],
    }
    if outside:
        data["x"] += f" (not shown: {', '.join(outside)})"
    if untimed:
        data["x"] += f" (no time: {', '.join(untimed)})"
    return f"{item.group}, {item.backend}: {item.measure} after {item.after}", data

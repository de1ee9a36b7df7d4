"""What the front page says of quality: the best rows, and quality against cost. No Keras."""

from softbench.report.choices import (
    FEWEST,
    REFERENCE,
    SPREAD,
    Comparison,
    Row,
    comparisons,
    lower_is_better,
)
from softbench.report.costs import Section, link
from softbench.report.page import Page
from softbench.report.tables import Table, number

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
at most {100 * WITHIN:.0f} % behind the best one. Not comparable: the rest of the step, which all
rows share, differs by more than {100 * SPREAD:.0f} % of `full`'s step between rows, as other
programs ran beside them. Where `full` ends no better than the most frequent classes do, it has had
too few steps to be a yardstick, and no ratio to it is given. Data with fewer than {FEWEST:,}
classes are left out: there is nothing to save. Where a page names one seed, differences of a few
per cent may be the seed's."""


def choices(pages: list[Page]) -> Section:
    """The best row of each comparison, the next ones, and the fastest that is as good."""
    rows, nearest = [], []
    for page in pages:
        for item in comparisons(page):
            own = [row for row in item.rows if row.same_model and not row.exact]
            if len(own) < 2:
                continue
            rows.append([*_row(item, own), link(page)])
            first = next(row for row in own if row is not item.reference)
            if item.reference.method == REFERENCE and item.learned:
                change = _change(first, item.reference)
                measure = item.metric.removeprefix("valid_")
                words = f"`{first.method}` with {measure} {change}"
                nearest.append(f"{words} (`{item.group}`, {link(page)})")
    header = ["data, model", "backend", "n", "I, nats", "measure", "after", "best", "next"]
    header += [f"fastest within {100 * WITHIN:.0f} %", "page"]
    answer = f"Best against `{REFERENCE}`: {', '.join(nearest)}." if nearest else ""
    return Section(answer, _WORDS, Table("Quality after the same training", header, rows))


def _row(item: Comparison, own: list[Row]) -> list[str]:
    best, *others = own
    fastest = item.timing
    if item.timing == "step":
        near = [row for row in own if item.behind(row, best) <= WITHIN]
        fast = min(near, key=lambda row: row.step_ms)
        share = fast.step_ms / item.reference.step_ms
        fastest = f"`{fast.method}`, {share:.2f} of `{item.reference.method}`'s step"
    information = "-" if item.information is None else number(item.information)
    row = [f"`{item.group}`", item.backend, f"{item.num_classes:,}", information]
    row += [item.metric.removeprefix("valid_"), item.after, f"`{best.method}` {number(best.value)}"]
    return [*row, ", ".join(f"`{o.method}` {_change(o, best)}" for o in others[:2]), fastest]


def _change(row: Row, base: Row) -> str:
    return f"{100 * (row.value / base.value - 1):+.1f} %"


def frontiers(pages: list[Page]) -> dict[str, tuple[str, dict]]:
    """Returns {file name without ending: (caption, data)}, where times can be compared."""
    return {
        f"frontier-{page.name}-{item.group}-{item.backend}": _frontier(item)
        for page in pages
        for item in comparisons(page)
        if item.timing == "step"
    }


def _frontier(item: Comparison) -> tuple[str, dict]:
    points, outside, base = {}, [], item.reference
    sign = 1 if lower_is_better(item.metric) else -1
    for row in item.rows:
        name = row.method if row.same_model else f"{row.method} *"
        value = row.value / base.value
        if sign > 0 and value > OUTSIDE:
            outside.append(f"{name} at {number(value)}")
        else:
            points[name] = [row.step_ms / base.step_ms, value]
    line: list[list[float]] = []
    for name, point in sorted(points.items(), key=lambda pair: (pair[1][0], sign * pair[1][1])):
        if not name.endswith("*") and (not line or sign * (point[1] - line[-1][1]) < 0):
            line.append(point)
    measure = item.metric.removeprefix("valid_")
    data = {
        "x": f"step, multiple of {base.method}'s",
        "y": f"{measure}, multiple of {base.method}'s",
        "log": "xy" if sign > 0 else "x",
        "lines": {"frontier": line, **{name: [point] for name, point in points.items()}},
        "dashed": ["frontier"],
    }
    if outside:
        data["x"] += f" (not shown: {', '.join(outside)})"
    return f"{item.group}, {item.backend}: {measure} after {item.after}", data

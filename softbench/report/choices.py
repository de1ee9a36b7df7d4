"""Which method to use when: comparisons that the records bear out, by fixed rules. No Keras.

A comparison is made among the rows of one experiment, data set, model, backend and device, after
the same number of epochs, by the first measure of quality among the columns of the page.
"""

import json
from collections.abc import Mapping
from typing import NamedTuple

from softbench.report.page import Page
from softbench.report.tables import group_name

REFERENCE = "full"
# Rows whose time outside the head, which all share, differs by more of the reference's step did
# not have the machine to themselves.
SPREAD = 0.5
FEWEST = 1_000  # classes
_MODEL = {"normalize": False, "temperature": 1.0, "absolute": False, "use_bias": True}
_QUALITY = {"perplexity": "perplexity", "log_likelihood": "nll"}


class Row(NamedTuple):
    """A method at the common point; means over its seeds.

    Attributes:
        method: its name.
        value: the measure of quality.
        step_ms: of a whole step, or None.
        head_ms: of its head alone, or None.
        same_model: whether its scores are the reference's (normalisation, temperature, ...).
        exact: whether it draws from the softmax itself, at the cost of all scores.
    """

    method: str
    value: float
    step_ms: float | None
    head_ms: float | None
    same_model: bool
    exact: bool


class Comparison(NamedTuple):
    """Rows that can be compared.

    Attributes:
        page, group, backend: where.
        num_classes: n.
        information: the largest estimate of I(input; class) among the rows, in nats, or None.
        metric: key of the learning curve.
        after: the common point, in words.
        timing: "step" where times of steps can be compared, or why not.
        learned: whether the reference ends better on the test set than the most frequent classes
            do; True where that was not recorded.
        reference: the reference's row.
        rows: all rows, the best first.
    """

    page: str
    group: str
    backend: str
    num_classes: int
    information: float | None
    metric: str
    after: str
    timing: str
    learned: bool
    reference: Row
    rows: list[Row]

    def behind(self, row: Row, base: Row) -> float:
        """How much worse a row is than another, as a fraction of the other's value."""
        change = row.value / base.value - 1
        return change if lower_is_better(self.metric) else -change


def lower_is_better(metric: str) -> bool:
    """Whether less of a measure is more quality."""
    return metric.endswith(("perplexity", "nll"))


def comparisons(page: Page) -> list[Comparison]:
    """Returns the comparisons of a page: none where no method stands beside the reference.

    Data with fewer than `FEWEST` classes are left out: there is nothing to save.
    """
    metric, groups = _metric(page.plan), {}
    for record in page.ok("train"):
        if metric and record.get("curve") and record["num_classes"] >= FEWEST:
            groups.setdefault(_key(record), []).append(record)
    reach = (page.plan.get("reach") or {}).get("method")
    found = []
    for _, records in sorted(groups.items()):
        methods: dict[str, list[dict]] = {}
        for record in records:
            methods.setdefault(next(iter(record["config"]["methods"])), []).append(record)
        base = REFERENCE if REFERENCE in methods else reach
        if base in methods and len(methods) > 1:
            found.append(_comparison(page, metric, methods, base))
    return [comparison for comparison in found if comparison and len(comparison.rows) > 1]


def _metric(plan: Mapping) -> str | None:
    if plan.get("reach"):
        return plan["reach"]["metric"]
    for column in plan["columns"]:
        name = column.removeprefix("test_").removeprefix("valid_")
        if name in ("perplexity", "log_likelihood", "accuracy") or name.startswith("precision"):
            return f"valid_{_QUALITY.get(name, name)}"
    return None


def _key(record: Mapping) -> str:
    config = {k: v for k, v in record["config"].items() if k not in ("methods", "seed", "epochs")}
    return json.dumps([group_name(config), config, record["device"]["name"]], sort_keys=True)


def _comparison(page: Page, metric: str, methods: Mapping, base: str) -> Comparison | None:
    first = methods[base][0]
    config, budget = first["config"], first["config"].get("max_train_seconds")
    # Of a budget the best point, as early stopping keeps it: rows see the data unequally often.
    index, methods = (None, methods) if budget else _common_point(methods, base)
    rows = [_row(name, methods[name], metric, index, _scores(first)) for name in methods]
    rows = [row for row in rows if row.value is not None]
    rows.sort(key=lambda row: row.value if lower_is_better(metric) else -row.value)
    reference = next((row for row in rows if row.method == base), None)
    if reference is None:
        return None
    everything = [record for records in methods.values() for record in records]
    points = [record["curve"][-1 if index is None else index] for record in everything]
    estimates = [point.get("mutual_information") for point in points]
    return Comparison(
        page=page.name,
        group=group_name(config),
        backend=config["backend"],
        num_classes=first["num_classes"],
        information=max((e for e in estimates if e is not None), default=None),
        metric=metric,
        after=f"at most {budget:,.0f} s" if budget else f"{first['curve'][index]['step']:,} steps",
        timing="equal time" if budget else _timing(rows, reference),
        learned=all(_learned(record, metric) for record in methods[base]),
        reference=reference,
        rows=rows,
    )


def _learned(record: Mapping, metric: str) -> bool:
    key = metric.replace("valid_", "test_")
    value, chance = (record.get(part, {}).get(key) for part in ("final", "most_frequent"))
    if value is None or chance is None:
        return True
    return value < chance if lower_is_better(metric) else value > chance


def _common_point(methods: Mapping[str, list[dict]], base: str) -> tuple[int, dict]:
    """The index of the last epoch that three methods (or all) and the reference have; those."""
    lengths = {name: min(len(r["curve"]) for r in rows) for name, rows in methods.items()}
    enough = min(3, len(methods))
    epochs = sorted(lengths.values())[-enough]
    epochs = min(epochs, lengths[base])
    return epochs - 1, {k: rows for k, rows in methods.items() if lengths[k] >= epochs}


def _row(name: str, records: list[dict], metric: str, index: int | None, scores: list) -> Row:
    def mean(values: list) -> float | None:
        return sum(values) / len(values) if values and None not in values else None

    def value(record: Mapping) -> float | None:
        if index is not None:
            return record["curve"][index].get(metric)
        found = [point[metric] for point in record["curve"] if point.get(metric) is not None]
        return (min if lower_is_better(metric) else max)(found, default=None)

    kwargs = records[0]["config"]["methods"][name].get("kwargs", {})
    return Row(
        method=name,
        value=mean([value(record) for record in records]),
        step_ms=mean([(record.get("step_ms") or {}).get("median") for record in records]),
        head_ms=mean([(record.get("head_ms") or {}).get("median") for record in records]),
        same_model=_scores(records[0]) == scores,
        exact=sampler_name(kwargs) == "exp",
    )


def _scores(record: Mapping) -> list:
    """What decides how a method's scores come from its table."""
    (method,) = record["config"]["methods"].values()
    kwargs = method.get("kwargs", {})
    return [kwargs.get(key, default) for key, default in _MODEL.items()]


def sampler_name(kwargs: Mapping) -> str | None:
    """Returns the registry name of the sampler among a head's arguments, or None."""
    sampler = kwargs.get("sampler")
    return sampler.get("class_name") if isinstance(sampler, Mapping) else sampler


def _timing(rows: list[Row], reference: Row) -> str:
    if any(row.step_ms is None or row.head_ms is None for row in rows):
        return "not measured"
    rest = [row.step_ms - row.head_ms for row in rows]
    if max(rest) - min(rest) > SPREAD * reference.step_ms:
        return "not comparable"
    return "step"

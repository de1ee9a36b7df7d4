"""Which method to use, decided by seeds at equal price. Needs no Keras.

`softbench-report` decides from the records of the experiments `decisions_<problem>` and writes
`softbench/decisions.json`. Pages and `softbench-advise` say what is in it and nothing else.
"""

import json
import math
import re
import statistics
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from softbench.commands import ConfigError
from softbench.report import measures
from softbench.report.frame import Frame
from softbench.report.ranking import SIMPLICITY, Row, rank, simplest, worse

PATH = "softbench/decisions.json"  # next to the folder of results
FOLDER = "decisions_"  # begins the names of the experiments
# Parts of the steps that the reference needs, which are those of the highest price.
LEVELS = {"a tenth": 0.1, "a third": 1 / 3, "all": 1.0}
REFERENCE = "full"
SEEDS = 3  # that a row has at least
HOPELESS = 0.1  # a method whose first seed is so much worse at the lowest price is given up
FLAT, LAST = 0.01, 2  # what the last points of the reference may have improved, and how many
LONGER = 1.5, 2.0  # times as many steps of the reference say whether more would have helped
RULE = f"""At each price the best method is the one with the best mean over seeds. A method is tied
with it if the 95 % interval of their difference, seed by seed, includes zero. Recommended is the
simplest of the tied, in this order: {", ".join(f"`{name}`" for name in SIMPLICITY)}.
A price is the most that a method may train for: its runs at a lower one count where they are better
on the validation set, in the mean over seeds.
A method counts with {SEEDS} seeds or more, and is given up if its first seed at the lowest price is
{100 * HOPELESS:g} % worse than the best. A problem is not decided if the validation figure of its
longest exact runs, a mean over seeds, improves by more than {100 * FLAT:g} % in their last {LAST}
points, unless runs of {LONGER[0]:g} to {LONGER[1]:g} times as many steps are no better, on two
seeds or more. A price is not decided if no method is better than the class frequencies."""


class Problem(NamedTuple):
    """A problem that is decided.

    Attributes:
        kind: "words", "items" or "labels".
        words: what it is.
        measure: of the test set, by which methods are compared.
    """

    kind: str
    words: str
    measure: str = "test_precision_at_1"


# Those of the config `decisions`.
PROBLEMS = {
    "ptb": Problem("words", "Penn Treebank", "test_perplexity"),
    "eltec": Problem("words", "Hungarian novels", "test_perplexity"),
    "beauty": Problem("items", "Amazon Beauty", "test_ndcg_at_10"),
    "gowalla": Problem("items", "1/3 Gowalla", "test_ndcg_at_20"),
    "yelp2018": Problem("items", "1/5 Yelp", "test_ndcg_at_20"),
    "wd50k": Problem("labels", "Wikidata"),
    "citeulike": Problem("labels", "article tags"),
    "hierarchy": Problem("labels", "a tree"),
}


def improvement(curves: Iterable[Iterable[Mapping]], measure: str) -> float:
    """Returns by how much the last points of a learning curve are better than all before them.

    The curve is the mean over those of the seeds: the best points of single ones are of chance.
    Infinite where it is too short to tell.
    """
    seeds = [_figures(curve, measure) for curve in curves]
    values = [statistics.mean(point) for point in zip(*seeds, strict=False)]
    if len(values) <= LAST:
        return math.inf
    lower = measures.lower_is_better(measure)
    pick = min if lower else max
    best = pick(values)
    return worse(pick(values[:-LAST]), best, lower, best)


def _figures(curve: Iterable[Mapping], measure: str) -> list[float]:
    """The validation figures of a learning curve, for a measure of the test set."""
    name = measures.on_curve(measure)
    return [point[name] for point in curve if point.get(name) is not None]


def of(frames: Mapping[str, Frame]) -> list[dict]:
    """Returns the content of `decisions.json`, a dict for each of `PROBLEMS`.

    Raises:
        ConfigError: for records that the rule cannot read.
    """
    names = [name.removeprefix(FOLDER) for name in frames if name.startswith(FOLDER)]
    if unknown := sorted(set(names) - {*PROBLEMS}):
        raise ConfigError(f"{FOLDER}<problem> must be one of {[*PROBLEMS]}. Received: {unknown}")
    return [_problem(name, frames.get(FOLDER + name)) for name in PROBLEMS]


def text(problems: list[dict]) -> str:
    """Returns the JSON text."""
    return json.dumps(problems, indent=1) + "\n"


def information(records: Iterable[Mapping]) -> float:
    """Returns what the input tells of the class in nats, as far as the best record knows.

    It is the log-loss of the class frequencies less the least of all records, on the test set.
    """
    ends = [(record, record[end]["test_nll"]) for record in records for end in ("best", "final")]
    return max(r["most_frequent"]["test_nll"] - nll for r, nll in ends if nll is not None)


def _problem(name: str, frame: Frame | None) -> dict:
    """A problem and its prices, the lowest first; none without records."""
    problem = PROBLEMS[name]
    made = {"problem": name, **problem._asdict(), "n": None, "information": None, "levels": []}
    prices = _by_price(frame) if frame else {}
    done = [record for record in frame.records if record["status"] == "ok"] if frame else []
    if not done:
        return made
    made |= {"n": done[0]["num_classes"], "information": _short(information(done))}
    longest = _exact(prices, max(prices))
    refused = "" if longest else f"{REFERENCE} has no run at the highest price"
    if gain_of_longer(prices, problem.measure) <= 0:
        del prices[max(prices)]  # more than is needed
    elif longest and improvement([r["curve"] for r in longest.values()], problem.measure) > FLAT:
        refused = f"the longest runs of {REFERENCE} were still improving"
    if len({_label(steps, prices) for steps in prices}) < len(prices):
        raise ConfigError(
            f"{FOLDER}{name} must have {', '.join(LEVELS)} of its highest price, once each. "
            f"Received: {sorted(prices)} steps"
        )
    chance = done[0]["most_frequent"][problem.measure]
    given_up: dict[str, float] | None = None  # by the lowest price
    for steps in sorted(prices):
        records = _up_to(prices, steps, problem.measure)
        level, given_up = _level(records, problem, chance, refused, given_up)
        told = {*level["rows"], *level["given_up"], *level["failed"]}
        told |= {m for m, seeds in prices[steps].items() if len(seeds) >= SEEDS}
        level["not_measured"] = [
            m for m in SIMPLICITY if m in frame.plan["methods"] and m not in told
        ]
        made["levels"].append({"level": _label(steps, prices), "steps": steps, **level})
    return made


def _exact(prices: Mapping[int, Mapping], steps: int) -> dict[int, dict]:
    """{seed: record} of the reference at a price, of runs that ended well."""
    runs = prices[steps].get(REFERENCE, {})
    return {seed: record for seed, record in runs.items() if record["status"] == "ok"}


def gain_of_longer(prices: Mapping[int, Mapping], measure: str) -> float:
    """Returns by how much the longest exact runs are better than the next shorter ones.

    A rate that falls over all steps makes the last points of any run improve; whether more steps
    would have helped, a longer run says. It is of the best points, a mean over common seeds;
    infinite with fewer than two seeds, or where the one is not `LONGER` times as long.

    Args:
        prices: {steps of the reference: {method: {seed: record}}}.
        measure: of the test set.
    """
    *_, shorter, longest = [0, *sorted(prices)]
    if not LONGER[0] * shorter <= longest <= LONGER[1] * shorter:
        return math.inf
    gains = _gains(_exact(prices, shorter), _exact(prices, longest), measure)
    return statistics.mean(gains) if len(gains) > 1 else math.inf


def _gains(shorter: Mapping[int, dict], longer: Mapping[int, dict], measure: str) -> list[float]:
    """By how much longer runs are better at their best validation points, for each common seed.

    Args:
        shorter, longer: {seed: record} of runs that ended well.
        measure: of the test set.
    """
    lower = measures.lower_is_better(measure)

    def best(records: Mapping[int, dict]) -> dict[int, float]:
        points = {seed: _figures(r["curve"], measure) for seed, r in records.items()}
        return {seed: min(own) if lower else max(own) for seed, own in points.items() if own}

    short, long = best(shorter), best(longer)
    return [worse(short[seed], long[seed], lower, long[seed]) for seed in short if seed in long]


def _up_to(
    prices: Mapping[int, Mapping[str, Mapping[int, dict]]], steps: int, measure: str
) -> dict[str, Mapping[int, dict]]:
    """{method: {seed: record}} of the methods of a price, with the best runs for it or for less."""
    made = dict(prices[steps])
    for less in sorted(other for other in prices if other < steps):
        for method in made.keys() & prices[less].keys():
            runs = prices[less][method]
            if all(record["status"] == "ok" for record in (*runs.values(), *made[method].values())):
                gains = _gains(runs, made[method], measure)
                if len(gains) >= SEEDS and statistics.mean(gains) < 0:
                    made[method] = runs
    return made


def _by_price(frame: Frame) -> dict[int, dict[str, dict[int, dict]]]:
    """{steps of the reference: {method: {seed: record}}}."""
    made: dict[int, dict[str, dict[int, dict]]] = {}
    measure = PROBLEMS[frame.name.removeprefix(FOLDER)].measure
    for record in frame.records:
        config = record["config"]
        steps = _steps(record)
        (method,) = config["methods"]
        ok = record["status"] == "ok"
        lacks = ok and not (record.get("price") and measure in record.get("best", {}))
        if not steps or method not in SIMPLICITY or lacks:
            raise ConfigError(
                f"A record of {frame.name} must be of one of {', '.join(SIMPLICITY)}, with "
                f"config.budget={REFERENCE}:<steps>, `price` and `best.{measure}`. "
                f"Received: {record['cell']}"
            )
        seeds = made.setdefault(steps, {}).setdefault(method, {})
        other = seeds.get(config["seed"], frame.records[0])
        same = all(other["config"][key] == config[key] for key in ("dataset", "backend"))
        if config["seed"] in seeds or not same:
            raise ConfigError(
                f"{frame.name} must have one record of a method, seed and price, all of one data "
                f"set and backend. Received: {other['cell']}, {record['cell']}"
            )
        seeds[config["seed"]] = record
    return made


def _steps(record: Mapping) -> int | None:
    """The budget of a run in steps of the reference, None if it is of another kind."""
    steps = re.fullmatch(rf"{REFERENCE}:(\d+)", record["config"].get("budget", ""))
    return int(steps[1]) if steps else None


def _label(steps: int, prices: Iterable[int]) -> str:
    """The nearest of the parts of the highest price."""
    part = steps / max(prices)
    return min(LEVELS, key=lambda name: abs(math.log(part / LEVELS[name])))


def _level(
    records: Mapping[str, Mapping[int, dict]],
    problem: Problem,
    chance: float,
    refused: str,
    given_up: dict[str, float] | None,
) -> tuple[dict, dict[str, float] | None]:
    """What is decided at a price, and `given_up` for the higher ones.

    Args:
        records: {method: {seed: record}}.
        problem: whose price it is.
        chance: what the class frequencies reach.
        refused: why the problem is not decided, "": nothing is against it.
        given_up: {method: how much worse its first seed was} at the lowest price; None: this is it.
    """
    failed, values = {}, {}
    for method, seeds in records.items():
        wrong = [r["status"] for r in seeds.values() if r["status"] != "ok"]
        own = {s: seeds[s]["best"][problem.measure] for s in sorted(seeds)} if not wrong else {}
        if wrong or None in own.values():  # a number that is not finite is null
            failed[method] = wrong[0] if wrong else "nan"
        else:
            values[method] = own
    paired = values.get(REFERENCE, {})
    whole = {m: {s: v for s, v in own.items() if s in paired} for m, own in values.items()}
    whole = {method: own for method, own in whole.items() if len(own) >= SEEDS}
    lower = measures.lower_is_better(problem.measure)
    if not refused and REFERENCE not in whole:
        refused = f"{REFERENCE} has {len(paired)} of {SEEDS} seeds"
    if not refused and len(whole) < 2:
        refused = f"no other method has {SEEDS} seeds"
    rows = {} if refused else rank(whole, lower)
    if rows:
        best = next(iter(rows.values())).mean.mean
        if worse(best, chance, lower, chance) >= 0:
            rows, refused = {}, "no method is better than the class frequencies"
        elif given_up is None:
            limit = math.log1p(HOPELESS) if lower else HOPELESS
            firsts = {m: next(iter(own.values())) for m, own in values.items() if m != REFERENCE}
            losses = {m: worse(value, best, lower, best) for m, value in firsts.items()}
            given_up = {m: _short(loss) for m, loss in losses.items() if loss >= limit}
    first = next((r for r in records.get(REFERENCE, {}).values() if r["status"] == "ok"), None)
    level = {
        "reference_ms": _short(first["price"]["reference_ms"]) if first else None,
        "recommended": simplest(rows) if rows else None,
        "undecided": refused,
        "rows": {name: _row(row, records[name], whole[name]) for name, row in rows.items()},
        "given_up": {m: loss for m, loss in (given_up or {}).items() if m not in rows},
        "failed": failed,
    }
    return level, given_up


def _row(row: Row, records: Mapping[int, dict], seeds: Iterable[int]) -> dict:
    return {
        "status": row.status,
        "mean": _short(row.mean.mean),
        "half": _short(row.mean.half),
        "behind": _short(row.behind.mean),
        "behind_half": _short(row.behind.half),
        "steps": _steps(next(iter(records.values()))),
        "price": _short(statistics.mean(records[seed]["price"]["ratio"] for seed in seeds)),
        "seeds": sorted(seeds),
        "records": [records[seed]["cell"] for seed in sorted(seeds)],
    }


def _short(value: float) -> float | None:
    return float(f"{value:.5g}") if math.isfinite(value) else None

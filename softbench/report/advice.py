"""The lines of `softbench-advise` on a user's problem. Needs no Keras."""

from collections.abc import Mapping

from softbench.report import intervals, measures, transfer
from softbench.report.decision_tables import command, percent, price, seconds
from softbench.report.decisions import PROBLEMS, REFERENCE, information
from softbench.report.intervals import Interval
from softbench.report.ranking import Row, rank, worse

FAR, DEARER = 10.0, 2.0  # times n, times the price of a step: from these on advice may be wrong


def where(kind: str, source: Mapping | None) -> str:
    """The line on the nearest problem that is decided, or on what would decide one.

    Args:
        kind: of the problem that is advised on.
        source: the other one, None if none of the kind is decided.
    """
    if source is None:
        first = next(name for name, problem in PROBLEMS.items() if problem.kind == kind)
        return f"{kind} are not decided: {command(first)}"
    level = transfer.decided(source)[-1]
    facts = f"{source['kind']}, n = {source['n']:,}, {source['information']:.2g} nats"
    cost = f"{price(source, level)} steps{seconds(level)}"
    return f"nearest that is decided: {source['words']} ({facts}), price: {cost}"


def there(source: Mapping | None, name: str) -> str:
    """What a step of a method costs in the other problem, and how far it is from the best.

    At the highest decided price that it has run at, which is said where there is a higher one.
    """
    levels = transfer.decided(source) if source else []
    level = next((one for one in reversed(levels) if name in one["rows"]), None)
    if level is None:
        return f"{'-':>6}  -"
    row = level["rows"][name]
    by = f" by {percent(row['behind'])}" if row["status"] == "worse" else ""
    at = f" at {level['level']}" if level is not levels[-1] else ""
    return f"{row['price']:6.3g}  {row['status']}{by}{at}"


def changes(n: int, source: Mapping, ratios: Mapping[str, float], rows: bool) -> str:
    """What may make another method the better one.

    Args:
        n: classes of the problem that is advised on.
        source: the other one.
        ratios: {method: price of a step} of the former.
        rows: whether its heads update the touched rows alone.
    """
    *lower, last = transfer.decided(source)
    others = {one["level"]: one["recommended"] for one in lower}
    words = [f"{name} at {level}" for level, name in others.items() if name != last["recommended"]]
    if not 1 / FAR <= n / source["n"] <= FAR:
        words.append(f"{n / source['n']:.2g} times as many classes as there")
    words += ["row updates, where the whole table takes Adam there"] * rows
    for name in ratios if REFERENCE in ratios else ():
        known = last["rows"].get(name, {}).get("price")
        dearer = ratios[name] / ratios[REFERENCE] / known if known else 1.0
        if not 1 / DEARER <= dearer <= DEARER:
            words.append(f"a step of {name}, {dearer:.2g} times as dear as there")
    return "; ".join(words) or "nothing that was looked at"


def trained(records: list[dict], measure: str) -> tuple[str, dict[str, Row]]:
    """The line on what training on a user's data has come to, and the rows that it is of.

    Args:
        records: of several methods and seeds.
        measure: of the test set, by which they are compared.
    """
    lower, form = measures.lower_is_better(measure), measures.of(measure).form
    values: dict[str, dict[int, float]] = {}
    words, done = [], [record for record in records if record["status"] == "ok"]
    for record in done:
        (name,) = record["config"]["methods"]
        values.setdefault(name, {})[record["seed"]] = record["best"][measure]
    rows = rank(values, lower) if values else {}
    for name, row in rows.items():
        chance = done[0]["most_frequent"][measure]
        words.append(f"{name} {row.mean.text(form)}")
        if worse(row.mean.mean, chance, lower, 1.0) >= 0:
            words[-1] += (
                f" (no better than the class frequencies: {intervals.number(chance, form)})"
            )
    if len(rows) > 1:
        (first, _), (_, second) = rows.items()
        won = "won" if second.status == "worse" else "is ahead but tied"
        won = won if second.behind.count > 1 else "is ahead with a single seed"
        lead = Interval(100 * second.behind.mean, 100 * second.behind.half, second.behind.count)
        words.append(f"{first} {won} by {lead.text('.2g')} %")
    if done:
        each = done[0]["config"]["max_train_seconds"]
        words.append(f"{len(done)} runs of {each:.0f} s; {information(done):.2g} nats")
    failed = [record for record in records if record["status"] != "ok"]
    words += [f"{next(iter(r['config']['methods']))} {r['status']}" for r in failed]
    return f"on your data, {measures.words(measure)}: {'; '.join(words)}", rows

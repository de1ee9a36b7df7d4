"""The decisions as texts of pages. Needs no Keras."""

import statistics
from collections.abc import Iterable, Mapping

from softbench.report import intervals, measures, transfer
from softbench.report import markdown as md
from softbench.report.decisions import (
    FOLDER,
    LEVELS,
    PROBLEMS,
    REFERENCE,
    SEEDS,
    SIMPLICITY,
    Row,
    information,
    rank,
    worse,
)
from softbench.report.intervals import Interval

FAR, DEARER = 10.0, 2.0  # times n, times the price of a step: from these on advice may be wrong
KINDS = ("words", "items", "labels")


def summary(problems: list[dict], folder: str = "", short: bool = False) -> str:
    """The table of what is recommended, at the highest price that is decided of each problem.

    Args:
        problems: content of `decisions.json`.
        folder: of the results, before their links.
        short: of each kind those with the fewest and the most classes alone.
    """
    rows, left = [], []
    for kind in KINDS:
        own = [problem for problem in problems if problem["kind"] == kind]
        decided = [problem for problem in own if transfer.decided(problem)]
        decided = sorted(decided, key=lambda problem: problem["n"])
        if short and len(decided) > 2:
            decided = [decided[0], decided[-1]]
        rows += [_line(problem, folder) for problem in decided]
        left += [] if decided else [f"{kind} ({md.code(command(own[0]['problem']))})"]
    header = [
        "problem",
        "classes",
        f"steps of `{REFERENCE}`",
        "use",
        "others tied (not run)",
        f"a step, of `{REFERENCE}`'s",
        "reaches",
    ]
    texts = [md.table(header, rows)] if rows else []
    texts += [f"Not decided, and what would decide it: {', '.join(left)}."] if left else []
    return "\n\n".join(texts)


def command(name: str) -> str:
    """What would decide a problem; the config says how many steps its prices have."""
    return f"softbench --config=decisions:{name} --config.budget={REFERENCE}:<steps>"


def _line(problem: Mapping, folder: str) -> list[str]:
    level = transfer.decided(problem)[-1]
    name, rows = level["recommended"], level["rows"]
    measure = measures.words(problem["measure"]).removeprefix("test ")
    reached = f"{measure} {_quality(rows[name], problem)}"
    if name != REFERENCE:
        reached += f"; `{REFERENCE}` {_quality(rows[REFERENCE], problem)}"
    link = f"[{_words(problem)}]({folder}{FOLDER}{problem['problem']}/README.md)"
    step, left = f"{rows[name]['price']:.2g}", len(level["not_measured"])
    cells = [
        link,
        f"{problem['n']:,}",
        _price(problem, level),
        md.code(name),
        f"{len(_tied(level))}" + f" ({left})" * bool(left),
    ]
    return [*cells, step, reached]


def _words(problem: Mapping) -> str:
    return f"{problem['kind']}: {problem['words']}"


def _tied(level: Mapping) -> list[str]:
    """The methods that are tied, without the one that is recommended."""
    tied = [name for name, row in level["rows"].items() if row["status"] != "worse"]
    return [md.code(name) for name in tied if name != level["recommended"]]


def _quality(row: Mapping, problem: Mapping) -> str:
    form = measures.of(problem["measure"]).form
    return Interval(row["mean"], row["half"], len(row["seeds"])).text(form)


def levels(problems: list[dict]) -> str:
    """The table of what is recommended at each price, and the commands that would decide others."""
    rows, left = [], []
    for problem in sorted(problems, key=lambda one: (KINDS.index(one["kind"]), one["n"] or 0)):
        if problem["levels"]:
            cells = [_cell(transfer.at(problem, level)) for level in LEVELS]
            nats = f"{problem['information']:.2g}"
            rows.append([_words(problem), f"{problem['n']:,}", nats, *cells])
        if len(transfer.decided(problem)) < len(LEVELS):
            left.append(f"* {problem['words']}: {md.code(command(problem['problem']))}")
    texts = [md.table(["problem", "n", "nats", *LEVELS], rows)] if rows else []
    texts += ["Not decided, and what would decide it:", "\n".join(left)] if left else []
    return "\n\n".join(texts)


def _cell(level: Mapping) -> str:
    if not level.get("recommended"):
        return f"not decided: {level.get('undecided', 'no records')}"
    tied = ", ".join(_tied(level))
    words = f"; tied: {tied}" if tied else ""
    left = len(level["not_measured"])
    words += f"; {left} not run" if left else ""
    return f"**{md.code(level['recommended'])}**{_seconds(level)}{words}"


def regret(problems: list[dict]) -> str:
    """How much worse the advice of the other problems is than the best."""
    made = transfer.regrets(problems)
    known = [one for one in made if one.loss is not None]
    if not known:
        count = sum(bool(transfer.decided(problem)) for problem in problems)
        which = "one problem" if count == 1 else f"{count or 'no'} problems"
        return f"How far this advice carries to another problem is not known with {which}."
    worst = max(known, key=lambda one: one.loss)
    middle = statistics.median(one.loss for one in known)
    alone = [one.nearest for one in known if one.nearest is not None]
    words = {problem["problem"]: problem["words"] for problem in problems}
    text = (
        f"Where each problem is advised on by the others, the advice is {_percent(middle)} "
        f"worse than the best in the median of {len(known)} prices, and {_percent(worst.loss)} "
        f"at worst: {md.code(worst.method)} for {words[worst.problem]} at {worst.level}."
    )
    if alone:
        text += (
            f" What the nearest alone recommends is {_percent(statistics.median(alone))} worse "
            f"in the median and {_percent(max(alone))} at worst."
        )
    other = sum(not one.alike for one in known)
    if other:
        text += f" For {other} of the prices no other problem of the kind is decided."
    missing = len(made) - len(known)
    return text + f" At {missing} more the advised method was not run." * bool(missing)


def one_for_all(problems: list[dict]) -> str:
    """What a method would lose that is used for all problems, whatever they are."""
    behind = transfer.in_common(problems)
    count = len(next(iter(behind.values()), ()))
    if count < 2:
        return "No method has run at two prices that are decided."
    least: dict[str, list[str]] = {}
    for words, of in (("worst case", max), ("median", statistics.median)):
        least.setdefault(min(behind, key=lambda m: of(behind[m])), []).append(f"the least {words}")
    texts = [
        f"{md.code(name)} has {' and '.join(ways)}, {_percent(max(behind[name]))} at worst and "
        f"{_percent(statistics.median(behind[name]))} in the median"
        for name, ways in least.items()
    ]
    return (
        f"How far the methods that have run at all {count} prices are behind the best: "
        f"{'; '.join(texts)}. No problem was left out for this. A method that was given up counts "
        "with its first seed, above too."
    )


def rows(problem: Mapping) -> str:
    """The table of a problem's page: a row for each method, a column for each price."""
    made = problem["levels"]
    present = {m for level in made for key in ("rows", "given_up", "failed") for m in level[key]}
    names = [method for method in SIMPLICITY if method in present]
    table = [[md.code(name), *(_figure(problem, level, name) for level in made)] for name in names]
    header = ["method", *(_heading(level) for level in made)]
    left = {level["level"]: _named(level["not_measured"], names) for level in made}
    words = [f"{level['level']}: {level['undecided']}" for level in made if level["undecided"]]
    texts = [f"{measures.words(problem['measure'])}, in brackets the price of a step"]
    texts = [f"{texts[0][:1].upper()}{texts[0][1:]}. Recommended is what is bold."] if names else []
    texts += [md.table(header, table)] if names else []
    texts += [f"Not decided: {'; '.join(words)}."] if words else []
    words = [f"{label}: {methods}" for label, methods in left.items() if methods]
    texts += [f"Without {SEEDS} seeds: {'; '.join(words)}."] if words else []
    return "\n\n".join(texts)


def _named(methods: Iterable[str], but: Iterable[str]) -> str:
    """Methods that are not in the table, in a sentence."""
    return ", ".join(md.code(method) for method in methods if method not in but)


def _heading(level: Mapping) -> str:
    return f"{level['level']}, {level['steps']:,} steps{_seconds(level)}"


def _price(problem: Mapping, level: Mapping) -> str:
    """In steps of the reference, of how many: labels say only nearly which part that is."""
    return f"{level['steps']:,} of {problem['levels'][-1]['steps']:,}"


def _seconds(level: Mapping) -> str:
    unit = level["reference_ms"]
    return f" ({level['steps'] * unit / 1000:,.0f} s)" if unit else ""


def _percent(part: float) -> str:
    return f"{100 * part:{'.0f' if part >= 0.995 else '.2g'}} %"


def _figure(problem: Mapping, level: Mapping, name: str) -> str:
    """What a method reaches at a price."""
    if name in level["rows"]:
        row = level["rows"][name]
        text = f"{_quality(row, problem)} [{row['price']:.2g}]"
        text = f"**{text}**" if name == level["recommended"] else text
        return text if row["status"] == "worse" else f"{text} {row['status']}"
    if name in level["failed"]:
        return f"failed: {level['failed'][name]}"
    lost = level["given_up"].get(name)
    return intervals.EMPTY if lost is None else f"given up, first seed {_percent(lost)} worse"


# Of `softbench-advise`, which is for another problem.


def where(kind: str, source: Mapping | None) -> str:
    """The line on the decided problem that the advice is from, and what would decide a nearer one.

    Args:
        kind: of the problem that is advised on.
        source: the other one, None if none is decided.
    """
    first = next(name for name, problem in PROBLEMS.items() if problem.kind == kind)
    text = "" if source and source["kind"] == kind else f"{kind} are not decided: {command(first)}"
    if source is None:
        return text
    level = transfer.decided(source)[-1]
    facts = f"{source['kind']}, n = {source['n']:,}, {source['information']:.2g} nats"
    near = f"{source['words']} ({facts}), price: {_price(source, level)} steps{_seconds(level)}"
    return f"{text}; from {near}" if text else f"nearest that is decided: {near}"


def there(source: Mapping | None, name: str) -> str:
    """What a step of a method costs in the other problem, and how far it is from the best."""
    row = transfer.decided(source)[-1]["rows"].get(name) if source else None
    if row is None:
        return f"{'-':>6}  -"
    worse = f" by {_percent(row['behind'])}" if row["status"] == "worse" else ""
    return f"{row['price']:6.3g}  {row['status']}{worse}"


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
        price = last["rows"].get(name, {}).get("price")
        dearer = ratios[name] / ratios[REFERENCE] / price if price else 1.0
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
        seconds = done[0]["config"]["max_train_seconds"]
        words.append(f"{len(done)} runs of {seconds:.0f} s; {information(done):.2g} nats")
    failed = [record for record in records if record["status"] != "ok"]
    words += [f"{next(iter(r['config']['methods']))} {r['status']}" for r in failed]
    return f"on your data, {measures.words(measure)}: {'; '.join(words)}", rows

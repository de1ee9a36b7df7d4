"""The decisions as texts of pages. Needs no Keras."""

import statistics
from collections.abc import Iterable, Mapping

from softbench.report import intervals, measures, transfer
from softbench.report import markdown as md
from softbench.report.decisions import (
    FOLDER,
    LEVELS,
    REFERENCE,
    SEEDS,
)
from softbench.report.intervals import Interval
from softbench.report.ranking import SIMPLICITY

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
        price(problem, level),
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
    return f"**{md.code(level['recommended'])}**{seconds(level)}{words}"


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
        f"Where each problem is advised on by the others, the advice is {percent(middle)} "
        f"worse than the best in the median of {len(known)} prices, and {percent(worst.loss)} "
        f"at worst: {md.code(worst.method)} for {words[worst.problem]} at {worst.level}."
    )
    if alone:
        text += (
            f" What the nearest alone recommends is {percent(statistics.median(alone))} worse "
            f"in the median and {percent(max(alone))} at worst."
        )
    other = sum(not one.alike for one in known)
    if other:
        text += f" For {other} of the prices no other problem of the kind is decided."
    missing = len(made) - len(known)
    text += f" At {missing} more the advised method was not run." * bool(missing)
    single = [
        f"{problem['words']} at {level['level']}"
        for problem in problems
        for level in transfer.decided(problem)
        if level not in transfer.contested(problem)
    ]
    left = f" Left out, here and below, because one method alone has run beside `{REFERENCE}`: "
    return text + (left + ", ".join(single) + ".") * bool(single)


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
        f"{md.code(name)} has {' and '.join(ways)}, {percent(max(behind[name]))} at worst and "
        f"{percent(statistics.median(behind[name]))} in the median"
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
    return f"{level['level']}, {level['steps']:,} steps{seconds(level)}"


def price(problem: Mapping, level: Mapping) -> str:
    """In steps of the reference, of how many: labels say only nearly which part that is."""
    return f"{level['steps']:,} of {problem['levels'][-1]['steps']:,}"


def seconds(level: Mapping) -> str:
    unit = level["reference_ms"]
    return f" ({level['steps'] * unit / 1000:,.0f} s)" if unit else ""


def percent(part: float) -> str:
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
    return intervals.EMPTY if lost is None else f"given up, first seed {percent(lost)} worse"

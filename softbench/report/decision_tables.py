"""The decisions as texts of pages. Needs no Keras."""

import statistics
from collections import Counter
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
    """The table of what is recommended, each problem at one price.

    It is the highest decided one that what is recommended makes use of. Beside it is the reference;
    where that is recommended itself, the best of the others.

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
    texts = [md.table(header, rows), _by_kind(problems)] if rows else []
    texts += [f"Not decided, and what would decide it: {', '.join(left)}."] if left else []
    return "\n\n".join(texts)


def _by_kind(problems: Iterable[Mapping]) -> str:
    """What is recommended for each kind, and at how many of its decided prices."""
    counts: dict[str, Counter] = {kind: Counter() for kind in KINDS}
    for problem in problems:
        levels = transfer.decided(problem)
        counts[problem["kind"]].update(level["recommended"] for level in levels)
    texts = []
    for kind, found in counts.items():
        names = [f"{md.code(name)} at {count}" for name, count in found.most_common()]
        if names:
            texts.append(f"for {kind} {' and '.join(names)} of {found.total()}")
    return f"Of all decided prices, recommended are {', '.join(texts)}."


def command(name: str) -> str:
    """What would decide a problem; the config says how many steps its prices have."""
    return f"softbench --config=decisions:{name} --config.budget={REFERENCE}:<steps>"


def _line(problem: Mapping, folder: str) -> list[str]:
    level = max(reversed(transfer.decided(problem)), key=_is_used)
    name, rows = level["recommended"], level["rows"]
    other = REFERENCE if name != REFERENCE else next(m for m in rows if m != REFERENCE)
    measure = measures.words(problem["measure"]).removeprefix("test ")
    reached = f"{measure} {_quality(rows[name], problem, level)}"
    reached += f"; {md.code(other)} {_quality(rows[other], problem, level)}"
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


def _is_used(level: Mapping) -> bool:
    """Whether what is recommended trains for all of a price."""
    return level["rows"][level["recommended"]]["steps"] == level["steps"]


def _words(problem: Mapping) -> str:
    return f"{problem['kind']}: {problem['words']}"


def _tied(level: Mapping) -> list[str]:
    """The methods that are tied, without the one that is recommended."""
    tied = [name for name, row in level["rows"].items() if row["status"] != "worse"]
    return [md.code(name) for name in tied if name != level["recommended"]]


def _quality(row: Mapping, problem: Mapping, level: Mapping) -> str:
    """What a row reaches, and for how many steps' price if it is not all of the price."""
    form = measures.of(problem["measure"]).form
    text = Interval(row["mean"], row["half"], len(row["seeds"])).text(form)
    return text if row["steps"] == level["steps"] else f"{text} for {row['steps']:,}"


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
    name, tied, left = level["recommended"], ", ".join(_tied(level)), len(level["not_measured"])
    words = [f"**{md.code(name)}**{seconds(level)}"]
    words += [] if _is_used(level) else [f"best for {level['rows'][name]['steps']:,} steps"]
    words += [f"tied: {tied}"] if tied else []
    words += [f"{left} not run"] if left else []
    return "; ".join(words)


def regret(problems: list[dict]) -> str:
    """How much worse the advice of the other problems of a kind is than the best."""
    made = transfer.regrets(problems)
    known = [one for one in made if not one.left_out]
    words = {problem["problem"]: problem["words"] for problem in problems}
    left = [f"{words[one.problem]} at {one.level} ({one.left_out})" for one in made if one.left_out]
    others = f" Left out: {', '.join(left)}." if left else ""
    if not known:
        return f"How far this advice carries to another problem is not known.{others}"
    worst = max(known, key=lambda one: one.loss)
    new = [one.loss for one in known if one.is_new]
    later = f" Of the {len(new)} decided after its rule was fixed: {_spread(new)}." if new else ""
    return (
        "Where each problem is advised on by the others of its kind, this advice is behind "
        f"the best by {_spread([one.loss for one in known])}, over {len(known)} prices. "
        f"The worst is {md.code(worst.method)} for {words[worst.problem]} at {worst.level}."
        f"{later}{others}"
    )


def _spread(lost: list[float]) -> str:
    """The median, the mean and the most of losses."""
    return (
        f"{percent(statistics.median(lost))} in the median, {percent(statistics.mean(lost))} in "
        f"the mean and {percent(max(lost))} at worst"
    )


def one_for_all(problems: list[dict]) -> str:
    """What a method would lose that is used for all problems, whatever they are."""
    behind = transfer.in_common(problems)
    count = len(next(iter(behind.values()), ()))
    if count < 2:
        return "No method has run at two prices that are decided."
    best = min(behind, key=lambda m: statistics.mean(behind[m]))
    return (
        f"Of the methods that have run at all {count} prices where more than one has run beside "
        f"`{REFERENCE}`, one for every kind of problem would best be {md.code(best)}: it is behind "
        f"the best by {_spread(behind[best])}. No problem was left out for this. A method that was "
        "given up counts with its first seed, above too."
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
    less = any(row["steps"] < level["steps"] for level in made for row in level["rows"].values())
    texts += [
        "Where steps are given, the runs of that lower price are better on the validation set."
    ] * less
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
        text = f"{_quality(row, problem, level)} [{row['price']:.2g}]"
        text = f"**{text}**" if name == level["recommended"] else text
        return text if row["status"] == "worse" else f"{text} {row['status']}"
    if name in level["failed"]:
        return f"failed: {level['failed'][name]}"
    lost = level["given_up"].get(name)
    if lost is None:
        return intervals.EMPTY
    is_lowest = level is problem["levels"][0]  # where it ran
    return f"given up, first seed {percent(lost)} worse" if is_lowest else "given up"

"""Claims of papers, read from `claims.toml`, and what records say of them. Needs no Keras.

A claim is one ratio of two selections of rows or several, and the range that it says each lies in:

    "rff / full < 1.05"    "exp n=10000 / rff n=10000 > 13.5"    "full / 111.5 in 0.98 to 1.02"

A selection is fields of the frame, `column=value`, a word alone being a method; those of the
claim's `where` are of both sides. `measure=` and `experiment=` may be of one side. A measure of
learning curves is compared as `_trained` says; with `until`, the seconds to the right side's best
value of it are.
"""

import collections
import functools
import math
import re
import shlex
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from scipy import stats

from softbench.report import frame as frame_lib
from softbench.report import intervals, measures
from softbench.report.frame import Frame
from softbench.report.intervals import number

HOLDS, FAILS, OPEN = "holds", "does not hold", "not decided"
_SINGLE, _BETWEEN = "single seed", "the interval reaches over the limit"
_LACKING = "a row or a number is missing"
RULE = """\
A claim is one ratio of numbers of records or several, and the range that the paper says each lies
in. It **holds** where each ratio's 95 % interval lies in its range, and **does not hold** where the
interval of one lies outside it (of k ratios the interval at 1 - 0.05 / k). Else it is **not
decided**. Intervals are over seeds, of ratios of two records with the same seed (Student's t); a
single seed decides nothing, but where its record has a standard error of a mean over examples or
draws, or a spread of timed steps. Learning curves are compared after the same steps; where rows
trained for equal times, at the best point of each. A range for a paper's "close" is ours."""


class Claim(NamedTuple):
    """A claim.

    Attributes:
        name: by which pages refer to its verdict.
        paper, place: where it is made.
        says: one plain sentence.
        experiment, measure: of its selections.
        ratios: as above, all of which it says.
        data: what the records are of, where that is not what the paper has.
        where: fields of both sides.
        until: measure of learning curves that is waited for, or "".
        run: command that makes its records, where there are none.
    """

    name: str
    paper: str
    place: str
    says: str
    experiment: str
    measure: str
    ratios: list[str]
    data: str = ""
    where: str = ""
    until: str = ""
    run: str = ""


class Part(NamedTuple):
    """One ratio of a claim, read: fields of both sides (right may be a number), and the range."""

    text: str
    left: dict[str, str]
    right: dict[str, str] | float
    low: float
    high: float

    @property
    def range(self) -> str:
        """The range in a few signs."""
        if math.isinf(self.low):
            return f"< {number(self.high)}"
        if math.isinf(self.high):
            return f"> {number(self.low)}"
        return f"{number(self.low)} to {number(self.high)}"


class Ratio(NamedTuple):
    """A ratio that records give.

    Attributes:
        value: NaN where there is none.
        error: its standard error; infinite of a single seed.
        freedom: degrees of freedom of the error, infinite of one that is known.
        of: what the error is over, and where the ratio was taken, in words.
        missing: why there is none; "" where there is one.
    """

    value: float
    error: float = math.inf
    freedom: float = math.inf
    of: str = _SINGLE
    missing: str = ""

    def ends(self, level: float = 0.95) -> tuple[float, float]:
        """Returns the ends of the interval at a level, by Student's t."""
        if not self.error:
            return self.value, self.value
        half = self.error * float(stats.t.ppf((1 + level) / 2, self.freedom))
        return self.value - half, self.value + half

    def __str__(self) -> str:
        if self.missing:
            return "-"
        low, high = self.ends()
        half = number(float(f"{(high - low) / 2:.2g}"))
        return number(self.value) + (f" ± {half}" if 0 < self.error < math.inf else "")


class Verdict(NamedTuple):
    """What the records say of a claim.

    Attributes:
        word: `HOLDS`, `FAILS` or `OPEN`.
        reason: why it is not decided, or how many ratios do not hold; "" where it holds.
        parts, ratios, states: of each ratio; a state is `HOLDS`, `FAILS` or why it is not decided.
    """

    word: str
    reason: str
    parts: list[Part]
    ratios: list[Ratio]
    states: list[str]

    def __str__(self) -> str:
        return f"{self.word} ({self.reason})" if self.reason else self.word

    @property
    def decisive(self) -> int:
        """Index of a ratio that decides: one that fails, else one that is open, else the first."""
        opened = [i for i, state in enumerate(self.states) if state != HOLDS]
        return next((i for i in opened if self.states[i] == FAILS), (opened or [0])[0])


@functools.cache
def library() -> list[Claim]:
    """Returns all claims, in the order of the file."""
    entries = tomllib.loads(Path(__file__).with_name("claims.toml").read_text())["claim"]
    return [Claim(**entry) for entry in entries]


def part(claim: Claim, text: str) -> Part:
    """Reads one ratio of a claim."""
    sides, sign, limits = re.fullmatch(r"(.*?) (<|>|in) (.*)", text).groups()
    left, right = sides.split(" / ")
    ends = [float(limit) for limit in limits.split(" to ")]
    low, high = {"<": (-math.inf, ends[0]), ">": (ends[0], math.inf)}.get(sign, (ends[0], ends[-1]))
    try:
        return Part(text, _fields(claim, left), float(right), low, high)
    except ValueError:
        return Part(text, _fields(claim, left), _fields(claim, right), low, high)


def _fields(claim: Claim, text: str) -> dict[str, str]:
    fields = {"experiment": claim.experiment, "measure": claim.measure}
    for word in [*claim.where.split(), *text.split()]:
        name, is_field, value = word.partition("=")
        fields |= {name: value} if is_field else {"method": name}
    return fields


def verdict(claim: Claim, frames: Mapping[str, Frame]) -> Verdict:
    """Returns what the records say of a claim, by the rule that `RULE` states."""
    parts = [part(claim, text) for text in claim.ratios]
    ratios = [ratio(one, frames, claim.until) for one in parts]
    count = len(parts)
    states = [_state(one, ratio, count) for one, ratio in zip(parts, ratios, strict=True)]
    failed = states.count(FAILS)
    reasons = collections.Counter(state for state in states if state != HOLDS)
    if failed:
        word, reason = FAILS, f"{failed} of {count} ratios" if count > 1 else ""
    elif not reasons:
        word, reason = HOLDS, ""
    elif count == 1:
        word, reason = OPEN, ratios[0].missing or states[0]
    else:
        word = OPEN
        reason = "; ".join(f"{why}: {times} of {count}" for why, times in reasons.items())
    return Verdict(word, reason, parts, ratios, states)


def _state(part: Part, ratio: Ratio, count: int) -> str:
    if ratio.missing:
        return _LACKING
    if math.isinf(ratio.error):
        return _SINGLE
    low, high = ratio.ends()
    if part.low <= low and high <= part.high:
        return HOLDS
    low, high = ratio.ends(1 - 0.05 / count)
    return FAILS if high < part.low or low > part.high else _BETWEEN


def ratio(part: Part, frames: Mapping[str, Frame], until: str = "") -> Ratio:
    """Returns a ratio with its error: over seeds, else of what the measure says its error is."""
    measure, experiment = part.left["measure"], part.left["experiment"]
    if experiment not in frames:
        return Ratio(math.nan, missing=f"no record of {experiment}")
    if until or (measure.startswith("valid_") and measure in frames[experiment].curves):
        return _trained(part, frames[experiment], until)
    try:
        left = _values(part.left, frames)
        right = dict.fromkeys(left, (part.right, 0.0, True))
        if isinstance(part.right, dict):
            right = _values(part.right, frames)
        pairs = [(left[seed], right[seed]) for seed in left if seed in right]
        ratio = over_seeds(a[0] / b[0] for a, b in pairs)
    except (LookupError, TypeError, ZeroDivisionError) as error:
        return Ratio(math.nan, missing=f"no such number: {error}")
    if ratio.missing or ratio.freedom < math.inf:
        return ratio
    ((_, *of_left), (_, *of_right)) = pairs[0]
    if of_left[1] and of_right[1]:
        return Ratio(ratio.value, 0.0, of="exact")
    relative = math.hypot(of_left[0], of_right[0])
    if relative:
        return Ratio(ratio.value, abs(ratio.value) * relative, of="by the record's own spread")
    return ratio


def over_seeds(values: Iterable[float], after: str = "") -> Ratio:
    """Returns the mean of ratios, one for each seed."""
    values, where = list(values), f", {after}" if after else ""
    if not values:
        return Ratio(math.nan, missing="no seed in common")
    if any(map(pd.isna, values)):
        return Ratio(math.nan, missing="a value is missing (NaN)")
    interval = intervals.interval(values)
    if interval.count < 2:
        return Ratio(interval.mean, of=f"{_SINGLE}{where}")
    freedom = interval.count - 1
    error = interval.half / float(stats.t.ppf(0.975, freedom))
    return Ratio(interval.mean, error, freedom, f"{interval.count} seeds{where}")


def _values(fields: Mapping[str, str], frames: Mapping[str, Frame]) -> dict:
    """{seed: (number, its standard error as a fraction, whether it is exact)} of a selection.

    Of a time, half of the range from 20 to 80 % of the steps is taken for the standard error: the
    spread of one step, as times of other days differ by as much.
    """
    where = dict(fields)
    experiment, name = where.pop("experiment"), where.pop("measure")
    runs = frames[experiment].runs if experiment in frames else pd.DataFrame()
    rows = frame_lib.select(runs, status="ok", **where)
    if name not in rows or rows.empty or rows["seed"].duplicated().any():
        raise LookupError(f"{len(rows)} rows of {experiment} are {where}")
    measure, found = measures.of(name), {}
    for row in rows.to_dict("records"):
        error = row.get(measure.error) or 0.0
        if f"{name}_p20" in row:
            error = (row[f"{name}_p80"] - row[f"{name}_p20"]) / 2
        found[row["seed"]] = (row[name], error / row[name] if error else 0.0, measure.exact)
    return found


def _trained(part: Part, frame: Frame, until: str) -> Ratio:
    """A measure of the learning curves of two methods, seed by seed.

    After the last point that both have, on whatever device; where they trained for equal times, the
    best point of each, both on the same device, which another seed need not have. With `until`, the
    seconds to the best value that the right one has of it, all of them where it is not reached. Of
    several settings the one with the most common seeds, of these the longest.
    """
    where, right = dict(part.left), dict(part.right)
    name, methods = where.pop("measure"), [where.pop("method"), right["method"]]
    experiment = where.pop("experiment")
    metric = until or name
    points = frame_lib.select(frame.curves, status="ok", **where)
    lacking = [method for method in methods if method not in set(points["method"])]
    if lacking or metric not in points:
        what = ", ".join(f"`{method}`" for method in lacking) or metric
        return Ratio(math.nan, missing=f"no result of {what} on {experiment}")
    candidates = []
    for _, curves in points.groupby("problem", sort=False):
        timed = bool(until) or curves["budget"].iloc[0] > 0
        left, right = (_curves(curves, method, timed) for method in methods)
        pairs = {key[0]: (left[key], right[key]) for key in left if key in right}
        if pairs:
            compare = _seconds if until else _at_common_point
            steps, values, after = compare(list(pairs.values()), metric)
            candidates.append((len(pairs), steps, values, after))
    if not candidates:
        words = " and ".join(f"`{method}`" for method in methods)
        return Ratio(math.nan, missing=f"{words} have no setting and seed in common")
    _, _, values, after = max(candidates, key=lambda item: item[:2])
    return over_seeds(values, after)


def _curves(points: pd.DataFrame, method: str, timed: bool) -> dict[tuple, pd.DataFrame]:
    """{(seed, machine if timed): the longest learning curve} of a method, the longest last."""
    rows = points[points["method"] == method]
    curves = sorted((curve for _, curve in rows.groupby("record")), key=len)
    return {(c["seed"].iloc[0], c["machine"].iloc[0] if timed else ""): c for c in curves}


def _at_common_point(pairs: list, metric: str) -> tuple[int, list[float], str]:
    """Steps, ratios and the point in words."""
    budget = pairs[0][0]["budget"].iloc[0]
    if budget:
        best = "min" if measures.lower_is_better(metric) else "max"
        ratios = [left[metric].agg(best) / right[metric].agg(best) for left, right in pairs]
        return int(budget), ratios, f"best within {budget:,.0f} s"
    index = min(len(curve) for pair in pairs for curve in pair) - 1
    steps = int(pairs[0][0]["step"].iloc[index])
    ratios = [left[metric].iloc[index] / right[metric].iloc[index] for left, right in pairs]
    return steps, ratios, f"after {steps:,} steps"


def _seconds(pairs: list, metric: str) -> tuple[int, list[float], str]:
    """Steps, ratios of the seconds and how many reached the goal in words."""
    ratios, missed = [], 0
    for left, right in pairs:
        goal = right[metric].max()
        reached = left["seconds"][left[metric] >= goal]
        missed += reached.empty
        elapsed = left["seconds"].iloc[-1] if reached.empty else reached.iloc[0]
        ratios.append(elapsed / right["seconds"][right[metric] >= goal].min())
    return 0, ratios, f"not reached by {missed} of {len(pairs)}" if missed else ""


def verdicts(frames: Mapping[str, Frame]) -> dict[str, Verdict]:
    """Returns {name of a claim: its verdict}; empty where no record is of any claim."""
    decided = {claim.name: verdict(claim, frames) for claim in library()}
    tested = any(not ratio.missing for one in decided.values() for ratio in one.ratios)
    return decided if tested else {}


def counts(decided: Mapping[str, Verdict]) -> str:
    """Says how many claims have which verdict."""
    words = collections.Counter(item.word for item in decided.values())
    named = {HOLDS: "hold", FAILS: "do not hold", OPEN: "are not decided"}
    clauses = [f"{words[word]} {verb}" for word, verb in named.items()]
    return f"Of {len(decided)} claims {clauses[0]}, {clauses[1]} and {clauses[2]}."


def table(decided: Mapping[str, Verdict]) -> pd.DataFrame:
    """Returns a row for each ratio of each claim, for `claims.csv`."""
    rows = []
    for claim in library():
        made = decided[claim.name]
        for one, ratio in zip(made.parts, made.ratios, strict=True):
            low, high = ratio.ends()
            common = {"claim": claim.name, "paper": claim.paper, "place": claim.place}
            common |= {"says": claim.says, "data": claim.data, "verdict": str(made)}
            common |= {"experiment": claim.experiment, "measure": claim.until or claim.measure}
            common |= {"where": claim.where, "ratio": one.text, "value": ratio.value}
            rows.append(common | {"low": low, "high": high, "of": ratio.missing or ratio.of})
    return pd.DataFrame(rows)


def undecided(decided: Mapping[str, Verdict], frames: Mapping[str, Frame]) -> list[str]:
    """Returns a line that names a claim, then commands whose runs would decide it, for each open.

    Both rows of a ratio run with the same two seeds, none of which they have; rows without any
    record with three.
    """
    lines = []
    for claim in (claim for claim in library() if decided[claim.name].word == OPEN):
        made = decided[claim.name]
        methods: dict[str, dict[str, None]] = {}
        first: dict[str, int] = {}
        for one, state in zip(made.parts, made.states, strict=True):
            sides = [side for side in (one.left, one.right) if isinstance(side, dict)]
            if state in (HOLDS, FAILS):
                continue
            for command, seed in _bases(claim, sides, frames).items():
                names = [side["method"] for side in sides if "method" in side]
                methods.setdefault(command, {}).update(dict.fromkeys(names))
                first[command] = max(seed, first.get(command, 0))
        lines.append(f"# {claim.name}: {made.reason}")
        for command, names in methods.items():
            seed = first[command]
            seeds = (seed, seed + 1) if seed else (0, 1, 2)
            flags = [f"--config.methods={','.join(names)}", f"--config.seeds={seeds}"]
            lines.append(shlex.join([*command.split(), *(flag.replace(" ", "") for flag in flags)]))
    return lines


def _bases(claim: Claim, sides: list[dict], frames: Mapping[str, Frame]) -> dict[str, int]:
    """{command that made rows of a ratio, without methods and seeds: the first free seed}."""
    found: dict[str, int] = {}
    for side in sides:
        where = {k: v for k, v in side.items() if k not in ("experiment", "measure")}
        runs = frames[side["experiment"]].runs if side["experiment"] in frames else pd.DataFrame()
        if not set(where) <= set(runs):
            continue
        rows = frame_lib.select(runs, **where)
        for command, seeds in rows.groupby("command")["seed"]:
            flags = sorted(shlex.split(command)[1:], key=lambda flag: flag.partition("=")[0])
            kept = [f for f in flags if not f.startswith(("--config.methods", "--config.seeds"))]
            name = " ".join(["softbench", *kept])
            found[name] = max(found.get(name, 0), int(seeds.max()) + 1)
    if found:  # where rows were made in several ways, the way of the last seed
        name = max(found, key=lambda command: found[command])
        return {name: found[name]}
    return {claim.run or f"softbench --config=configs/{claim.experiment}.py": 0}

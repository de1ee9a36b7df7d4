"""Claims of papers, read from `claims.toml`, and what records say of them. Needs no Keras.

A claim is one ratio of two selections of rows or several, and the range that it says each lies in:

    "rff / full < 1.05"    "exp n=10000 / rff n=10000 > 13.5"    "full / 111.5 in 0.98 to 1.02"

A selection is fields of the frame, `column=value`, a word alone being a method; those of the
claim's `where` are of both sides. `measure=` and `experiment=` may be of one side. With `until`,
the seconds to the right side's best value of a measure of learning curves are compared.
"""

import collections
import functools
import math
import re
import shlex
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from softbench.report import frame as frame_lib
from softbench.report import ratios as ratios_lib
from softbench.report.frame import Frame
from softbench.report.ratios import SINGLE, Part, Ratio

HOLDS, FAILS, OPEN = "holds", "does not hold", "not decided"
_BETWEEN = "the interval reaches over the limit"
_LACKING = "a row or a number is missing"


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
    """Returns what the records say of a claim, by the rule of `templates/claims.md`."""
    parts = [part(claim, text) for text in claim.ratios]
    ratios = [ratios_lib.of(one, frames, claim.until) for one in parts]
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
        return SINGLE
    low, high = ratio.ends()
    if part.low <= low and high <= part.high:
        return HOLDS
    low, high = ratio.ends(1 - 0.05 / count)
    return FAILS if high < part.low or low > part.high else _BETWEEN


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

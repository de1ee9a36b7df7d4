"""The order of the methods, and the text that says it. Needs no Keras."""

from typing import NamedTuple

from softbench.advise import choices as choices_lib
from softbench.advise.choices import Choice, Problem
from softbench.advise.quality import MEASURES, Quality

WORTH = 3.0  # times the fastest sampled step that exactness is worth
FEW = 10_000  # classes up to which probabilities are worth any number of times of it
CLOSE = {"calibrated": 0.15, "ranking": 0.03}  # behind the best, what still counts as close
OFF = 0.1  # of the calibration error in records, from which on scores are no probabilities
_TIERS = (
    "exact, and few classes or not much slower than sampling",
    "close to the best in records of such problems",
    "no record of such a problem",
    "behind the best in records of such problems",
    "not timed",
    "more memory than there is",
)


class Row(NamedTuple):
    """A method with its measurements and records; `tier` is an index of `_TIERS`."""

    name: str
    choice: Choice
    step_ms: float | None
    megabytes: float | None
    note: str
    quality: Quality
    tier: int


def ranked(
    problem: Problem,
    tried: dict[str, Choice],
    measured: dict,
    qualities: dict[str, Quality],
    memory_mb: float | None,
) -> list[Row]:
    """Returns the rows, the best first: by tier, baselines last in it, by the time of a step.

    A baseline does not come before methods for the only reason that it alone has records.

    Args:
        measured: {name: `measure.Measured`}.
        memory_mb: of the machine, None if unknown.
    """
    times = [m.step_ms["median"] for n, m in measured.items() if m.step_ms and n != "full"]
    fastest = min(times, default=None)
    rows = []
    for name, choice in tried.items():
        cost, quality = measured[name], qualities[name]
        step = cost.step_ms["median"] if cost.step_ms else None
        tier = _tier(problem, choice, step, fastest, quality)
        if memory_mb and cost.megabytes and cost.megabytes > memory_mb:
            tier = len(_TIERS) - 1
        rows.append(Row(name, choice, step, cost.megabytes, cost.note, quality, tier))
    return sorted(rows, key=_order)


def _order(row: Row) -> tuple:
    tier = 2 if row.choice.baseline and row.tier == 1 else row.tier
    return tier, row.choice.baseline, row.step_ms or 0.0


def _tier(
    problem: Problem, choice: Choice, step: float | None, fastest: float | None, quality: Quality
) -> int:
    if step is None:
        return 4
    if choice.method["head"] == "FullSoftmax":
        few = problem.need == "calibrated" and problem.classes <= FEW
        return 0 if few or fastest is None or step <= WORTH * fastest else 2
    if problem.need == "calibrated" and (quality.ece or 0.0) > OFF:
        return 3
    if quality.least is None:
        return 2
    return 1 if quality.median <= CLOSE[problem.need] else 3


def text(problem: Problem, rows: list[Row], where: str, seconds: float) -> str:
    """Returns the whole answer."""
    sizes = f"n = {problem.classes:,}, d = {problem.dim}, batch {problem.batch}"
    sizes += f" x {problem.positives} positives" if problem.positives > 1 else ""
    head = f"{sizes}, need {problem.need}; {where}, {seconds:.0f} s"
    best = rows[0]
    paste = ["import softbench", *choices_lib.lines(problem, best.choice.method)]
    sections = [head, _table(problem, rows), "Why"]
    sections.append(
        "\n".join(f"  {i}. {row.name}: {_reason(problem, row)}" for i, row in enumerate(rows, 1))
    )
    sections += [f"To paste ({best.name})", "\n".join(f"  {line}" for line in paste)]
    sections += [
        "What this cannot know",
        "\n".join(f"  * {note}" for note in unknown(problem, rows)),
    ]
    return "\n\n".join(sections)


def _reason(problem: Problem, row: Row) -> str:
    exact = row.choice.method["head"] == "FullSoftmax"
    tier = "slower than what sampling costs" if exact and row.tier == 2 else _TIERS[row.tier]
    why = f"{row.choice.why[0].upper()}{row.choice.why[1:]}. {tier[0].upper()}{tier[1:]}"
    if row.note:
        why += f": {row.note}"
    if problem.need == "calibrated":
        error = "" if row.quality.ece is None else f", calibration error {row.quality.ece:.3f}"
        why += f". {choices_lib.prediction(row.choice.method)}{error}"
    return why + (f" ({', '.join(row.quality.pages)})." if row.quality.pages else ".")


def _table(problem: Problem, rows: list[Row]) -> str:
    words = MEASURES[problem.need][1]
    cells = [("method", "step, ms", "memory, MB", f"behind the best in records, {words}")]
    for row in rows:
        step = "-" if row.step_ms is None else f"{row.step_ms:.4g}"
        memory = "-" if row.megabytes is None else f"{row.megabytes:,.0f}"
        cells.append((row.name, step, memory, _shown(row.quality)))
    return columns(cells)


def columns(cells: list[tuple[str, ...]]) -> str:
    """Returns a table of texts, the first column to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for name, *numbers in cells:
        aligned = [number.rjust(w) for number, w in zip(numbers, widths[1:], strict=True)]
        lines.append("  ".join([name.ljust(widths[0]), *aligned]).rstrip())
    return "\n".join(lines)


def _shown(quality: Quality) -> str:
    if quality.least is None:
        return "unknown"
    if quality.least == quality.most:
        return f"{quality.least:.3f}"
    return f"{quality.least:.3f} to {quality.most:.3f}"


def unknown(problem: Problem, rows: list[Row]) -> list[str]:
    """Returns what the answer leaves open."""
    notes = [
        "Your encoder: the times are of a step with one dense layer in front of the head.",
        "Quality on your data: the records are of other data, with tuned and untuned rates. Train "
        "the first two rows for equal times and compare the exact likelihood (`evaluate`).",
    ]
    if not problem.has_counts:
        notes.append(
            "The class counts: times are of counts that fall as 1 / rank. `counts` in the lines is "
            "an array (n,) of yours; give it here as --counts=counts.npy."
        )
    if not problem.inputs:
        notes.append("What the inputs are: --inputs=words, labels or items narrows the records.")
    if problem.positives > 1:
        notes.append(
            f"Rows of {problem.positives} labels: each label was an example of its own here, with "
            "the row's other labels among the possible negatives."
        )
    if problem.need == "calibrated":
        notes.append(
            "Calibration on your data: the errors in the reasons are those of records; measure "
            "yours (`softbench.metrics.expected_calibration_error`), and rescale by a temperature "
            "on held-out data if it is off."
        )
    if any(row.tier == 4 for row in rows):
        notes.append("Rows that were not timed: --minutes gives them more time.")
    return notes

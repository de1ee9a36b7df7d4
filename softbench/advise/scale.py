"""Bytes and time of a training step over several devices, on paper. Needs no Keras.

    python -m softbench.advise.scale

prints the tables of docs/scale.md. Classes are sharded over the k devices, the batch too; encoder
and input are left out. Tables are float32 with Adagrad, scores are computed in bfloat16.

What is counted is the least that must happen. Of a step: each row that a device needs and another
holds crosses a link once, its gradient once back. A gathered row is written and read; a touched one
is read and written in the update, with its slot. A score is written and read, its gradient written
and read twice (no matrix product is fused with the next). A full step computes the scores twice; it
reads the table twice, writes its gradient and reads it, and reads and writes table and slot. Of
memory: the variables, and the largest arrays of a step.

Shape letters: n classes, d features, B batch, m draws, k devices, T certain classes, G groups, K
codewords.
"""

import math
from typing import NamedTuple

FLOAT = 4  # bytes, and of an int32
GROUP = 16  # of the search levels of a sampler
CHUNK = 2**24  # scores of a full step at a time
CODEWORDS = 128
SHARED, PER_EXAMPLE = 8192, 100  # draws
TOP, GROUPS = 256, 16  # of `top_and_tail`; its tail has SHARED draws in all


class Machine(NamedTuple):
    """Devices of one kind: bytes, bytes a second (links: in one direction), operations a second."""

    name: str
    devices: int
    memory: float
    bandwidth: float
    link: float
    flops: float


# Of the makers' public pages. Half of every peak is what programs are taken to reach.
REACHED = 0.5
USABLE = 0.9  # of the memory
LAST_ID = 2**31 - 1
MACHINES = (
    Machine("8 H100", 8, 80e9, 3.35e12, 450e9, 989e12),
    Machine("256 TPU v5e", 256, 16e9, 819e9, 200e9, 197e12),
)
METHODS = ("full", "in_batch", "uniform", "unigram", "codebook", "top_and_tail")
SIZES = (10_000_000, 100_000_000, 1_000_000_000)


class Step(NamedTuple):
    """What one device holds and does in a step: bytes, and floating point operations."""

    held: float
    temporary: float
    moved: float
    sent: float
    flops: float

    def seconds(self, machine: Machine) -> dict[str, float]:
        """Times of memory or arithmetic, whichever takes longer, and of the links."""
        local = max(self.moved / machine.bandwidth, self.flops / machine.flops) / REACHED
        return {"device": local, "links": self.sent / machine.link / REACHED}


def levels(n: int) -> int:
    """Entries of the search levels over n + 1 starts."""
    entries, groups = 0, n + 1
    while not entries or groups > 1:
        groups = math.ceil(groups / GROUP)
        entries += groups * GROUP
    return entries


def table_bytes(n: int, d: int, per_row: bool = False, half: bool = False) -> int:
    """Bytes of a class table with biases and Adagrad's slots."""
    entry = FLOAT // 2 if half else FLOAT
    return n * (d * entry + FLOAT + (FLOAT if per_row else d * entry) + FLOAT)


def sampler_bytes(method: str, n: int, d: int) -> int:
    """Bytes of a sampler's state: with class counts, biases tracked."""
    starts = FLOAT * (n + 1 + levels(n))
    cells = CODEWORDS**2
    # cell, order, place, next_cell, weights; bounds and edges, codewords, sums.
    codebook = FLOAT * (5 * n + 2 * (cells + 1) + 4 * CODEWORDS * d + cells) + starts
    # Level 0 has a column more, and classes.
    codebook += FLOAT * math.ceil((n + 1) / GROUP) * (1 + GROUP)
    sizes = {"in_batch": FLOAT * n, "unigram": starts, "codebook": codebook}
    sizes["top_and_tail"] = codebook + starts + FLOAT * cells  # the odds of its cells
    return sizes.get(method, 0)


def step(method: str, n: int, d: int, batch: int, devices: int, small: bool = False) -> Step:
    """Counts a step of a method on one of several devices.

    `small`: with the table in bfloat16 and one accumulator for each row.
    """
    held = (table_bytes(n, d, small, small) + sampler_bytes(method, n, d)) / devices
    examples, row, away = batch / devices, FLOAT * d, 1 - 1 / devices
    if method == "full":
        # Hidden vectors to all shards and their gradients back; two sums per example.
        sent = 2 * batch * row * away + 2 * FLOAT * batch * away
        table = n / devices * row
        moved = 8 * table + 7 * FLOAT * batch * n / devices
        chunk = 2 * FLOAT * CHUNK
        return Step(held, table + chunk, moved, sent, 8 * batch * n * d / devices)
    shared, each, extra = {
        "in_batch": (batch, 0, 0),
        "uniform": (SHARED, 0, 0),
        "unigram": (SHARED, 0, 0),
        "codebook": (0, PER_EXAMPLE, 2 * CODEWORDS * (d + CODEWORDS)),
        "top_and_tail": (GROUPS * TOP + SHARED, 0, 2 * CODEWORDS * (d + CODEWORDS)),
    }[method]
    seen = TOP + SHARED / GROUPS if method == "top_and_tail" else shared  # by an example
    scored = examples * (seen + each + 1)
    # The rows that the device's examples use, and the rows of its shard that any example uses.
    used = shared + examples * (each + 1)
    if method == "in_batch":  # the negatives are the labels
        used = shared
    touched = (shared + batch * (each + (method != "in_batch"))) / devices
    scores = scored * FLOAT
    temporary = 2 * used * row + 2 * scores
    moved = 2 * used * row + 4 * touched * row + 5 * scores
    flops = examples * extra + 6 * scored * d
    return Step(held, temporary, moved, 2 * used * row * away, flops)


def largest(method: str, machine: Machine, small: bool, d: int = 128, batch: int = 65_536) -> int:
    """The most classes whose step fits in the memory, to two digits, and have int32 ids."""
    room = machine.memory * USABLE

    def needs(n: int) -> float:
        cost = step(method, n, d, batch, machine.devices, small)
        return cost.held + cost.temporary

    n = 10
    while needs(2 * n) <= room:
        n *= 2
        if n > LAST_ID:
            return LAST_ID
    unit = 10 ** (len(str(n)) - 2)
    n -= n % unit
    while needs(n + unit) <= room:
        n += unit
    return min(n, LAST_ID)


def rows(machine: Machine, d: int = 128, batch: int = 65_536) -> list[list[str]]:
    """The table of a machine: a row for each method and number of classes."""
    lines = []
    for method in METHODS:
        for n in SIZES:
            cost = step(method, n, d, batch, machine.devices)
            total, time = cost.held + cost.temporary, cost.seconds(machine)
            fits = total <= USABLE * machine.memory
            longest = max(time, key=lambda name: time[name])
            ms = _digits(1000 * sum(time.values())) if fits else "does not fit"
            numbers = [_digits(total / 1e9), _digits(cost.sent / 1e9), ms]
            lines.append([f"`{method}`", f"{n:,}", *numbers, longest if fits else "-"])
    return lines


def text() -> str:
    """The tables of docs/scale.md."""
    head = ["method", "n", "GB per device", "GB sent per device", "step, ms", "longer: on"]
    sections = []
    for machine in MACHINES:
        sections.append(f"### {machine.name}\n\n" + _table(head, rows(machine)))
    most = []
    for method in METHODS:
        sizes = [_most(method, machine, small) for machine in MACHINES for small in (False, True)]
        most.append([f"`{method}`", *sizes])
    names = [machine.name for machine in MACHINES]
    heading = ["method", *(text for name in names for text in (name, f"{name}, bfloat16"))]
    return "\n\n".join([*sections, "### The most classes that fit\n\n" + _table(heading, most)])


def _most(method: str, machine: Machine, small: bool) -> str:
    if small and method == "full":  # which has no row optimizer
        return "-"
    return f"{largest(method, machine, small):,}"


def _table(head: list[str], lines: list[list[str]]) -> str:
    rule = ["---"] * len(head)
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *lines))


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


if __name__ == "__main__":
    print(text())

"""Tables and plots of the task "nce_simulation", from records. Needs no Keras."""

from collections.abc import Mapping

from softbench.experiments.nce.tables import (
    in_order,
    method_rows,
    named,
    point,
    problems,
    reference,
    spread,
)
from softbench.report.plots import panel, panels
from softbench.report.tables import Table, group_name, label

_NAMES = {"binary": "binary, with b_x", "binary_without_b_x": "binary, without b_x"}


def tables(plan: Mapping, records: list[dict]) -> list[Table]:
    """Returns the tables of each problem.

    Args:
        plan: the content of `experiment.json`.
        records: records of the task that ended well.
    """
    return [table for group in problems(records) for table in _simulation(plan, group)]


def plots(plan: Mapping, records: list[dict]) -> dict[str, tuple[str, dict]]:
    """Returns {file name: (caption, data)}, `data` as `softbench.report.plots.panels` makes it."""
    found, groups = {}, problems(records)
    sizes = [group for group in groups if len(group[0]["inputs"]) == 1]
    inputs = [group for group in groups if len(group[0]["inputs"]) > 1]
    if sizes:
        left = [_size_panel(sizes[0], "ranking"), *(_inputs_panel(g) for g in inputs[:1])]
        caption = "KL divergence of exact estimates (Ma & Collins, Fig. 2)"
        found["figure_2"] = caption, panels(*left)
        caption = "KL divergence of exact estimates (Ma & Collins, Fig. 3)"
        found["figure_3"] = caption, panels(_size_panel(sizes[0], "binary"))
    return found


def series(
    group: list[dict], inputs: str, size: str, method: str, negatives: str, what: str = "kl"
) -> list:
    """Returns the KL of every seed, None where there was no minimum; or `what` in its place."""
    return [record["inputs"][inputs][what][size][method][negatives] for record in group]


def _simulation(plan: Mapping, group: list[dict]) -> list[Table]:
    inputs = in_order(group[0]["inputs"])
    tables = [_problem_table(group, inputs)]
    if len(inputs) > 1:
        return [_against_inputs(plan, group, inputs), *tables]
    return [*_against_size(plan, group, inputs[0]), *tables]


def _against_size(plan: Mapping, group: list[dict], inputs: str) -> list[Table]:
    """KL against N and K: means, then ratios to maximum likelihood on the same data."""
    config, kl = group[0]["config"], group[0]["inputs"][inputs]["kl"]
    sizes, best = in_order(kl), reference(config)
    free = group[0]["inputs"][inputs]["limits"][best]["-"]
    means, ratios = [], []
    for name, negatives in method_rows(plan, kl[sizes[0]]):
        all_sizes = [series(group, inputs, size, name, negatives) for size in sizes]
        means.append([named(name, negatives), *map(spread, all_sizes)])
        if name == best:
            continue
        bases = [series(group, inputs, size, best, "-") for size in sizes]
        row = [
            spread(None if a is None else a / b for a, b in zip(values, base, strict=True))
            for values, base in zip(all_sizes, bases, strict=True)
        ]
        limits = [r["inputs"][inputs]["limits"][name][negatives] / free for r in group]
        ratios.append([named(name, negatives), *row, spread(limits)])
    head = [f"n = {int(size):,}" for size in sizes]
    where = f"{inputs} inputs, {group[0]['num_classes']} classes"
    return [
        Table(f"KL in nats against n and K: {where} (Fig. 2 left, Fig. 3)", ["", *head], means),
        Table(f"KL over that of maximum likelihood: {where}", ["", *head, "n to infinity"], ratios),
    ]


def _against_inputs(plan: Mapping, group: list[dict], inputs: list[str]) -> Table:
    """KL against the number of inputs, the paper's beside ours, what n to infinity says, growth."""
    (size,) = group[0]["inputs"][inputs[0]]["kl"]
    rows: list[list[str]] = []

    def add(name: str, values: list[list]) -> None:
        rows.append([name, *map(spread, values), spread(_quotients(values[-1], values[0]))])

    def limits(name: str, negatives: str, what: str, scale: float) -> list[list]:
        return [[r["inputs"][c][what][name][negatives] / scale for r in group] for c in inputs]

    for name, negatives in method_rows(plan, group[0]["inputs"][inputs[0]]["kl"][size]):
        shown = named(name, negatives)
        biased = group[0]["config"]["methods"][name].get("bias") == "shared"
        scale = 1.0 if biased else 2.0 * int(size)
        values = [series(group, count, size, name, negatives) for count in inputs]
        add(shown, values)
        paper = plan["paper"].get(f"{group_name(group[0]['config'])}-{name}", {})
        if all(count in paper for count in inputs):
            add(f"{name} (paper)", [[paper[count]] for count in inputs])
            ratio = [[v / paper[c] for v in row] for row, c in zip(values, inputs, strict=True)]
            rows.append([f"{name}: ours / paper", *map(spread, ratio), "-"])
        add(f"{shown}, asymptotic", limits(name, negatives, "limits", scale))
        if name in group[0]["inputs"][inputs[0]]["unnormalised"][size]:
            values = [series(group, c, size, name, negatives, "unnormalised") for c in inputs]
            add(f"{shown}, not normalised", values)
            known = limits(name, negatives, "limits_unnormalised", scale)
            add(f"{shown}, not normalised, asymptotic", known)
    header = ["", *(f"{count} inputs" for count in inputs), f"{inputs[-1]} / {inputs[0]}"]
    return Table(
        f"KL in nats against the number of inputs: n = {int(size):,} (Fig. 2 right)", header, rows
    )


def _quotients(above: list, below: list) -> list:
    pairs = zip(above, below, strict=True)
    return [None if a is None or b is None else a / b for a, b in pairs]


def _problem_table(group: list[dict], inputs: list[str]) -> Table:
    names = {
        "entropy": "H(y given x), nats",
        "marginal_entropy": "H(y), nats",
        "log_partition_deviation": "deviation of log Z(x)",
        "rarest_class": "rarest class",
    }
    rows = []
    for count in inputs:
        found = [record["inputs"][count] for record in group]
        row = [count, *(spread(f["problem"][key] for f in found) for key in names)]
        gaps = [gap for f in found for part in f["library"].values() for gap in part.values()]
        rows.append([*row, f"{max(gaps):.0e}"])
    header = ["inputs", *names.values(), "softbench.losses differ by"]
    return Table(f"The problems: {label(group[0]['config']['dataset'])}", header, rows)


def _size_panel(group: list[dict], method: str) -> dict:
    """KL against n: one line for each K, and maximum likelihood."""
    (inputs,) = group[0]["inputs"]
    kl, best = group[0]["inputs"][inputs]["kl"], reference(group[0]["config"])
    sizes, lines = in_order(kl), {}

    def line(name: str, k: str) -> list[list[float]]:
        return [p for n in sizes for p in point(int(n), series(group, inputs, n, name, k))]

    for k in in_order(kl[sizes[0]][method]):
        if points := line(method, k):
            lines[f"K = {k}"] = {"points": points}
    lines["maximum likelihood"] = {"points": line(best, "-"), "kind": "reference"}
    title = f"{_NAMES.get(method, method)}, |X| = {inputs}"
    return panel(title, "n", "KL, nats", "xy", lines, [int(n) for n in sizes], "lower left")


def _inputs_panel(group: list[dict]) -> dict:
    """KL against |X|: one line for each method."""
    inputs = in_order(group[0]["inputs"])
    first = group[0]["inputs"][inputs[0]]
    (size,) = first["kl"]
    (k,) = first["kl"][size]["ranking"]
    best, lines = reference(group[0]["config"]), {}

    def line(method: str, k: str, what: str) -> dict:
        found = ((c, series(group, c, size, method, k, what)) for c in inputs)
        return {"points": [p for c, values in found for p in point(int(c), values)]}

    for method, row in first["kl"][size].items():
        if method == best:
            lines["maximum likelihood"] = line(method, "-", "kl") | {"kind": "reference"}
            continue
        name = _NAMES.get(method, method)
        lines[name] = line(method, next(iter(row)), "kl")
        if method in first["unnormalised"][size]:
            lines[f"{name}, not normalised"] = line(method, k, "unnormalised")
    title = f"n = {int(size):,}, K = {k}"
    return panel(title, "|X|", "KL, nats", "y", lines, [int(c) for c in inputs], "center right")

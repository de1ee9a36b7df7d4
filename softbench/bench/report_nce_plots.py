"""Plots of the tasks "nce_simulation" and "nce_efficiency", from records. Needs no Keras."""

from collections.abc import Iterable

from softbench.bench.report_kernels import half_interval
from softbench.bench.report_nce import efficient, in_order, pooled, problems, reference, series
from softbench.bench.report_panels import panel, panels

_NAMES = {"binary": "binary, with b_x", "binary_without_b_x": "binary, without b_x"}


def nce_plots(records: list[dict]) -> dict[str, tuple[str, dict]]:
    """Returns {file name: (caption, data)}, `data` as `report_panels.draw` takes it."""
    found = {}
    groups = problems(records, "nce_simulation")
    sizes = [group for group in groups if len(group[0]["inputs"]) == 1]
    inputs = [group for group in groups if len(group[0]["inputs"]) > 1]
    if sizes:
        left = [_size_panel(sizes[0], "ranking"), *(_inputs_panel(g) for g in inputs[:1])]
        caption = "KL divergence of exact estimates (Ma & Collins, Fig. 2)"
        found["figure_2"] = caption, panels(*left)
        caption = "KL divergence of exact estimates (Ma & Collins, Fig. 3)"
        found["figure_3"] = caption, panels(_size_panel(sizes[0], "binary"))
    measured = [g for g in problems(records, "nce_efficiency") if "measured" in g[0]]
    if measured:
        parts = [part for group in measured for part in _efficiency_panels(group)]
        found["efficiency"] = "n MSE / d against K (Ma & Collins, 4.4)", panels(*parts)
    return found


def _point(x: float, values: Iterable[float | None]) -> list[list[float]]:
    values = list(values)
    if any(value is None for value in values):
        return []
    return [[x, sum(values) / len(values), half_interval(values)]]


def _size_panel(group: list[dict], method: str) -> dict:
    """KL against n: one line for each K, and maximum likelihood."""
    (inputs,) = group[0]["inputs"]
    kl, best = group[0]["inputs"][inputs]["kl"], reference(group[0]["config"])
    sizes, lines = in_order(kl), {}

    def line(name: str, k: str) -> list[list[float]]:
        return [p for n in sizes for p in _point(int(n), series(group, inputs, n, name, k))]

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
        return {"points": [p for c, values in found for p in _point(int(c), values)]}

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


def _efficiency_panels(group: list[dict]) -> list[dict]:
    """n MSE / d against K with its limits, and the gap with the powers of the two bounds."""
    exact, name = group[0]["exact"], group[0]["config"]["dataset"]["label"]
    keys = in_order(exact["methods"]["ranking"])
    sizes, lines, gaps = [int(k) for k in keys], {}, {}

    def line(method: str, what: str) -> dict:
        found = ((k, pooled(group, method, k, what)) for k in keys)
        return {"points": [p for k, values in found for p in _point(int(k), values)]}

    def theory(method: str, limit: float) -> dict:
        points = [[int(k), exact["methods"][method][k] - limit, 0.0] for k in keys]
        return {"points": points, "kind": "theory", "of": method}

    for method, limit in sorted(exact["limits"].items(), reverse=True):
        lines[method] = line(method, "mean")
        lines[f"{method}, exact"] = theory(method, 0.0)
        if efficient(exact, method):
            gaps[method] = line(method, "distance")
            gaps[f"{method}, exact"] = theory(method, limit)
    level = [[k, exact["fisher"], 0.0] for k in (sizes[0], sizes[-1])]
    lines["Tr(I^-1) / d"] = {"points": level, "kind": "reference"}
    top = 1.6 * max(line["points"][0][1] for line in gaps.values())
    for power, text in ((-0.5, "slope of C / sqrt(K)"), (-1.0, "slope of C / K")):
        points = [[k, top * k**power, 0.0] for k in sizes]
        gaps[text] = {"points": points, "kind": "theory"}
    return [
        panel(f"{name}: n MSE / d", "K", "n MSE / d", "x", lines, sizes),
        panel(f"{name}: gap", "K", "n (estimate - MLE)^2 / d", "xy", gaps, sizes, "lower left"),
    ]

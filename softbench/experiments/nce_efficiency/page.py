"""Tables and plots of the task "nce_efficiency", from records. Needs no Keras."""

from collections.abc import Mapping

from softbench.experiments.nce.fits import pooled_error, powers, scaled
from softbench.experiments.nce.tables import in_order, method_rows, named, point, problems, spread
from softbench.report.plots import panel, panels
from softbench.report.tables import Table, label, number


def tables(plan: Mapping, records: list[dict]) -> list[Table]:
    """Returns the tables of each problem.

    Args:
        plan: the content of `experiment.json`.
        records: records of the task that ended well.
    """
    found: list[Table] = []
    for group in problems(records):
        found += [_ratios(plan, group)] if "ratios" in group[0] else _efficiency(plan, group)
    return found


def plots(plan: Mapping, records: list[dict]) -> dict[str, tuple[str, dict]]:
    """Returns {file name: (caption, data)}, `data` as `softbench.report.plots.panels` makes it."""
    measured = [group for group in problems(records) if "measured" in group[0]]
    if not measured:
        return {}
    parts = [part for group in measured for part in _efficiency_panels(group)]
    return {"efficiency": ("n MSE / d against K (Ma & Collins, 4.4)", panels(*parts))}


def pooled(group: list[dict], method: str, negatives: str, key: str) -> list[float]:
    """Returns a measured value of every seed."""
    return [record["measured"][method][negatives][key] for record in group]


def _efficiency(plan: Mapping, group: list[dict]) -> list[Table]:
    first, name = group[0], label(group[0]["config"]["dataset"])
    exact, rows = first["exact"], []
    for method, negatives in method_rows(plan, first["measured"]):
        known = exact["methods"][method][negatives]
        values = pooled(group, method, negatives, "mean")
        error = pooled_error(pooled(group, method, negatives, "mean_error"))
        row = [named(method, negatives), spread(values), number(known)]
        row.append(f"{(sum(values) / len(values) - known) / error:+.1f}")
        if negatives == "-":
            rows.append([*row, "-", "-", "-"])
            continue
        limit = exact["limits"][method]
        row.append(spread(pooled(group, method, negatives, "gap")))
        row.append(spread(pooled(group, method, negatives, "distance")))
        rows.append([*row, f"{(known - limit) * int(negatives):.4g}"])
    header = ["", "n MSE / d", "exact", "z", "over that of mle"]
    header += ["n (estimate - mle)^2 / d", "K (exact - limit)"]
    sizes = f"n = {first['size']:,}, {first['data_sets'] * len(group):,} data sets"
    title = f"{name}: Tr(I^-1) / d = {number(exact['fisher'])}; {sizes}"
    return [Table(title, header, rows), _slope_table(plan, group)]


def _slope_table(plan: Mapping, group: list[dict]) -> Table:
    """Powers of K fitted to the gaps, exact and measured."""
    first, rows = group[0], []
    exact = first["exact"]
    for method in [name for name in plan["methods"] if name in exact["limits"]]:
        limit = exact["limits"][method]
        sizes = in_order(exact["methods"][method])
        gaps = [exact["methods"][method][k] - limit for k in sizes]
        row = [method, number(limit), f"{powers(sizes, gaps):.3f}"]
        if not efficient(exact, method):
            rows.append([*row, "-", "-", "-", "-", "-"])
            continue
        distances, errors = (
            [[r["measured"][method][k][key] for k in sizes] for r in group]
            for key in ("distance", "distance_error")
        )
        slopes = [powers(sizes, values) for values in distances]
        row.append(spread(slopes))
        for power in (-0.5, -1.0):
            fitted = scaled(sizes, distances, errors, power)
            row += [spread(fitted.constants), number(fitted.chi_square)]
        rows.append(row)
    header = ["", "limit", "exponent of K, exact", "measured", "C of C/sqrt(K)", "chi2 / dof"]
    header += ["C of C/K", "chi2 / dof "]
    title = f"{label(first['config']['dataset'])}: the gap as a power of K"
    return Table(title, header, rows)


def efficient(exact: Mapping, method: str) -> bool:
    """Whether a method's limit is that of maximum likelihood, so that its distance is its gap."""
    return abs(exact["limits"][method] / exact["fisher"] - 1) < 1e-9


def _ratios(plan: Mapping, group: list[dict]) -> Table:
    """The counterexample: theta_1 / theta_2 against n."""
    sizes = in_order(group[0]["ratios"])
    rows = []
    for method, negatives in method_rows(plan, group[0]["ratios"][sizes[0]]):
        values = [[r["ratios"][size][method][negatives] for r in group] for size in sizes]
        truth = "3/7 = 0.4286" if method == "binary" else "1/3 = 0.3333"
        rows.append([named(method, negatives), *map(spread, values), truth])
    header = ["", *(f"n = {int(size):,}" for size in sizes), "n to infinity (section 4.3)"]
    return Table("Counterexample: p(y1|x1) / p(y2|x1), truth 1/3", header, rows)


def _efficiency_panels(group: list[dict]) -> list[dict]:
    """n MSE / d against K with its limits, and the gap with the powers of the two bounds."""
    exact, name = group[0]["exact"], group[0]["config"]["dataset"]["label"]
    keys = in_order(exact["methods"]["ranking"])
    sizes, lines, gaps = [int(k) for k in keys], {}, {}

    def line(method: str, what: str) -> dict:
        found = ((k, pooled(group, method, k, what)) for k in keys)
        return {"points": [p for k, values in found for p in point(int(k), values)]}

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

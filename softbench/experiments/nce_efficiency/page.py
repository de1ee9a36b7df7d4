"""Tables and plots of the task "nce_efficiency". Needs no Keras."""

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd

from softbench.experiments.nce import shared_tables as nce
from softbench.report import frame
from softbench.report.plots import panel
from softbench.report.tables import Table, number, show

_KEYS = ["method", "negatives", "seed"]


def tables(plan: Mapping, records: list[dict]) -> list[Table]:
    """Returns the tables of each problem."""
    result: list[Table] = []
    for group in nce.problems(records):
        if "ratios" in group[0]:
            result.append(_ratios(nce.by_method(plan, frame.long(group, _ratio_rows))))
        else:
            rows = nce.by_method(plan, frame.long(group, _rows))
            result.append(_efficiency(group, rows))
    return result


def _rows(record: Mapping) -> Iterator[dict]:
    """A row for each method and K, with its asymptotic value and that of K to infinity."""
    exact = record["exact"]
    for method, sizes in record["measured"].items():
        limit = exact["limits"].get(method)
        # Where it is that of maximum likelihood, the distance from that is the gap.
        efficient = limit is not None and abs(limit / exact["fisher"] - 1) < 1e-9
        common = {"limit": limit, "fisher": exact["fisher"], "efficient": efficient}
        for negatives, measured in sizes.items():
            row = nce.method_columns(method, negatives) | common
            yield {**row, "exact": exact["methods"][method][negatives], **measured}


def _efficiency(group: list[dict], rows: pd.DataFrame) -> Table:
    groups = rows.groupby("name", sort=False)
    page = groups[["exact", "limit", "negatives"]].first()
    page[["shown", "gap", "distance"]] = groups[["mean", "gap", "distance"]].agg(nce.spread)
    page.loc[page["negatives"].isna(), ["gap", "distance"]] = "-"
    error = groups["mean_error"].agg(pooled_error)
    page["z"] = (groups["mean"].mean() - page["exact"]) / error
    page["rest"] = (page["exact"] - page["limit"]) * page["negatives"]
    columns = {
        "": "name",
        "n MSE / d": "shown",
        "exact": "exact",
        "z": ("{:+.1f}", "z"),
        "over that of mle": "gap",
        "n (estimate - mle)^2 / d": "distance",
        "K (exact - limit)": ("{:.4g}", "rest"),
    }
    first = group[0]
    sizes = f"n = {first['size']:,}, {first['data_sets'] * len(group):,} data sets"
    title = f"{rows['dataset'].iloc[0]}: Tr(I^-1) / d = {number(first['exact']['fisher'])}; {sizes}"
    values = [f"{key}{error}" for key in ("mean", "gap", "distance") for error in ("", "_error")]
    return Table(
        title, show(page.reset_index(), columns), rows[[*_KEYS, "exact", "limit", *values]]
    )


def pooled_error(errors: np.ndarray) -> np.ndarray:
    """Returns the standard errors (...) of means over seeds from those of each seed (S, ...)."""
    return np.linalg.norm(errors, axis=0) / len(errors)


def _ratio_rows(record: Mapping) -> Iterator[dict]:
    for size, methods in record["ratios"].items():
        for method, sizes in methods.items():
            for negatives, ratio in sizes.items():
                yield {**nce.method_columns(method, negatives), "size": int(size), "ratio": ratio}


def _ratios(rows: pd.DataFrame) -> Table:
    """The counterexample: theta_1 / theta_2 against n."""
    page = nce.spreads(rows, "size", "ratio", "n = {}")
    binary = rows.groupby("name")["method"].first() == "binary"
    truth = binary.map({True: "3/7 = 0.4286", False: "1/3 = 0.3333"})
    page["n to infinity (section 4.3)"] = truth
    title = "Counterexample: p(y1|x1) / p(y2|x1), truth 1/3"
    return nce.untitled(title, page, rows[[*_KEYS, "size", "ratio"]])


def plots(plan: Mapping, records: list[dict]) -> dict[str, tuple[str, dict]]:
    """Returns {file name: (caption, data)}, with panels."""
    measured = [group for group in nce.problems(records) if "measured" in group[0]]
    if not measured:
        return {}
    panels = [item for group in measured for item in _panels(frame.long(group, _rows))]
    return {"efficiency": ("n MSE / d against K (Ma & Collins, 4.4)", {"panels": panels})}


def _panels(rows: pd.DataFrame) -> list[dict]:
    """n MSE / d against K with its limits, and the gap with the powers of the two bounds."""
    name, fisher = rows["dataset"].iloc[0], float(rows["fisher"].iloc[0])
    rows = rows.dropna(subset="negatives").assign(exact_gap=rows["exact"] - rows["limit"])
    sizes = sorted(map(int, rows["negatives"].unique()))
    lines, gaps = {}, {}
    for method, group in sorted(rows.groupby("method"), reverse=True):
        theory = {"kind": "theory", "of": method}
        lines[method] = {"points": nce.points(group, "negatives", "mean")}
        first = group[group["seed"] == group["seed"].min()]
        lines[f"{method}, exact"] = {"points": nce.points(first, "negatives", "exact"), **theory}
        if group["efficient"].all():
            exact = nce.points(first, "negatives", "exact_gap")
            gaps[method] = {"points": nce.points(group, "negatives", "distance")}
            gaps[f"{method}, exact"] = {"points": exact, **theory}
    level = [[size, fisher, 0.0] for size in (sizes[0], sizes[-1])]
    lines["Tr(I^-1) / d"] = {"points": level, "kind": "reference"}
    top = 1.6 * max(line["points"][0][1] for line in gaps.values())
    for power, text in ((-0.5, "slope of C / sqrt(K)"), (-1.0, "slope of C / K")):
        slope = [[size, top * size**power, 0.0] for size in sizes]
        gaps[text] = {"points": slope, "kind": "theory"}
    return [
        panel(f"{name}: n MSE / d", "K", "n MSE / d", "x", lines, sizes),
        panel(f"{name}: gap", "K", "n (estimate - MLE)^2 / d", "xy", gaps, sizes, "lower left"),
    ]

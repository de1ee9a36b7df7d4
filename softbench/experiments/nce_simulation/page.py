"""Tables and plots of the task "nce_simulation". Needs no Keras."""

from collections.abc import Iterator, Mapping

import pandas as pd

from softbench.experiments.nce.tables import (
    by_method,
    method_columns,
    points,
    problems,
    spread,
    spreads,
)
from softbench.report import frame
from softbench.report.plots import panel, panels
from softbench.report.tables import Table

_NAMES = {"binary": "binary, with b_x", "binary_without_b_x": "binary, without b_x"}
_PROBLEM = {
    "entropy": "H(y given x), nats",
    "marginal_entropy": "H(y), nats",
    "log_partition_deviation": "deviation of log Z(x)",
    "rarest_class": "rarest class",
}


def _rows(record: Mapping) -> Iterator[dict]:
    """A row for each |X|, n, method and K.

    Columns: `kl` and `unnormalised`, missing where there was no minimum; `limit` and
    `limit_unnormalised`, what these tend to for large n; `likelihood`, of maximum likelihood on
    the same data; `no_partition`, whether exp(s) as it is was asked for.
    """
    methods = record["config"]["methods"]
    best = next(name for name, own in methods.items() if own["objective"] == "likelihood")
    for inputs, found in record["inputs"].items():
        for size, kl in found["kl"].items():
            for method, values in kl.items():
                free = found["unnormalised"][size].get(method, {})
                ends = found["limits_unnormalised"].get(method, {})
                scale = 1.0 if methods[method].get("bias") == "shared" else 2.0 * int(size)
                for negatives, value in values.items():
                    yield {
                        **method_columns(method, negatives),
                        "inputs": int(inputs),
                        "size": int(size),
                        "is_best": method == best,
                        "kl": value,
                        "likelihood": kl[best]["-"],
                        "limit": found["limits"][method][negatives],
                        "limit_likelihood": found["limits"][best]["-"],
                        "asymptotic": found["limits"][method][negatives] / scale,
                        "no_partition": method in found["unnormalised"][size],
                        "unnormalised": free.get(negatives),
                        "asymptotic_unnormalised": ends.get(negatives, float("nan")) / scale,
                    }


def _problem_rows(record: Mapping) -> Iterator[dict]:
    for inputs, found in record["inputs"].items():
        gaps = [gap for part in found["library"].values() for gap in part.values()]
        problem = {key: found["problem"][key] for key in _PROBLEM}
        yield {"inputs": int(inputs), **problem, "library_gap": max(gaps)}


def _numbers(rows: pd.DataFrame) -> pd.DataFrame:
    """All but names and counts as floats: a column may be missing as a whole."""
    values = [name for name in rows if name.startswith(("kl", "unnormalised", "likelihood"))]
    return rows.astype(dict.fromkeys(values, float))


def tables(plan: Mapping, records: list[dict]) -> list[Table]:
    """Returns the tables of each problem.

    Args:
        plan: the content of `experiment.json`.
        records: records of the task that ended well.
    """
    found = []
    for group in problems(records):
        rows = by_method(plan, _numbers(frame.long(group, _rows)))
        against = _against_inputs if rows["inputs"].nunique() > 1 else _against_size
        found += against(plan, rows)
        found.append(_problem_table(frame.long(group, _problem_rows)))
    return found


def _against_size(plan: Mapping, rows: pd.DataFrame) -> list[Table]:
    """KL against N and K: means, then ratios to maximum likelihood on the same data."""
    rows = rows.assign(ratio=rows["kl"] / rows["likelihood"])
    rows["limit_ratio"] = rows["limit"] / rows["limit_likelihood"]
    others = rows[~rows["is_best"]]
    where = f"{rows['inputs'].iloc[0]} inputs, {rows['num_classes'].iloc[0]} classes"
    pages = [spreads(rows, "size", "kl"), spreads(others, "size", "ratio")]
    for page in pages:
        page.columns = [f"n = {size:,}" for size in page]
    first = others[others["size"] == others["size"].min()]
    pages[1]["n to infinity"] = first.groupby("name")["limit_ratio"].agg(spread)
    titles = [
        f"KL in nats against n and K: {where} (Fig. 2 left, Fig. 3)",
        f"KL over that of maximum likelihood: {where}",
    ]
    columns = ["method", "negatives", "size", "seed"]
    data = [rows[[*columns, "kl"]], others[[*columns, "ratio", "limit_ratio"]]]
    return [
        Table(title, page.rename_axis("").reset_index(), own)
        for title, page, own in zip(titles, pages, data, strict=True)
    ]


def _against_inputs(plan: Mapping, rows: pd.DataFrame) -> list[Table]:
    """KL against the number of inputs, the paper's beside ours, what n to infinity says, growth."""
    (size,) = rows["size"].unique()
    lines = pd.concat(
        [
            own.assign(line=name, value=values)
            for _, own in rows.groupby("name", sort=False)
            for name, values in _lines(plan, own)
        ]
    )
    page = spreads(lines, "inputs", "value", "line")
    by_inputs = lines.pivot(index=["line", "record"], columns="inputs", values="value")
    growth = by_inputs.iloc[:, -1] / by_inputs.iloc[:, 0]
    heads = list(page)
    page.columns = [f"{count} inputs" for count in heads]
    page[f"{heads[-1]} / {heads[0]}"] = growth.groupby("line").agg(spread)
    page.loc[page.index.str.endswith(": ours / paper"), page.columns[-1]] = "-"
    title = f"KL in nats against the number of inputs: n = {size:,} (Fig. 2 right)"
    data = lines[["line", "method", "negatives", "inputs", "seed", "value"]]
    return [Table(title, page.rename_axis("").reset_index(), data)]


def _lines(plan: Mapping, own: pd.DataFrame) -> Iterator[tuple[str, pd.Series]]:
    """(name, values) of the lines about one method and K."""
    name, method = own["name"].iloc[0], own["method"].iloc[0]
    yield name, own["kl"]
    paper = plan["paper"].get(f"{own['group'].iloc[0]}-{method}", {})
    known = own["inputs"].astype(str).map(paper).astype(float)
    if known.notna().all():
        yield f"{method} (paper)", known
        yield f"{method}: ours / paper", own["kl"] / known
    yield f"{name}, asymptotic", own["asymptotic"]
    if own["no_partition"].all():
        yield f"{name}, not normalised", own["unnormalised"]
        yield f"{name}, not normalised, asymptotic", own["asymptotic_unnormalised"]


def _problem_table(rows: pd.DataFrame) -> Table:
    found = rows.sort_values("inputs", kind="stable").groupby("inputs")
    page = found[list(_PROBLEM)].agg(spread).rename(columns=_PROBLEM)
    page["softbench.losses differ by"] = found["library_gap"].max().map("{:.0e}".format)
    page.index = page.index.astype(str)
    title = f"The problems: {rows['dataset'].iloc[0]}"
    data = rows[["inputs", "seed", *_PROBLEM, "library_gap"]]
    return Table(title, page.reset_index(), data)


def plots(plan: Mapping, records: list[dict]) -> dict[str, tuple[str, dict]]:
    """Returns {file name: (caption, data)}, `data` as `softbench.report.plots.panels` makes it."""
    groups = [_numbers(frame.long(group, _rows)) for group in problems(records)]
    sizes = [rows for rows in groups if rows["inputs"].nunique() == 1][:1]
    inputs = [rows for rows in groups if rows["inputs"].nunique() > 1][:1]
    found = {}
    for rows in sizes:
        left = [_size_panel(rows, "ranking"), *map(_inputs_panel, inputs)]
        caption = "KL divergence of exact estimates (Ma & Collins, Fig. {})"
        found["figure_2"] = caption.format(2), panels(*left)
        found["figure_3"] = caption.format(3), panels(_size_panel(rows, "binary"))
    return found


def _size_panel(rows: pd.DataFrame, method: str) -> dict:
    """KL against n: one line for each K, and maximum likelihood."""
    lines = {}
    for count, own in rows[rows["method"] == method].groupby("negatives"):
        if line := points(own, "size", "kl"):
            lines[f"K = {count:.0f}"] = {"points": line}
    best = points(rows[rows["is_best"]], "size", "kl")
    lines["maximum likelihood"] = {"points": best, "kind": "reference"}
    title = f"{_NAMES.get(method, method)}, |X| = {rows['inputs'].iloc[0]}"
    sizes = sorted(rows["size"].unique().tolist())
    return panel(title, "n", "KL, nats", "xy", lines, sizes, "lower left")


def _inputs_panel(rows: pd.DataFrame) -> dict:
    """KL against |X|: one line for each method."""
    lines = {}
    for method, own in rows.groupby("method", sort=False):
        line = {"points": points(own, "inputs", "kl")}
        if own["is_best"].all():
            lines["maximum likelihood"] = line | {"kind": "reference"}
            continue
        name = _NAMES.get(method, method)
        lines[name] = line
        if own["no_partition"].all():
            lines[f"{name}, not normalised"] = {"points": points(own, "inputs", "unnormalised")}
    count = rows["negatives"].max()
    title = f"n = {rows['size'].iloc[0]:,}, K = {count:.0f}"
    inputs = sorted(rows["inputs"].unique().tolist())
    return panel(title, "|X|", "KL, nats", "y", lines, inputs, "center right")

"""Tables and plots of the task "nce_simulation". Needs no Keras."""

from collections.abc import Iterator, Mapping

import pandas as pd

from softbench.experiments.nce import shared_tables as nce
from softbench.report import frame
from softbench.report.plots import panel
from softbench.report.tables import Table

_NAMES = {"binary": "binary, with b_x", "binary_without_b_x": "binary, without b_x"}
_KL = "KL, nats (mean over seeds)"
_PROBLEM = {
    "entropy": "H(y given x), nats",
    "marginal_entropy": "H(y), nats",
    "log_partition_deviation": "deviation of log Z(x)",
    "rarest_class": "rarest class",
}


def tables(plan: Mapping, records: list[dict]) -> list[Table]:
    """Returns the tables of each problem."""
    result = []
    for group in nce.problems(records):
        rows = nce.by_method(plan, frame.long(group, _rows))
        against = _against_inputs if rows["inputs"].nunique() > 1 else _against_size
        result += [*against(plan, rows), _problem_table(frame.long(group, _problem_rows))]
    return result


def _rows(record: Mapping) -> Iterator[dict]:
    """A row for each |X|, n, method and K.

    Columns: `kl`, missing where there was no minimum, and that of maximum likelihood on the same
    data; `unnormalised`, the KL of exp(s) as it is, and whether it was requested (`is_free`).
    """
    methods = record["config"]["methods"]
    best = next(name for name, method in methods.items() if method["objective"] == "likelihood")
    for inputs, results in record["inputs"].items():
        cells = [(n, name, kl) for n, row in results["kl"].items() for name, kl in row.items()]
        for size, method, values in cells:
            free = results["unnormalised"][size].get(method)
            for negatives, value in values.items():
                yield {
                    **nce.method_columns(method, negatives),
                    "inputs": int(inputs),
                    "size": int(size),
                    "is_best": method == best,
                    "is_free": free is not None,
                    "kl": value,
                    "best_kl": results["kl"][size][best]["-"],
                    "unnormalised": (free or {}).get(negatives),
                }


def _against_size(plan: Mapping, rows: pd.DataFrame) -> list[Table]:
    """KL against N and K: means, then ratios to maximum likelihood on the same data."""
    others = rows[~rows["is_best"]].assign(ratio=rows["kl"] / rows["best_kl"])
    where = f"{rows['inputs'].iloc[0]} inputs, {rows['num_classes'].iloc[0]} classes"
    means, ratios = (
        nce.spreads(shown, "size", key, "n = {}")
        for shown, key in ((rows, "kl"), (others, "ratio"))
    )
    means_title = f"KL in nats against n and K: {where} (Fig. 2 left, Fig. 3)"
    keys = ["method", "negatives", "size", "seed"]
    return [
        nce.untitled(means_title, means, rows[[*keys, "kl"]]),
        nce.untitled(
            f"KL over that of maximum likelihood: {where}", ratios, others[[*keys, "ratio"]]
        ),
    ]


def _against_inputs(plan: Mapping, rows: pd.DataFrame) -> list[Table]:
    """KL against the number of inputs: ours, the paper's, and growth."""
    lines = pd.concat(
        [
            group.assign(name=name, value=values)
            for _, group in rows.groupby("name", sort=False)
            for name, values in _lines(plan, group)
        ]
    )
    page = nce.spreads(lines, "inputs", "value", "{} inputs")
    by_inputs = lines.pivot(index=["name", "record"], columns="inputs", values="value")
    growth = (by_inputs.iloc[:, -1] / by_inputs.iloc[:, 0]).groupby("name").agg(nce.spread)
    heading = f"{by_inputs.columns[-1]} / {by_inputs.columns[0]}"
    page[heading] = growth.where(~growth.index.str.endswith(": ours / paper"), "-")
    title = f"KL in nats against the number of inputs: n = {rows['size'].iloc[0]:,} (Fig. 2 right)"
    data = lines[["name", "method", "negatives", "inputs", "seed", "value"]]
    return [nce.untitled(title, page, data)]


def _lines(plan: Mapping, rows: pd.DataFrame) -> Iterator[tuple[str, pd.Series]]:
    """(name, values) of the lines about one method and K."""
    name, method, group = rows.iloc[0][["name", "method", "group"]]
    yield name, rows["kl"]
    paper = plan["paper"].get(f"{group}-{method}", {})
    published = rows["inputs"].astype(str).map(paper).astype(float)
    if published.notna().all():
        yield f"{method} (paper)", published
        yield f"{method}: ours / paper", rows["kl"] / published
    if rows["is_free"].all():
        yield f"{name}, not normalised", rows["unnormalised"]


def _problem_rows(record: Mapping) -> Iterator[dict]:
    for inputs, results in record["inputs"].items():
        yield {"inputs": int(inputs), **{key: results["problem"][key] for key in _PROBLEM}}


def _problem_table(rows: pd.DataFrame) -> Table:
    page = rows.groupby("inputs")[list(_PROBLEM)].agg(nce.spread).rename(columns=_PROBLEM)
    page.index = page.index.astype(str)
    title = f"The problems: {rows['dataset'].iloc[0]}"
    data = rows[["inputs", "seed", *_PROBLEM]]
    return Table(title, page.reset_index(), data, nce.over_seeds(data))


def plots(plan: Mapping, records: list[dict]) -> dict[str, tuple[str, dict]]:
    """Returns {file name: (caption, data)}, with panels."""
    groups = [frame.long(group, _rows) for group in nce.problems(records)]
    sizes = [rows for rows in groups if rows["inputs"].nunique() == 1][:1]
    inputs = [rows for rows in groups if rows["inputs"].nunique() > 1][:1]
    caption = "KL divergence of exact estimates (Ma & Collins, Fig. {})"
    figures = {}
    for rows in sizes:
        left = [_size_panel(rows, "ranking"), *map(_inputs_panel, inputs)]
        figures["figure_2"] = caption.format(2), {"panels": left}
        figures["figure_3"] = caption.format(3), {"panels": [_size_panel(rows, "binary")]}
    return figures


def _size_panel(rows: pd.DataFrame, method: str) -> dict:
    """KL against n: one line for each K, and maximum likelihood."""
    lines = {}
    for count, group in rows[rows["method"] == method].groupby("negatives"):
        if line := nce.points(group, "size", "kl"):
            lines[f"K = {count:.0f}"] = {"points": line}
    best = nce.points(rows[rows["is_best"]], "size", "kl")
    lines["maximum likelihood"] = {"points": best, "kind": "reference"}
    title = f"{_NAMES.get(method, method)}, |X| = {rows['inputs'].iloc[0]}"
    sizes = sorted(rows["size"].unique().tolist())
    return panel(title, "n", _KL, "xy", lines, sizes, "lower left")


def _inputs_panel(rows: pd.DataFrame) -> dict:
    """KL against |X|: one line for each method."""
    lines = {}
    for method, group in rows.groupby("method", sort=False):
        name = _NAMES.get(method, method)
        line = {"points": nce.points(group, "inputs", "kl")}
        if group["is_best"].all():
            lines["maximum likelihood"] = line | {"kind": "reference"}
        else:
            lines[name] = line
        if group["is_free"].all():
            lines[f"{name}, not normalised"] = {
                "points": nce.points(group, "inputs", "unnormalised")
            }
    title = f"n = {rows['size'].iloc[0]:,}, K = {rows['negatives'].max():.0f}"
    inputs = sorted(rows["inputs"].unique().tolist())
    return panel(title, "|X|", _KL, "y", lines, inputs, "center right")

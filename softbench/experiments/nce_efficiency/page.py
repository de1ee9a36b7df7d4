"""Tables and plots of the task "nce_efficiency". Needs no Keras."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
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
from softbench.report.tables import Table, number, show

_POWERS = {"sqrt": -0.5, "inverse": -1.0}  # of K


def tables(plan: Mapping, records: list[dict]) -> list[Table]:
    """Returns the tables of each problem.

    Args:
        plan: the content of `experiment.json`.
        records: records of the task that ended well.
    """
    found: list[Table] = []
    for group in problems(records):
        if "ratios" in group[0]:
            found.append(_ratios(by_method(plan, frame.long(group, _ratio_rows))))
        else:
            rows = by_method(plan, frame.long(group, _measured))
            found += [_efficiency(group, rows), _slopes(rows)]
    return found


def plots(plan: Mapping, records: list[dict]) -> dict[str, tuple[str, dict]]:
    """Returns {file name: (caption, data)}, `data` as `softbench.report.plots.panels` makes it."""
    measured = [group for group in problems(records) if "measured" in group[0]]
    if not measured:
        return {}
    parts = [part for group in measured for part in _panels(frame.long(group, _measured))]
    return {"efficiency": ("n MSE / d against K (Ma & Collins, 4.4)", panels(*parts))}


def _measured(record: Mapping) -> Iterator[dict]:
    """A row for each method and K, with its asymptotic value and that of K to infinity."""
    exact = record["exact"]
    for method, sizes in record["measured"].items():
        limit = exact["limits"].get(method)
        # Where it is that of maximum likelihood, the distance from that is the gap.
        efficient = limit is not None and abs(limit / exact["fisher"] - 1) < 1e-9
        common = {"limit": limit, "fisher": exact["fisher"], "efficient": efficient}
        for negatives, found in sizes.items():
            known = {"exact": exact["methods"][method][negatives]}
            yield {**method_columns(method, negatives), **common, **known, **found}


def _efficiency(group: list[dict], rows: pd.DataFrame) -> Table:
    found = rows.groupby("name", sort=False).agg(
        mean=("mean", "mean"),
        error=("mean_error", pooled_error),
        shown=("mean", spread),
        exact=("exact", "first"),
        limit=("limit", "first"),
        negatives=("negatives", "first"),
        gap=("gap", spread),
        distance=("distance", spread),
    )
    sampled = found["negatives"].notna()
    found[["gap", "distance"]] = found[["gap", "distance"]].where(sampled, "-")
    found["z"] = (found["mean"] - found["exact"]) / found["error"]
    found["rest"] = (found["exact"] - found["limit"]) * found["negatives"]
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
    measured = [f"{key}{error}" for key in ("mean", "gap", "distance") for error in ("", "_error")]
    data = rows[["method", "negatives", "seed", "exact", "limit", *measured]]
    return Table(title, show(found.reset_index(), columns), data)


def _slopes(rows: pd.DataFrame) -> Table:
    """Powers of K fitted to the gaps, exact and measured."""
    sampled = rows[rows["negatives"].notna()]
    data = pd.concat([_fits(own) for _, own in sampled.groupby("method", sort=False)])
    texts = {"slope": spread, **{f"{key}_constant": spread for key in _POWERS}}
    first = {key: "first" for key in ("limit", "exponent", "sqrt_chi_square", "inverse_chi_square")}
    found = data.groupby("method", sort=False).agg(first | texts).reset_index()
    found = found.where(found["sqrt_chi_square"].notna(), found.assign(**dict.fromkeys(texts, "-")))
    columns = {
        "": "method",
        "limit": "limit",
        "exponent of K, exact": ("{:.3f}", "exponent"),
        "measured": "slope",
        "C of C/sqrt(K)": "sqrt_constant",
        "chi2 / dof": "sqrt_chi_square",
        "C of C/K": "inverse_constant",
        "chi2 / dof ": "inverse_chi_square",
    }
    title = f"{rows['dataset'].iloc[0]}: the gap as a power of K"
    return Table(title, show(found, columns), data)


def _fits(own: pd.DataFrame) -> pd.DataFrame:
    """A row for each seed of a method: the power of its gaps, and C of the two bounds."""
    sizes = np.sort(own["negatives"].unique())
    seeds = own.drop_duplicates("seed")
    exact = own[own["seed"] == seeds["seed"].iloc[0]]
    found = seeds[["method", "seed", "limit"]].copy()
    found["exponent"] = powers(exact["negatives"], exact["exact"] - exact["limit"])
    distances, errors = (
        own.pivot(index="seed", columns="negatives", values=key).loc[found["seed"]].to_numpy()
        for key in ("distance", "distance_error")
    )
    efficient = seeds["efficient"].all()
    found["slope"] = powers(sizes, distances.T) if efficient else np.nan
    for name, power in _POWERS.items():
        fit = scaled(sizes, distances, errors, power) if efficient else (np.nan, np.nan)
        found[f"{name}_constant"], found[f"{name}_chi_square"] = fit
    return found


def powers(sizes: Sequence[float], gaps: np.ndarray) -> np.ndarray:
    """Returns the exponents of K: the least-squares slopes of log gap (K,) or (K, S) by log K."""
    return np.polyfit(np.log(sizes), np.log(gaps), 1)[0]


def pooled_error(errors: np.ndarray) -> np.ndarray:
    """Returns the standard errors (...) of means over seeds from those of each seed (S, ...)."""
    return np.linalg.norm(errors, axis=0) / len(errors)


def scaled(
    sizes: Sequence[float], gaps: np.ndarray, errors: np.ndarray, power: float
) -> tuple[np.ndarray, float]:
    """Fits C K^power to the gaps of S seeds, weighted by the inverse variances of the means.

    Args:
        sizes: the K.
        gaps: (S, K).
        errors: (S, K), the standard errors of the gaps.
        power: of K.

    Returns:
        C (S,) of each seed, and chi square of the mean over the seeds, per degree of freedom:
        about 1 where the power is right, much more where it is not.
    """
    basis = np.asarray(sizes, dtype=float) ** power
    means, weights = np.mean(gaps, axis=0), pooled_error(errors) ** -2.0
    norm = weights @ basis**2
    left = means - (weights * basis) @ means / norm * basis
    return gaps @ (weights * basis) / norm, float(weights @ left**2 / (len(basis) - 1))


def _ratio_rows(record: Mapping) -> Iterator[dict]:
    for size, methods in record["ratios"].items():
        for method, sizes in methods.items():
            for negatives, ratio in sizes.items():
                yield {**method_columns(method, negatives), "size": int(size), "ratio": ratio}


def _ratios(rows: pd.DataFrame) -> Table:
    """The counterexample: theta_1 / theta_2 against n."""
    page = spreads(rows, "size", "ratio")
    page.columns = [f"n = {size:,}" for size in page]
    binary = rows.drop_duplicates("name").set_index("name")["method"] == "binary"
    truth = binary.map({True: "3/7 = 0.4286", False: "1/3 = 0.3333"})
    page["n to infinity (section 4.3)"] = truth
    title = "Counterexample: p(y1|x1) / p(y2|x1), truth 1/3"
    data = rows[["method", "negatives", "size", "seed", "ratio"]]
    return Table(title, page.rename_axis("").reset_index(), data)


def _panels(rows: pd.DataFrame) -> list[dict]:
    """n MSE / d against K with its limits, and the gap with the powers of the two bounds."""
    name, fisher = rows["dataset"].iloc[0], float(rows["fisher"].iloc[0])
    sampled = rows[rows["negatives"].notna()]
    sizes = sorted(map(int, sampled["negatives"].unique()))
    lines, gaps = {}, {}
    for method, own in sorted(sampled.groupby("method"), reverse=True):
        limit = own["exact"] - own["limit"]
        lines[method] = {"points": points(own, "negatives", "mean")}
        lines[f"{method}, exact"] = _theory(method, own["negatives"], own["exact"])
        if own["efficient"].all():
            gaps[method] = {"points": points(own, "negatives", "distance")}
            gaps[f"{method}, exact"] = _theory(method, own["negatives"], limit)
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


def _theory(method: str, sizes: pd.Series, values: pd.Series) -> dict:
    found = dict(zip(map(int, sizes), values, strict=True))
    line = [[size, found[size], 0.0] for size in sorted(found)]
    return {"points": line, "kind": "theory", "of": method}

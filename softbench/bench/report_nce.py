"""Tables of the tasks "nce_simulation" and "nce_efficiency", from records. Needs no Keras."""

from collections.abc import Iterable, Mapping

from softbench.bench.nce_fits import pooled_error, powers, scaled
from softbench.bench.report_kernels import half_interval
from softbench.bench.report_tables import Table, group_name, label, number

_EXACT = "likelihood"


def nce_tables(plan: Mapping, records: list[dict]) -> list[Table]:
    """Returns the tables of both tasks.

    Args:
        plan: the content of `experiment.json`.
        records: all records of a page.
    """
    ok = [record for record in records if record["status"] == "ok"]
    found: list[Table] = []
    for group in problems(ok, "nce_simulation"):
        found += _simulation(plan, group)
    for group in problems(ok, "nce_efficiency"):
        found += [_ratios(plan, group)] if "ratios" in group[0] else _efficiency(plan, group)
    return found


def problems(records: list[dict], task: str) -> list[list[dict]]:
    """Returns the records of a task that say "ok": one list for each problem, seeds in order."""
    groups: dict[str, list[dict]] = {}
    own = [r for r in records if r["config"]["task"] == task and r["status"] == "ok"]
    for record in sorted(own, key=lambda r: (label(r["config"]["dataset"]), r["seed"])):
        config = {key: value for key, value in record["config"].items() if key != "seed"}
        groups.setdefault(str(sorted(config.items())), []).append(record)
    return list(groups.values())


def spread(values: Iterable[float | None]) -> str:
    """Returns `mean ± half of the 95 % interval`; says how many are missing."""
    values = list(values)
    found = [value for value in values if value is not None]
    missing = len(values) - len(found)
    if missing:
        return f"no minimum ({missing} of {len(values)})"
    mean = sum(found) / len(found)
    half = float(f"{half_interval(found):.1g}")
    return f"{number(mean)} ± {number(half)}" if half > 1e-9 * abs(mean) else number(mean)


def series(
    group: list[dict], inputs: str, size: str, method: str, negatives: str, what: str = "kl"
) -> list:
    """Returns the KL of every seed, None where there was no minimum; or `what` in its place."""
    return [record["inputs"][inputs][what][size][method][negatives] for record in group]


def in_order(sizes: Iterable[str]) -> list[str]:
    """Returns the keys of a record, which JSON sorts as text, by their numbers."""
    return sorted(sizes, key=lambda size: 0 if size == "-" else int(size))


def method_rows(plan: Mapping, first: Mapping) -> list[tuple[str, str]]:
    """Returns (method, K) in the order of the config, K "-" of maximum likelihood."""
    names = [name for name in plan["methods"] if name in first]
    return [(name, negatives) for name in names for negatives in in_order(first[name])]


def reference(config: Mapping) -> str:
    """Returns the name of the maximum likelihood method."""
    methods = config["methods"].items()
    return next(name for name, method in methods if method["objective"] == _EXACT)


def _simulation(plan: Mapping, group: list[dict]) -> list[Table]:
    inputs = in_order(group[0]["inputs"])
    tables = [_problem_table(group, inputs)]
    if len(inputs) > 1:
        return [_against_inputs(plan, group, inputs), *tables]
    return [*_against_size(plan, group, inputs[0]), *tables]


def _named(name: str, negatives: str) -> str:
    return name if negatives == "-" else f"{name}, K = {negatives}"


def _against_size(plan: Mapping, group: list[dict], inputs: str) -> list[Table]:
    """KL against N and K: means, then ratios to maximum likelihood on the same data."""
    config, kl = group[0]["config"], group[0]["inputs"][inputs]["kl"]
    sizes, best = in_order(kl), reference(config)
    free = group[0]["inputs"][inputs]["limits"][best]["-"]
    means, ratios = [], []
    for name, negatives in method_rows(plan, kl[sizes[0]]):
        all_sizes = [series(group, inputs, size, name, negatives) for size in sizes]
        means.append([_named(name, negatives), *map(spread, all_sizes)])
        if name == best:
            continue
        bases = [series(group, inputs, size, best, "-") for size in sizes]
        row = [
            spread(None if a is None else a / b for a, b in zip(values, base, strict=True))
            for values, base in zip(all_sizes, bases, strict=True)
        ]
        limits = [r["inputs"][inputs]["limits"][name][negatives] / free for r in group]
        ratios.append([_named(name, negatives), *row, spread(limits)])
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
        shown = _named(name, negatives)
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
        row = [_named(method, negatives), spread(values), number(known)]
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
        rows.append([_named(method, negatives), *map(spread, values), truth])
    header = ["", *(f"n = {int(size):,}" for size in sizes), "n to infinity (section 4.3)"]
    return Table("Counterexample: p(y1|x1) / p(y2|x1), truth 1/3", header, rows)

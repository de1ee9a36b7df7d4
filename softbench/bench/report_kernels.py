"""Tables of the tasks "gradient_bias" and "kernel_mse", from records alone. Needs no Keras."""

import json
import math
from collections.abc import Mapping

from softbench.bench.report_tables import Table, number

_REFERENCE = "rff_D1024"  # on the same pairs
# Of Student's t, by degrees of freedom: two-sided 95 %.
_T95 = {1: 12.71, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}


def kernel_tables(plan: Mapping, records: list[dict]) -> list[Table]:
    """Returns the tables of both tasks.

    Args:
        plan: the content of `experiment.json`.
        records: all records of a page.
    """
    found: list[Table] = []
    ok = [record for record in records if record["status"] == "ok"]
    for record in _joined([r for r in ok if r["config"]["task"] == "gradient_bias"]):
        found += _bias_tables(plan, record)
    errors = [record for record in ok if record["config"]["task"] == "kernel_mse"]
    for source in sorted({record["source"] for record in errors}):
        same = [record for record in errors if record["source"] == source]
        found += _error_tables(plan, source, same)
    return found


def _joined(records: list[dict]) -> list[dict]:
    """Returns one record for each configuration and head, with the samplers of all its runs."""
    groups: dict[str, dict] = {}
    for record in sorted(records, key=lambda item: item["cell"]):
        config = {key: value for key, value in record["config"].items() if key != "methods"}
        key = json.dumps([config, record["valid_perplexity"]], sort_keys=True)
        before = groups.get(key, {"samplers": {}})["samplers"]
        groups[key] = {**record, "samplers": {**record["samplers"], **before}}
    return list(groups.values())


def _ordered(plan: Mapping, names: Mapping) -> list[str]:
    known = [name for name in plan["methods"] if name in names]
    return [*known, *sorted(set(names) - set(known))]


def _text(value: float | None) -> str:
    return "inf" if value is None else number(value)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f} %"


def _bias_tables(plan: Mapping, record: Mapping) -> list[Table]:
    samplers, where = record["samplers"], record["config"]["dataset"]["name"]
    head = f"{where}, n = {record['num_classes']:,}, {record['config']['backend']}"
    order = _ordered(plan, samplers)
    rows = []
    for name in order:
        found = samplers[name]
        ratio = [_text(found["ratio"][key]) for key in ("min", "median", "max")]
        row = [name, _text(found["kl"]), _percent(found["ess"]), *ratio]
        rows.append([*row, _percent(found["negative_share"])])
    model = [number(record["valid_perplexity"]), number(record["mutual_information"])]
    tables = [
        Table(
            f"The trained head: {head}",
            ["head", "validation perplexity", "mutual information, nats", "contexts"],
            [["full", *model, str(record["batch"])]],
        )
    ]
    header = ["sampler", "KL(p, q), nats", "ESS", "p/q min", "p/q median", "p/q max", "negative"]
    tables.append(Table(f"Proposals against the softmax: {head}", header, rows))
    for size in sorted(samplers[order[0]]["bias"], key=int):
        title = f"Theorem 1 with m = {int(size):,}: {head}"
        lines = [
            _bias_row(name, samplers[name]["bias"][size], record["contexts"]) for name in order
        ]
        header = ["sampler", "worst bias", "standard error", "LB", "UB", "contexts inside"]
        tables.append(Table(title, header, lines))
    return tables


def _bias_row(name: str, found: Mapping, contexts: int) -> list[str]:
    error = f"{found['error']:.1e}"
    numbers = [_text(found["worst"]), error, _text(found["lower"]), _text(found["upper"])]
    return [name, *numbers, f"{found['inside']} of {contexts}"]


def _error_tables(plan: Mapping, source: str, records: list[dict]) -> list[Table]:
    """The paper's reading beside the paper's numbers, then all maps on one target for each tau."""
    methods, first = records[0]["config"]["methods"], records[0]
    order = _ordered(plan, first["errors"])
    images = "USPS" if source == "usps" else "generated images"
    rows = []
    for name in order:
        method = methods[name]
        if "paper" in method:
            target = {"mse": "exp(o)", "gaussian": "exp(o - 1)"}[method["scored"]]
            values = [record["errors"][name]["1.0"][method["scored"]] for record in records]
            mean = sum(values) / len(values)
            ratio = f"{mean / method['paper']:.3g}"
            rows.append([name, target, interval(values), f"{method['paper']:.1e}", ratio])
    header = ["map", "scored on", "MSE", "MSE (paper)", "ours / paper"]
    tables = [Table(f"The paper's reading, tau = 1: {images}", header, rows)] if rows else []
    for tau in first["errors"][order[0]]:
        lines = []
        for name in order:
            errors = [record["errors"][name][tau] for record in records]
            row = [name, *(interval([e[key] for e in errors]) for key in ("mse", "relative"))]
            if _REFERENCE in first["errors"]:
                base = [record["errors"][_REFERENCE][tau]["mse"] for record in records]
                pairs = zip(errors, base, strict=True)
                row.append(interval([e["mse"] / own for e, own in pairs]))
            lines.append(row)
        header = ["map", "MSE", "MSE / mean squared target"]
        if _REFERENCE in first["errors"]:
            header.append(f"MSE / that of {_REFERENCE}")
        tables.append(Table(f"One target for all, exp({float(tau):g} o): {images}", header, lines))
    return tables


def interval(values: list[float]) -> str:
    """Returns the mean and half of its 95 % interval: `2.1e-03 ± 2e-04`."""
    mean = sum(values) / len(values)
    return f"{mean:.2e}" if len(values) < 2 else f"{mean:.2e} ± {half_interval(values):.0e}"


def half_interval(values: list[float]) -> float:
    """Returns half of the 95 % interval of the mean, by Student's t; 0 for one value."""
    count, mean = len(values), sum(values) / len(values)
    if count < 2:
        return 0.0
    variance = sum((value - mean) ** 2 for value in values) / (count - 1)
    return _T95.get(count - 1, 1.96) * math.sqrt(variance / count)

"""Reads the records of the experiments with exact NCE. Needs no Keras."""

from collections.abc import Iterable, Mapping

from softbench.report.tables import half_interval, label, number


def problems(records: list[dict]) -> list[list[dict]]:
    """Returns the records of a task: one list for each problem, seeds in order."""
    groups: dict[str, list[dict]] = {}
    for record in sorted(records, key=lambda r: (label(r["config"]["dataset"]), r["seed"])):
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
    return next(name for name, method in methods if method["objective"] == "likelihood")


def named(name: str, negatives: str) -> str:
    return name if negatives == "-" else f"{name}, K = {negatives}"


def point(x: float, values: Iterable[float | None]) -> list[list[float]]:
    values = list(values)
    if any(value is None for value in values):
        return []
    return [[x, sum(values) / len(values), half_interval(values)]]

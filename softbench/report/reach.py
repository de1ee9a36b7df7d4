"""Seconds until a method has reached what another one ends with. Needs no Keras."""

from collections.abc import Mapping

from softbench.report.tables import Table, group_name, number


def reach_tables(plan: Mapping, records: list[dict]) -> list[Table]:
    """Returns one table for each data set, model and time budget.

    Args:
        plan: the content of `experiment.json`; `reach` is {"method", "metric"}, or missing.
        records: records of task "train".
    """
    reach = plan.get("reach") or {}
    if not reach:
        return []
    goals, found = {}, []
    finished = [record for record in records if record["status"] == "ok"]
    for record in finished:
        if reach["method"] in record["config"]["methods"]:
            goals[_key(record)] = record
    for key, goal in sorted(goals.items()):
        rows = [record for record in finished if _key(record) == key]
        rows.sort(key=lambda record: plan["methods"].index(_method(record)))
        found.append(_table(reach, goal, rows))
    return found


def _key(record: Mapping) -> tuple:
    config = record["config"]
    return (
        group_name(config),
        config["backend"],
        config.get("max_train_seconds", 0),
        record["seed"],
    )


def _method(record: Mapping) -> str:
    (method,) = record["config"]["methods"]
    return method


def _table(reach: Mapping, goal: Mapping, rows: list[dict]) -> Table:
    """A row for each method: the metric on the way, and the first point that is not below."""
    metric, last = reach["metric"], goal["curve"][-1]
    lines = []
    for record in rows:
        values = [(point["seconds"], point[metric]) for point in record["curve"]]
        reached = next((seconds for seconds, value in values if value >= last[metric]), None)
        tree = (record.get("tree") or {}).get("fit_seconds")
        share = "-" if reached is None else f"{reached / last['seconds']:.2f}"
        lines.append(
            [
                _method(record),
                "-" if tree is None else number(tree),
                number(values[0][0]),
                number(values[0][1]),
                number(max(value for _, value in values)),
                number(values[-1][1]),
                "not" if reached is None else number(reached),
                share,
            ]
        )
    name = metric.removeprefix("valid_")
    header = ["method", "tree, s", "first evaluation, s", f"{name} there", f"best {name}"]
    header += [f"last {name}", f"s to {number(last[metric])}", f"of {number(last['seconds'])} s"]
    title = f"{group_name(goal['config'])}: seconds to the validation {name} that"
    title += f" {reach['method']} ends with, {goal['config']['backend']}"
    if goal["seed"]:
        title += f", seed {goal['seed']}"
    return Table(title, header, lines)

"""Learning rates of a cell: of its optimizer and of the rows of its head and model. Needs no Keras.

A rate is a number or a schedule, {"class_name": one of `keras.optimizers.schedules`, "config"}.
"""

from collections.abc import Callable, Mapping

# Schedules of Keras whose `decay_steps` are the steps until their end.
_ENDING = ("CosineDecay", "PolynomialDecay")

Rate = float | Mapping


def base(config: Mapping) -> Rate | None:
    """The rate of a training cell's optimizer; None where it is neither number nor schedule."""
    ((_, method),) = config["methods"].items()
    return {**config["optimizer"], **method.get("optimizer", {})}.get("learning_rate")


def first(rate: Rate | None) -> float | None:
    """The number of a rate, of a schedule the one that it begins with; None without one."""
    number = rate["config"].get("initial_learning_rate") if isinstance(rate, Mapping) else rate
    return number if isinstance(number, int | float) else None


def changed(config: Mapping, change: Callable[[Rate], Rate]) -> dict:
    """A training cell's config with `change(rate)` for each of its rates."""
    ((name, method),) = config["methods"].items()
    made = {**config, "methods": {name: dict(method)}}
    rate = base(config)
    if rate is not None and change(rate) != rate:
        own = {**method.get("optimizer", {}), "learning_rate": change(rate)}
        made["methods"][name]["optimizer"] = own
    if "kwargs" in method:
        made["methods"][name]["kwargs"] = _with_rows(method["kwargs"], change)
    made["model"] = _with_rows(config["model"], change)
    return made


def _with_rows(arguments: Mapping, change: Callable[[Rate], Rate]) -> dict:
    """Arguments of a head or model, with the rate of their row optimizer changed."""
    rows = arguments.get("row_optimizer") or {}
    if not rows.get("learning_rate"):
        return dict(arguments)
    rows = {**rows, "learning_rate": change(rows["learning_rate"])}
    return {**arguments, "row_optimizer": rows}


def scaled(rate: Rate, factor: float) -> Rate:
    """A rate times a factor: of a schedule, the rates at both of its ends."""
    if not isinstance(rate, Mapping):
        return rate * factor
    ends = ("initial_learning_rate", "end_learning_rate")
    config = {k: v * factor if k in ends else v for k, v in rate["config"].items()}
    return {**rate, "config": config}


def ending(rate: Rate, steps: int) -> Rate:
    """A rate that falls to its end in so many steps, if it is a schedule that has an end."""
    if not isinstance(rate, Mapping) or rate.get("class_name") not in _ENDING:
        return rate
    decay = {"decay_steps": max(1, steps - rate["config"].get("warmup_steps", 0))}
    return {**rate, "config": {**rate["config"], **decay}}


def shortened(rate: Rate, part: float) -> Rate:
    """A rate that falls to its end in a part of its steps, if it is a schedule that has an end."""
    if not isinstance(rate, Mapping) or rate.get("class_name") not in _ENDING:
        return rate
    decay = {"decay_steps": max(1, round(rate["config"]["decay_steps"] * part))}
    return {**rate, "config": {**rate["config"], **decay}}

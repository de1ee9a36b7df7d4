"""The objectives of `SampledSoftmax`: names, or configs with parameters, as functions of logits."""

import inspect
from collections.abc import Callable
from functools import partial

import numpy as np

from softbench import losses
from softbench.table import Table

OBJECTIVES: dict[str, Callable] = {
    "softmax": losses.sampled_softmax,
    "bsl": losses.bsl,
    "psl": losses.psl,
    "sl_at_k": losses.sl_at_k,
}


def get(objective: str | dict, table: Table) -> Callable:
    """The objective (true logit, sampled logits, their log expected counts) -> losses.

    Args:
        objective: a name of `OBJECTIVES`, or {"class_name": name, "config": parameters}.
        table: whose scores it will see.

    Raises:
        ValueError: for an unknown name or parameter, one out of its range, or a table whose scores
            the objective cannot take.
    """
    config: dict = objective if isinstance(objective, dict) else {"class_name": objective}
    name, parameters = config.get("class_name"), dict(config.get("config", {}))
    if name not in OBJECTIVES or set(config) - {"class_name", "config"}:
        raise ValueError(
            f"`objective` must be one of {tuple(OBJECTIVES)}, or a dict of `class_name` and "
            f"`config`. Received: objective={objective!r}"
        )
    function = OBJECTIVES[name]
    known = [*inspect.signature(function).parameters][4:]
    if set(parameters) - set(known):
        raise ValueError(
            f"`objective`: the parameters of {name!r} are {tuple(known)}. "
            f"Received: objective={objective!r}"
        )
    if name == "bsl":
        _check_bounded(table)
    if name == "sl_at_k" and parameters.get("k", 1) > table.units:
        raise ValueError(
            f"`k` must be at most the number of classes, {table.units}. "
            f"Received: objective={objective!r}"
        )
    if name == "psl":
        parameters.setdefault("tau", table.temperature / 2)
    function = partial(function, **parameters)
    one = np.zeros((1, 1), "float32")
    function(one[0], one, None, one)  # the functions check their parameters
    return function


def _check_bounded(table: Table) -> None:
    """Raise a ValueError if a constant can be added to all scores: the loss would have no end."""
    if table.logit_soft_cap is None and (table.use_bias or not table.normalize):
        raise ValueError(
            "`objective`: 'bsl' needs bounded scores: normalize=True and use_bias=False, or a "
            f"table with a logit_soft_cap. Received: normalize={table.normalize}, "
            f"use_bias={table.use_bias}"
        )

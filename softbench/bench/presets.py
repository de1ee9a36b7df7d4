"""A config with its preset and the command line applied. Needs no Keras."""

import copy
import functools
import operator
from collections.abc import Mapping

from softbench.bench.config import ConfigError, plain


def with_preset(config: Mapping, overrides: Mapping[str, object]) -> dict:
    """Returns a plain config with the fields of its preset in the place of its own.

    Args:
        config: A plain config, overrides included.
        overrides: {dotted key: value} of the command line, which win over the preset and over what
            a problem sets for itself (but for its methods: those that it can run).

    Raises:
        ConfigError: For a preset that the config does not have, or a key that it does not have.
    """
    name, presets = config["preset"], config["presets"]
    if name and name not in presets:
        allowed = ", ".join(presets) or "none"
        raise ConfigError(f"--config.preset must be empty or one of: {allowed}. Received: {name!r}")
    result = copy.deepcopy({**config, **presets.get(name, {})})
    for key, value in overrides.items():
        path = key.split(".")
        _assign(result, path, value, key, name)
        for problem in result["problems"].values():
            if path[0] in problem and path[0] != "methods":
                _assign(problem, path, value, key, name)
    return result


def _assign(place: dict, path: list[str], value: object, key: str, preset: str) -> None:
    try:
        functools.reduce(operator.getitem, path[:-1], place)[path[-1]] = plain(value)
    except (KeyError, TypeError):
        raise ConfigError(
            f"Unknown config key of preset {preset!r}. Received: --config.{key}"
        ) from None

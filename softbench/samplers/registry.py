"""Samplers by name. `softbench.samplers` fills the registry."""

import inspect
from typing import Any

import keras

from softbench.samplers.base import Sampler

REGISTRY: dict[str, type[Sampler]] = {}


def get(identifier: str | dict | Sampler, **defaults: Any) -> Sampler:
    """The sampler of a name, of a config dict, or itself.

    Args:
        identifier: a registry name, `{"class_name": name, "config": {...}}`, a serialised Keras
            object, or a `Sampler`.
        **defaults: arguments for the sampler where the config does not give them.

    Raises:
        ValueError: if the name is not in the registry or a config key is not an argument.

    Example:
        >>> softbench.samplers.get("uniform").per_example
        True
        >>> config = {"class_name": "rff", "config": {"num_features": 64}}
        >>> softbench.samplers.get(config).num_features
        64
    """
    if isinstance(identifier, Sampler):
        return identifier
    if isinstance(identifier, str):
        identifier = {"class_name": identifier, "config": {}}
    if not isinstance(identifier, dict) or "class_name" not in identifier:
        raise ValueError(
            "`sampler` must be a name, a dict with 'class_name' and 'config', or a Sampler. "
            f"Received: sampler={identifier!r}"
        )
    name = identifier["class_name"]
    if identifier.get("registered_name"):
        return keras.saving.deserialize_keras_object(identifier)
    if name not in REGISTRY:
        names = ", ".join(sorted(REGISTRY))
        raise ValueError(f"`sampler` must be one of: {names}. Received: sampler={name!r}")
    config = {**defaults, **(identifier.get("config") or {})}
    unknown = sorted(set(config) - arguments(REGISTRY[name]))
    if unknown:
        raise ValueError(
            f"`sampler` {name!r} has no argument {', '.join(unknown)}. Received: {sorted(config)}"
        )
    missing = [key for key in _required(REGISTRY[name]) if key not in config]
    if missing:
        example = {"class_name": name, "config": dict.fromkeys(missing, "...")}
        raise ValueError(
            f"`sampler` {name!r} needs `{'`, `'.join(missing)}`: give sampler={example}. "
            f"Received: {sorted(config)}"
        )
    try:
        return REGISTRY[name](**config)
    except TypeError as error:
        raise ValueError(
            f"`sampler` {name!r} does not take this config: {error}. Received: {sorted(config)}"
        ) from error


def arguments(cls: type) -> set[str]:
    """Names that the constructors of a sampler class and its bases take."""
    names = {"name", "dtype", "trainable"}
    for base in cls.__mro__[: cls.__mro__.index(Sampler) + 1]:
        if "__init__" in vars(base):
            names |= set(inspect.signature(vars(base)["__init__"]).parameters)
    return names - {"self", "kwargs"}


def _required(cls: type) -> list[str]:
    """Names of the arguments that the constructor of a sampler class cannot do without."""
    # Not the class's own: where it inherits, Python before 3.11.4 shows that of Keras' `__new__`.
    constructor = next(vars(base)["__init__"] for base in cls.__mro__ if "__init__" in vars(base))
    _, *parameters = inspect.signature(constructor).parameters.values()
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.kind not in several and p.default is p.empty]


def serialize(sampler: Sampler) -> dict:
    """A config dict that `get` turns into an equal sampler."""
    for name, cls in REGISTRY.items():
        if type(sampler) is cls:
            return {"class_name": name, "config": sampler.get_config()}
    return keras.saving.serialize_keras_object(sampler)

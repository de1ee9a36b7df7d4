"""A user's encoder, named in a config."""

import inspect
from typing import Any

import keras

from softbench.bench.training import build


def encoder(data: Any, config: dict) -> keras.Model | None:
    """The encoder of a model "module:make_encoder", None of any other name.

    It is called with the data set and, of what is in `config.model` and the seed, what it takes.

    Raises:
        ValueError: if it returns no Keras model with symbolic inputs and output.
    """
    name = config["model"].get("name")
    if not build.is_custom(name):
        return None
    make = build.custom_object(name, "model.name")
    options = {k: v for k, v in config["model"].items() if k not in ("name", "label")}
    options["seed"] = config["seed"]
    parameters = inspect.signature(make).parameters
    if all(p.kind is not p.VAR_KEYWORD for p in parameters.values()):
        options = {key: value for key, value in options.items() if key in parameters}
    made = make(data, **options)
    if not isinstance(made, keras.Model) or not getattr(made, "inputs", None):
        raise ValueError(
            f"`model.name`: {name} must return a Functional or Sequential keras.Model with its "
            f"inputs, x -> hidden (..., d). Received: {type(made).__name__}"
        )
    return made

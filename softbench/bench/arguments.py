"""Settings of a method that a search tries, by dotted names. Needs no Keras.

"learning_rate" is the optimizer's. Any other is an argument in the `kwargs` of the method's row,
"temperature", or one inside of it, "objective.ratio": of {"class_name", "config"} that is one in
its `config`.
"""

from collections.abc import Iterator, Mapping

RATE = "learning_rate"


def named(search: Mapping, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yields (dotted name, values) of {"objective": {"ratio": values}} and the like."""
    for name, values in search.items():
        if isinstance(values, Mapping):
            yield from named(values, f"{prefix}{name}.")
        else:
            yield prefix + name, values


def has(method: Mapping, name: str) -> bool:
    """Whether a search can set `name` for a method: a rate, or an argument that its row has."""
    if name == RATE:
        return True
    arguments = method.get("kwargs", {})
    for key in name.split("."):
        if not isinstance(arguments, Mapping) or key not in _parameters(arguments):
            return False
        arguments = _parameters(arguments)[key]
    return True


def changed(arguments: Mapping, name: str, value: object) -> dict:
    """Returns arguments, or a {"class_name", "config"} of them, with another value of one."""
    key, _, rest = name.partition(".")
    parameters = _parameters(arguments)
    if rest:
        value = changed(parameters[key], rest, value)
    parameters = {**parameters, key: value}
    return {**arguments, "config": parameters} if "class_name" in arguments else parameters


def _parameters(arguments: Mapping) -> Mapping:
    return arguments.get("config", {}) if "class_name" in arguments else arguments

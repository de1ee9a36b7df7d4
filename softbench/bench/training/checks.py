"""Mistakes in the cells of a run, reported before the first of them trains: names and arguments."""

import difflib
import importlib
import inspect
from collections.abc import Iterable, Iterator, Mapping

import keras
import numpy as np

import softbench
from softbench import samplers
from softbench.bench.training import build, problems
from softbench.heads import HierarchicalSoftmax, TableHead

_METHOD = ("head", "kwargs", "optimizer")
_CLASSES = 4096  # of samplers that are made to see whether they can be
_OF_LAYERS = {"name", "dtype", "trainable", "activity_regularizer"}


def mistakes(configs: Iterable[Mapping]) -> list[str]:
    """What cannot be meant in the configs of training cells: one line each, in their order."""
    lines = (line for config in configs for line in _of_cell(config))
    return list(dict.fromkeys(lines))


def _of_cell(config: Mapping) -> Iterator[str]:
    for name in config.get("imports", ()):
        what = f"config.imports: {name!r} cannot be imported"
        if wrong := list(_attempt(what, importlib.import_module, name)):
            yield from wrong
            return
    yield from _attempt("config.callbacks", build.callbacks, config.get("callbacks", ()))
    yield from _of_model(config["model"])
    for name, method in config["methods"].items():
        path = f"config.method_table.{name}"
        yield from of_method(path, {key: x for key, x in method.items() if key != "excluded"})
        if "excluded" in method and config["model"].get("name") != "matrix_factorisation":
            received = f"Received: model.name={config['model'].get('name')!r}"
            yield f"{path}.excluded is for config.model.name='matrix_factorisation'. {received}"
        spec = {**config["optimizer"], **method.get("optimizer", {})}
        if "schedule" in spec:  # which gives the rates
            spec = {"learning_rate": 1.0, **spec}
        where = path if "optimizer" in method else "config"
        yield from _attempt(f"{where}.optimizer", build.optimizer, spec)


def of_method(path: str, method: Mapping) -> Iterator[str]:
    """Mistakes in a row of a method table, which is at `path`; not those of its optimizer."""
    yield from _unknown(path, "a method", method, _METHOD)
    yield from _of_head(path, method)


def _of_model(model: Mapping) -> Iterator[str]:
    name = model.get("name")
    if build.is_custom(name):
        yield from _attempt("config.model.name", build.custom_object, name, "model.name")
    elif name is not None and name not in problems.MODELS:
        yield f"config.model.name: {_no(name, 'model', problems.MODELS)}"


def _of_head(path: str, method: Mapping) -> Iterator[str]:
    name, kwargs = method.get("head", ""), method.get("kwargs", {})
    if build.is_custom(name):
        yield from _attempt(f"{path}.head", build.custom_object, name, "head")
        return
    if name not in build.HEADS:
        yield f"{path}.head: {_no(name, 'head of softbench', build.HEADS)}"
        return
    allowed = _parameters(getattr(softbench, name))
    yield from _unknown(path, name, kwargs, allowed)
    if "sampler" in allowed and "sampler" in kwargs:
        yield from _attempt(f"{path}.sampler", _sampler, kwargs["sampler"])
    if "row_optimizer" in kwargs:
        yield from _attempt(f"{path}.row_optimizer", build.row_optimizer, kwargs["row_optimizer"])


def _sampler(spec: object) -> None:
    """Makes a sampler, which needs counts, but not those of the data."""
    samplers.get(build.with_custom(build.of_data(spec, np.ones(_CLASSES))))


def _unknown(path: str, what: str, names: Iterable[str], allowed: Iterable[str]) -> Iterator[str]:
    for name in sorted(set(names) - set(allowed)):
        yield f"{path}: {what} has no argument {name!r}{_near(name, allowed)}"


def _no(name: object, what: str, allowed: Iterable[str]) -> str:
    near = _near(name, allowed)
    return f"{name!r} is no {what}{near or ' (' + ', '.join(sorted(allowed)) + ')'}"


def _near(name: object, allowed: Iterable[str]) -> str:
    near = difflib.get_close_matches(str(name), list(allowed), 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _attempt(path: str, function: object, *arguments: object) -> Iterator[str]:
    try:
        function(*arguments)
    except Exception as error:
        yield f"{path}: {' '.join(str(error).split()) or type(error).__name__}"


def _parameters(cls: type) -> set[str]:
    """Names that the constructors of a class and of its bases take, while each passes others on."""
    names: set[str] = set()
    for base in cls.__mro__:
        if "__init__" not in vars(base):
            continue
        parameters = inspect.signature(vars(base)["__init__"]).parameters.values()
        names |= {p.name for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
        if all(p.kind is not p.VAR_KEYWORD for p in parameters):
            break
    if issubclass(cls, (TableHead, HierarchicalSoftmax)):  # `build.head` makes a table of these
        names |= build.OPTIONS
    if issubclass(cls, keras.layers.Layer):
        names |= _OF_LAYERS
    return names - {"self"}

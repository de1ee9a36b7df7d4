"""Turns the plain data of a cell into heads, optimizers and Keras data sets."""

import importlib
import inspect
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

import softbench
from softbench import heads
from softbench.bench.methods import AT_MOST, LOG_FREQUENCIES, at_most

_COUNTS = ("counts", "prior")
HEADS = tuple(name for name in heads.__all__ if name not in ("Head", "SampledHead", "TableHead"))
OPTIONS = set(softbench.ClassTable.arguments) - {"units", "dim", "seed"}  # of a class table
ROW_OPTIMIZERS = {"sgd": "RowSGD", "adagrad": "RowAdagrad", "adam": "RowAdam"}


def head(method: dict, num_classes: int, counts: np.ndarray, seed: int) -> keras.layers.Layer:
    """Builds a method's head.

    Args:
        method: {"head": class name, "kwargs": {...}}; see the configs. In `kwargs`, wherever it
            occurs, "train" as `counts` or `prior` becomes the training counts, "train + 1" one more
            of each, {"name", "learning_rate"} as `row_optimizer` becomes that optimizer, and
            "log frequencies" as `bias_initializer` becomes log((counts + 1) / sum of counts + 1),
            "at most 512" the smaller of 512 and n / 4. Options of a class table that the head's
            constructor does not have make a `ClassTable` for it.
        num_classes, counts: n, and (n,) occurrences of each class in the training data.
        seed: of the head's samples and of its initial weights.

    Raises:
        ValueError: for a head that softbench does not have.
    """
    kwargs = of_data(method.get("kwargs", {}), counts)
    if kwargs.get("bias_initializer") == LOG_FREQUENCIES:
        value = np.log((counts + 1) / np.sum(counts + 1))
        kwargs["bias_initializer"] = keras.initializers.Constant(value)
    if "row_optimizer" in kwargs:
        kwargs["row_optimizer"] = row_optimizer(kwargs["row_optimizer"])
    if "sampler" in kwargs:
        kwargs["sampler"] = with_custom(kwargs["sampler"])
    if {"sampler", "num_buckets"} & set(kwargs):
        kwargs["seed"] = seed
    cls = head_class(method["head"])
    return cls(num_classes, **_with_table(cls, num_classes, kwargs))


def _with_table(cls: type, num_classes: int, kwargs: dict) -> dict:
    """The arguments of a head, with a table made of those that only a table has."""
    if not issubclass(cls, (heads.TableHead, heads.HierarchicalSoftmax)):
        return kwargs
    of_table = [name for name in kwargs if name in OPTIONS]
    if not set(of_table) - set(inspect.signature(cls.__init__).parameters):
        return kwargs
    options = {name: kwargs[name] for name in (*of_table, "seed", "dtype") if name in kwargs}
    tree = issubclass(cls, heads.HierarchicalSoftmax)
    rows = heads.HierarchicalSoftmax.num_nodes(num_classes) if tree else num_classes
    table = softbench.ClassTable(rows, **options, name="nodes" if tree else "table")
    return {key: kwargs[key] for key in kwargs if key not in of_table} | {"table": table}


def head_class(name: str) -> type:
    """The class of a head: of softbench, "module:Class", or "package>Class" as Keras knows it.

    Raises:
        ValueError: for any other name.
    """
    if is_custom(name):
        return custom_object(name, "head")
    if name not in HEADS:
        raise ValueError(f"`head` must name a head of softbench. Received: {name!r}")
    return getattr(softbench, name)


def megabytes(layer: keras.layers.Layer) -> float:
    """The size of all variables of a layer that is built, in MiB."""
    sizes = (np.prod(v.shape, dtype=float) * np.dtype(v.dtype).itemsize for v in layer.variables)
    return round(sum(sizes) / 2**20, 3)


def is_custom(name: object) -> bool:
    """Whether a name is that of something that softbench does not have."""
    return isinstance(name, str) and (":" in name or ">" in name)


def custom_object(name: str, argument: str) -> Any:
    """The object of "module:name", or of "package>name" as registered with Keras.

    Modules are found as Python finds them from the folder in which the command was started.

    Raises:
        ValueError: naming the argument, if there is no such thing.
    """
    if ":" in name:
        module, _, attribute = name.partition(":")
        rule = f"`{argument}` must be module:name, found from the folder of the command"
        try:
            return getattr(importlib.import_module(module), attribute)
        except Exception as error:
            raise ValueError(f"{rule}. Received: {name!r} ({error})") from error
    registered = keras.saving.get_registered_object(name)
    if registered is None:
        raise ValueError(
            f"`{argument}` must be registered with Keras by a module that --config.imports names. "
            f"Received: {name!r}"
        )
    return registered


def custom_encoder(data: Any, config: dict) -> keras.Model | None:
    """The encoder of a model "module:make_encoder", None of any other name.

    It is called with the data set and, of what is in `config.model` and the seed, what it takes.

    Raises:
        ValueError: if it returns no Keras model with symbolic inputs and output.
    """
    name = config["model"].get("name")
    if not is_custom(name):
        return None
    make = custom_object(name, "model.name")
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


def with_custom(sampler: Any) -> Any:
    """A sampler's config, in which samplers that are not of softbench are made."""
    if not isinstance(sampler, dict):
        return custom_object(sampler, "sampler")() if is_custom(sampler) else sampler
    config = {key: with_custom(value) for key, value in sampler.get("config", {}).items()}
    if is_custom(sampler.get("class_name")):
        return custom_object(sampler["class_name"], "sampler")(**config)
    return {**sampler, "config": config} if "class_name" in sampler else sampler


def callbacks(specs: Sequence[str | dict]) -> list[keras.callbacks.Callback]:
    """Makes the callbacks of a config: "module:Class", or {"class_name", "config"}."""
    made = []
    for spec in specs:
        spec = {"class_name": spec} if isinstance(spec, str) else spec
        made.append(custom_object(spec["class_name"], "callbacks")(**spec.get("config", {})))
    return made


def row_optimizer(spec: dict | None) -> softbench.RowSGD | None:
    """Builds a row optimizer from {"name": "sgd", "adagrad" or "adam", "learning_rate", ...}.

    Raises:
        ValueError: for any other name.
    """
    if not spec:
        return None
    kwargs = {key: value for key, value in spec.items() if key != "name"}
    if spec.get("name") not in ROW_OPTIMIZERS:
        names = ", ".join(ROW_OPTIMIZERS)
        raise ValueError(f"`row_optimizer` must name one of: {names}. Received: {spec}")
    return getattr(softbench, ROW_OPTIMIZERS[spec["name"]])(**kwargs)


def of_data(value: object, counts: np.ndarray) -> object:
    """Plain data of a config with what `head` puts instead of "train" and the like."""
    if isinstance(value, dict):
        arrays = {"train": counts, "train + 1": counts + 1}
        return {
            key: arrays[item]
            if key in _COUNTS and isinstance(item, str) and item in arrays
            else of_data(item, counts)
            for key, item in value.items()
        }
    if isinstance(value, str) and value.startswith(AT_MOST):
        return at_most(value, len(counts))
    return [of_data(item, counts) for item in value] if isinstance(value, list) else value


def optimizer(spec: dict) -> keras.optimizers.Optimizer:
    """Builds a Keras optimizer from {"name", "learning_rate", "global_clipnorm", ...}.

    The rate may be a schedule of Keras: {"class_name": "CosineDecay", "config": {...}}.

    Raises:
        ValueError: without a name or a rate.
    """
    if not {"name", "learning_rate"} <= set(spec):
        raise ValueError(f"`optimizer` must have a name and a learning_rate. Received: {spec}")
    kwargs = {key: value for key, value in spec.items() if key not in ("name", "schedule")}
    if isinstance(kwargs["learning_rate"], dict):
        schedule = keras.optimizers.schedules.deserialize(kwargs["learning_rate"])
        kwargs["learning_rate"] = schedule
    return type(keras.optimizers.get(spec["name"]))(**kwargs)


class Batches(keras.utils.PyDataset):
    """A sequence of NumPy batches as a Keras data set in its order, `limit` of them an epoch.

    With a limit, which may be more than a pass has, an epoch goes on where the one before it
    stopped, into the next pass over the batches where one ends. `go_to` says where it begins:
    Keras calls `on_epoch_end` more than once for an epoch, so it is not counted.
    """

    def __init__(self, batches: object, limit: int = 0) -> None:
        super().__init__()
        self._batches = batches
        self.length = limit or len(batches)
        self._start = self._done = 0

    def go_to(self, step: int, done: int = 0, length: int = 0) -> None:
        """Begins the next epoch at a step, counted from 0 over all passes.

        Of that epoch so many steps are `done`: it is so much shorter. With a `length`, it and the
        next ones have so many steps, whatever a pass has.
        """
        self._start, self._done = step, done
        self.length = length or self.length

    def __len__(self) -> int:
        return self.length - self._done

    def __getitem__(self, index: int) -> tuple:
        epoch, index = divmod(self._start + index, len(self._batches))
        if getattr(self._batches, "epoch", epoch) != epoch:
            self._batches.set_epoch(epoch)
        return self._batches[index]

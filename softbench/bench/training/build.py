"""Turns the plain data of a cell into heads, optimizers and Keras data sets."""

import keras
import numpy as np

import softbench
from softbench.bench.methods import LOG_FREQUENCIES

_COUNTS = ("counts", "prior")
_ROW_OPTIMIZERS = {"sgd": "RowSGD", "adagrad": "RowAdagrad", "adam": "RowAdam"}


def head(method: dict, num_classes: int, counts: np.ndarray, seed: int) -> keras.layers.Layer:
    """Builds a method's head.

    Args:
        method: {"head": class name, "kwargs": {...}}; see the configs. In `kwargs`, wherever it
            stands, "train" as `counts` or `prior` becomes the training counts, "train + 1" one more
            of each, {"name", "learning_rate"} as `row_optimizer` becomes that optimizer, and
            "log frequencies" as `bias_initializer` becomes log((counts + 1) / sum of counts + 1).
        num_classes, counts: n, and (n,) occurrences of each class in the training data.
        seed: of the head's samples and of its initial weights.

    Raises:
        ValueError: for a head that softbench does not have.
    """
    name = method["head"]
    if not hasattr(softbench, name):
        raise ValueError(f"`head` must name a head of softbench. Received: {name!r}")
    kwargs = _with_counts(method.get("kwargs", {}), counts)
    if kwargs.get("bias_initializer") == LOG_FREQUENCIES:
        value = np.log((counts + 1) / np.sum(counts + 1))
        kwargs["bias_initializer"] = keras.initializers.Constant(value)
    if "row_optimizer" in kwargs:
        kwargs["row_optimizer"] = row_optimizer(kwargs["row_optimizer"])
    if {"sampler", "num_buckets"} & set(kwargs):
        kwargs["seed"] = seed
    return getattr(softbench, name)(num_classes, **kwargs)


def row_optimizer(spec: dict | None) -> softbench.RowSGD | None:
    """Builds a row optimizer from {"name": "sgd", "adagrad" or "adam", "learning_rate", ...}."""
    if not spec:
        return None
    kwargs = {key: value for key, value in spec.items() if key != "name"}
    return getattr(softbench, _ROW_OPTIMIZERS[spec["name"]])(**kwargs)


def _with_counts(value: object, counts: np.ndarray) -> object:
    if isinstance(value, dict):
        known = {"train": counts, "train + 1": counts + 1}
        return {
            key: known[item]
            if key in _COUNTS and isinstance(item, str) and item in known
            else _with_counts(item, counts)
            for key, item in value.items()
        }
    return [_with_counts(item, counts) for item in value] if isinstance(value, list) else value


def optimizer(spec: dict) -> keras.optimizers.Optimizer:
    """Builds a Keras optimizer from {"name", "learning_rate", "global_clipnorm", ...}."""
    kwargs = {key: value for key, value in spec.items() if key not in ("name", "schedule")}
    return keras.optimizers.get({"class_name": spec["name"], "config": kwargs})


class Batches(keras.utils.PyDataset):
    """A sequence of NumPy batches as a Keras data set in its own order, `limit` of them an epoch.

    With a limit, an epoch goes on where the one before it stopped, into the next pass over the
    batches where one ends. `go_to` says where it begins: Keras calls `on_epoch_end` more than
    once for an epoch, so it is not counted.
    """

    def __init__(self, batches: object, limit: int = 0) -> None:
        super().__init__()
        self._batches = batches
        self._length = min(len(batches), limit or len(batches))
        self._start = self._done = 0

    def go_to(self, step: int, done: int = 0) -> None:
        """Begins the next epoch at a step, counted from 0 over all passes.

        Of that epoch so many steps are `done`: it is so much shorter.
        """
        self._start, self._done = step, done

    def __len__(self) -> int:
        return self._length - self._done

    def __getitem__(self, index: int) -> tuple:
        epoch, index = divmod(self._start + index, len(self._batches))
        if getattr(self._batches, "epoch", epoch) != epoch:
            self._batches.set_epoch(epoch)
        return self._batches[index]

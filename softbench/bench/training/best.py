"""The best point of a learning curve, its weights, and when a run has come to its end."""

import math
from collections.abc import Iterable, Mapping

import keras
import numpy as np

from softbench.bench.config import LOWER


def check(config: Mapping, measures: Iterable[str]) -> None:
    """Raises a ValueError if `keep_by` is used and is none of the measures of an evaluation."""
    if config.get("keep_by", "") not in ("", *measures):
        names = ", ".join(measures)
        raise ValueError(f"`keep_by` must be one of: {names}. Received: {config['keep_by']!r}")


class Best:
    """Keeps the weights of the best validation point so far, one copy in the host's memory.

    The copy holds what prediction and the diagnostics read, states of samplers included; slots of
    row optimizers and the Keras optimizer's variables are not in it.

    Args:
        config: the cell's; of `keep`, `keep_by` and `patience` those that are used.
        model: built.

    Attributes:
        index: of the best point in the curve, from 0; None before the first one.
        arrays: the kept weights; none before the first point.
    """

    def __init__(self, config: Mapping, model: keras.Model) -> None:
        self.index: int | None = None
        self._keeps = config.get("keep") == "best"
        self._patience, self._measure = config.get("patience", 0), config.get("keep_by", "")
        self._model, self._value, self._since = model, math.inf, 0
        self.arrays: list[np.ndarray] = []

    def add(self, curve: list[dict]) -> None:
        """Looks at the last point of a curve, that of the model's weights."""
        if not (self._keeps or self._patience):
            return
        value = self._loss(curve[-1])
        self._since += 1
        if value < self._value:
            self.index, self._value, self._since = len(curve) - 1, value, 0
            if self._keeps:
                numbers = keras.ops.convert_to_numpy
                self.arrays = [np.array(numbers(v.value)) for v in self._variables()]

    def _loss(self, point: Mapping) -> float:
        """The measure at a point, less being better."""
        value = point[f"valid_{self._measure}"]
        return value if self._measure.startswith(LOWER) else -value

    def is_over(self) -> bool:
        """Whether `patience` points have been no better than one before them."""
        return 0 < self._patience <= self._since

    def _variables(self) -> list[keras.Variable]:
        layers = self._model._flatten_layers()
        slots = [v for layer in layers for group in getattr(layer, "row_slots", ()) for v in group]
        left_out = {id(variable) for variable in slots}
        return [v for v in self._model.variables if id(v) not in left_out]

    def put_back(self) -> None:
        """Gives the model the weights of the best point."""
        for variable, array in zip(self._variables(), self.arrays, strict=True):
            variable.assign(array)

    def state(self) -> dict:
        """What `go_on` takes in another process, besides `arrays`."""
        return {"index": self.index, "since": self._since}

    def go_on(self, state: Mapping, arrays: Iterable[np.ndarray], curve: list[dict]) -> None:
        """Goes on where another process was, whose curve and arrays these are."""
        dtypes = [np.dtype(variable.dtype) for variable in self._variables()]
        self.arrays = [array.view(dtype) for array, dtype in zip(arrays, dtypes, strict=False)]
        self.index, self._since = state["index"], state["since"]
        if self.index is not None:
            self._value = self._loss(curve[self.index])

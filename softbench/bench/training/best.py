"""The best point of a learning curve, its weights, and when a run has come to its end."""

import math
from collections.abc import Iterable, Mapping

import keras
import numpy as np

LOWER = ("nll", "perplexity")  # of the measures; of all others more is better


class Best:
    """Keeps the weights of the best validation point so far, one copy in the host's memory.

    The copy holds what prediction and the diagnostics read, states of samplers included; slots of
    row optimizers and the Keras optimizer's variables are not in it.

    Args:
        config: the cell's; of `keep`, `keep_by` and `patience` those that are used.
        model: built.

    Attributes:
        place: of the best point in the curve, from 0; None before the first one.
        arrays: the kept weights; none before the first point.
    """

    def __init__(self, config: Mapping, model: keras.Model) -> None:
        self.place: int | None = None
        self._keeps = config.get("keep") == "best"
        self._patience, self._measure = config.get("patience", 0), config.get("keep_by", "")
        self._model, self._value, self._since = model, math.inf, 0
        self.arrays: list[np.ndarray] = []

    def add(self, curve: list[dict]) -> None:
        """Looks at the last point of a curve, that of the model's weights.

        Raises:
            ValueError: if the point does not have the measure.
        """
        if not (self._keeps or self._patience):
            return
        found = {key.removeprefix("valid_"): curve[-1][key] for key in curve[-1] if "valid_" in key}
        name = self._measure
        if name not in found:
            known = ", ".join(found)
            raise ValueError(f"`keep_by` must be one of: {known}. Received: {name!r}")
        value = found[name] if name in LOWER else -found[name]
        self._since += 1
        if value < self._value:
            self.place, self._value, self._since = len(curve) - 1, value, 0
            if self._keeps:
                numbers = keras.ops.convert_to_numpy
                self.arrays = [np.array(numbers(v.value)) for v in self._variables()]

    def is_over(self) -> bool:
        """Whether `patience` points have been no better than one before them."""
        return 0 < self._patience <= self._since

    def _variables(self) -> list[keras.Variable]:
        layers = self._model._flatten_layers()
        slots = [v for layer in layers for part in getattr(layer, "row_slots", ()) for v in part]
        left_out = {id(variable) for variable in slots}
        return [v for v in self._model.variables if id(v) not in left_out]

    def put_back(self) -> None:
        """Gives the model the weights of the best point."""
        for variable, array in zip(self._variables(), self.arrays, strict=True):
            variable.assign(array)

    def state(self) -> dict:
        """What `go_on` takes in another process, beside `arrays`."""
        return {"place": self.place, "since": self._since}

    def go_on(self, state: Mapping, arrays: Iterable[np.ndarray], curve: list[dict]) -> None:
        """Goes on where another process was, whose curve and arrays these are."""
        dtypes = [np.dtype(variable.dtype) for variable in self._variables()]
        self.arrays = [array.view(dtype) for array, dtype in zip(arrays, dtypes, strict=False)]
        self.place, self._since = state["place"], state["since"]
        if self.place is not None:
            value = curve[self.place][f"valid_{self._measure}"]
            self._value = value if self._measure in LOWER else -value

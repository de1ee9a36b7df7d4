"""Codebooks that track a head's table from the beginning of its training."""

from collections.abc import Iterable

import keras
import numpy as np

from softbench.experiments import trained as trained_lib
from softbench.experiments.trained import Trained


class Tracker(keras.callbacks.Callback):
    """Gives a sampler the training steps of another head.

    The sampler is built from the table of the first step, and looks at the table again in every
    `refresh_every`-th step, as it would do in a separate head. Shape letters: n classes,
    d features.

    Args:
        method: the row of the sampler.
        counts: (n,) of the training labels.
        seed: of the sampler.
        steps: training steps after which its state is kept.

    Raises:
        ValueError: at the first step, unless the sampler is a codebook.
    """

    def __init__(self, method: dict, counts: np.ndarray, seed: int, steps: Iterable[int]) -> None:
        super().__init__()
        self._method, self._counts, self._seed = method, counts, seed
        self._wanted = set(steps)
        self._step, self._every = 0, 1
        self._states: dict[int, dict[str, np.ndarray]] = {}
        self._head: keras.layers.Layer | None = None

    def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        if self._head is None:
            self._build()
        elif self._step % self._every == 0:
            head = self._head
            head.table.kernel.assign(self._kernel())
            head.sampler.refresh_when_due(head.table)

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        self._step += 1
        if self._step in self._wanted:
            values = self._head.sampler.followers.items()
            arrays = {name: keras.ops.convert_to_numpy(value) for name, value in values}
            self._states[self._step] = {name: np.array(value) for name, value in arrays.items()}

    def head(self, step: int, point: Trained) -> keras.layers.Layer:
        """The head with the table of `point`, and the sampler as it was after `step`."""
        self._head.table.kernel.assign(point.kernel)
        for name, value in self._states[step].items():
            self._head.sampler.followers[name].assign(value)
        return self._head

    def _kernel(self) -> np.ndarray:
        return np.array(keras.ops.convert_to_numpy(self.model.head.table.kernel))

    def _build(self) -> None:
        kernel = self._kernel()
        first = Trained(kernel, kernel[:0], np.zeros(0), self._counts, np.zeros(()))
        self._head = trained_lib.head(self._method, first, self._seed)
        sampler = self._head.sampler
        if sampler.index() is not sampler:
            raise ValueError(
                "`following` must name rows of the sampler 'codebook'. Received a row of "
                f"{type(sampler).__name__}"
            )
        self._every, sampler.refresh_every = sampler.refresh_every, 1

"""Batches of token streams: carried state for training, every token once for evaluation.

Shape letters: B batch, T steps, N tokens, n classes.
"""

import numpy as np

from softbench.common import check_positive
from softbench.datasets.base import Batches


def _stream(tokens: np.ndarray) -> np.ndarray:
    tokens = np.asarray(tokens)
    if tokens.ndim != 1 or not np.issubdtype(tokens.dtype, np.integer):
        raise ValueError(
            "`tokens` must be a one-dimensional array of integers. "
            f"Received: shape={tokens.shape}, dtype={tokens.dtype}"
        )
    return tokens.astype(np.int32, copy=False)


class CarriedBatches(Batches):
    """Batches of a token stream whose rows continue from one batch to the next.

    As Zaremba et al. (2014): the stream is cut into `batch_size` contiguous rows of
    `len(tokens) // batch_size` tokens, and batch i holds columns `[i T, (i + 1) T)` of them, so a
    model that carries its state sees each row as one long text. There are
    `(len(tokens) // batch_size - 1) // num_steps` batches; what does not fill one is dropped (but
    see `EvaluationBatches`).

    Args:
        tokens: `(N,)` integer stream.
        batch_size: B, number of rows.
        num_steps: T, tokens of a row in one batch.

    Item i is `(x, y)`, both int32 `(B, T)`, `y` being `x` shifted by one.

    Raises:
        ValueError: if the stream is too short for one batch.
    """

    def __init__(self, tokens: np.ndarray, batch_size: int, num_steps: int) -> None:
        check_positive(batch_size=batch_size, num_steps=num_steps)
        tokens = _stream(tokens)
        row = len(tokens) // batch_size
        self.batch_size, self.num_steps = batch_size, num_steps
        self._length = (row - 1) // num_steps
        if self._length < 1:
            raise ValueError(
                "`tokens` must hold at least batch_size * (num_steps + 1) = "
                f"{batch_size * (num_steps + 1)} tokens. Received: {len(tokens)} tokens"
            )
        self._rows = tokens[: row * batch_size].reshape(batch_size, row)

    def _batch(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        start, stop = index * self.num_steps, (index + 1) * self.num_steps
        return self._rows[:, start:stop], self._rows[:, start + 1 : stop + 1]


class EvaluationBatches(Batches):
    """Batches that cover every predicted token of a stream exactly once.

    The `len(tokens) - 1` predictions are cut into B contiguous rows of `ceil` equal length, and
    these into batches of T columns; positions beyond the end have id 0 and weight 0. A row starts
    without the text before it, so `batch_size=1` is the evaluation with full context.

    Item i is `(x, y, weight)`: int32, int32 and float32, each `(B, T)`. Weights add up to
    `num_predicted = len(tokens) - 1`.
    """

    def __init__(self, tokens: np.ndarray, batch_size: int, num_steps: int) -> None:
        check_positive(batch_size=batch_size, num_steps=num_steps)
        tokens = _stream(tokens)
        self.num_predicted = len(tokens) - 1
        if self.num_predicted < 1:
            raise ValueError(f"`tokens` must hold at least 2 tokens. Received: {len(tokens)}")
        row = -(-self.num_predicted // batch_size)
        self._length = -(-row // num_steps)
        self.batch_size, self.num_steps = batch_size, num_steps

        def rows(values: np.ndarray) -> np.ndarray:
            flat = np.zeros(batch_size * row, values.dtype)
            flat[: self.num_predicted] = values
            width = self._length * num_steps - row
            return np.pad(flat.reshape(batch_size, row), ((0, 0), (0, width)))

        weight = np.ones(self.num_predicted, np.float32)
        self._arrays = (rows(tokens[:-1]), rows(tokens[1:]), rows(weight))

    def _batch(self, index: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        columns = slice(index * self.num_steps, (index + 1) * self.num_steps)
        return tuple(array[:, columns] for array in self._arrays)

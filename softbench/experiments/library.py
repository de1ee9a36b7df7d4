"""The objectives of `softbench.losses` at scores in NumPy, as the experiments need them."""

from collections.abc import Callable
from typing import NamedTuple

import keras
import numpy as np

from softbench import losses
from softbench.common import Tensor
from softbench.ops import gradients_and_aux

NCE = {"ranking": losses.nce_ranking, "binary": losses.nce_binary}


class Evaluated(NamedTuple):
    """What an objective gives, in float64 of float32 arithmetic.

    Attributes:
        total: of the losses, a number.
        losses: (S,).
        gradient: of the total with respect to the logits (S, 1 + m).
    """

    total: float
    losses: np.ndarray
    gradient: np.ndarray


def evaluate(
    objective: Callable[..., Tensor],
    logits: np.ndarray,
    log_expected_count: np.ndarray,
    total: Callable[[Tensor], Tensor] = keras.ops.sum,
) -> Evaluated:
    """Evaluates an objective and its gradient by autodiff.

    Args:
        objective: of `softbench.losses`.
        logits: (S, 1 + m), the label's first.
        log_expected_count: (S, 1 + m) of the same classes.
        total: sum or mean.
    """
    true, sampled, of_true, of_sampled = (
        keras.ops.convert_to_tensor(columns.astype("float32"))
        for array in (logits, log_expected_count)
        for columns in (array[:, 0], array[:, 1:])
    )

    def loss(true: Tensor, sampled: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        values = objective(true, sampled, of_true, of_sampled)
        value = total(values)
        return value, (value, values)

    gradients, aux = gradients_and_aux(loss, [true, sampled])
    to_true, to_sampled, value, values = (
        keras.ops.convert_to_numpy(array).astype(float) for array in (*gradients, *aux)
    )
    gradient = np.concatenate([to_true[:, None], to_sampled], axis=-1)
    return Evaluated(float(value), values, gradient)

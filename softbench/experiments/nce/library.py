"""The public objectives of softbench.losses, as functions of a table of scores.

The experiments minimise the float64 objectives of `nce_objectives`; every record says how far those
are from the library's own.
"""

import keras
import numpy as np

from softbench import losses
from softbench.experiments.nce.objectives import Objective, Sample
from softbench.ops import gradients_and_aux

_LOSSES = {"ranking": losses.nce_ranking, "binary": losses.nce_binary}


def library_objective(name: str, sample: Sample, log_noise: np.ndarray) -> Objective:
    """Returns the library's objective, mean over the points, and its gradient by autodiff (X, Y).

    Args:
        name: "ranking" or "binary".
        sample: points and draws, see `Sample`.
        log_noise: log p_N (Y,).
    """
    x, num_noise = sample.inputs[:, None], sample.noise.shape[1]
    ids = np.concatenate([sample.classes[:, None], sample.noise], axis=-1)
    counts = _tensor(log_noise[ids] + np.log(num_noise))

    def loss(logits: object) -> tuple:
        arguments = (logits[:, 0], logits[:, 1:], counts[:, 0], counts[:, 1:])
        found = keras.ops.mean(_LOSSES[name](*arguments))
        return found, found

    def objective(table: np.ndarray) -> tuple[float, np.ndarray]:
        (to_logits,), value = gradients_and_aux(loss, [_tensor(table[x, ids])])
        gradient = np.zeros(table.shape)
        np.add.at(gradient, (x, ids), keras.ops.convert_to_numpy(to_logits).astype(float))
        return float(keras.ops.convert_to_numpy(value)), gradient

    return objective


def distance(ours: Objective, library: Objective, table: np.ndarray) -> dict[str, float]:
    """Returns |difference| of the values, and of the gradients as a share of the largest entry."""
    (value, gradient), (other, other_gradient) = ours(table), library(table)
    scale = np.abs(gradient).max()
    return {
        "value": abs(value - other) / abs(value),
        "gradient": float(np.abs(gradient - other_gradient).max() / scale),
    }


def _tensor(array: np.ndarray) -> object:
    return keras.ops.convert_to_tensor(array.astype("float32"))

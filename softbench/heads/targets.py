"""What a call is given beside the hidden vectors: labels, weights, masks and padding as one."""

from typing import Any

import numpy as np
from keras import ops

from softbench.common import Tensor
from softbench.heads import inputs, positives
from softbench.labels import is_any_of
from softbench.ops import is_concrete


def targets(
    hidden: Tensor, labels: Any, sample_weight: Any, masks: tuple, padding: tuple, several: bool
) -> tuple[Any, Tensor | None, dict[str, Tensor]]:
    """Labels, the weights (...) of the examples or None, and {} or `label_weight` (..., P).

    Weights are 0 where a mask is False and where the label is one of `padding`. Labels, weights
    and masks (..., 1) of one label for each vector become (...); of `several` they are (..., P).
    """
    if labels is None:
        return None, None, {}
    if several:
        inputs.check_ids("labels", labels, hidden, several=True)
        weight, own = positives.weights(labels, sample_weight, masks, padding)
        return labels, weight, {"label_weight": own}
    single = inputs.without_last_one(labels, hidden)
    if single is not labels:
        given = [
            x if x is None else inputs.without_last_one(x, hidden) for x in (sample_weight, *masks)
        ]
        sample_weight, masks = given[0], tuple(given[1:])
    weight = inputs.with_masks(sample_weight, single, *masks)
    if padding:
        weight = inputs.with_masks(weight, single, ~is_any_of(single, padding))
    return single, weight, {}


def without_padding(labels: Any, padding: tuple) -> Any:
    """`labels` with 0 for those of `padding`, where their values can be seen."""
    if not padding or not is_concrete(labels):
        return labels
    values = ops.convert_to_numpy(labels) if ops.is_tensor(labels) else np.asarray(labels)
    return np.where(is_any_of(values, padding), values.dtype.type(0), values)

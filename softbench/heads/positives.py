"""Several labels for each example.

Shape letters: B batch, P label slots of an example (padded), m samples.
"""

from collections.abc import Callable
from typing import Any

from keras import ops

from softbench.common import Tensor, check_number
from softbench.heads.components import Compared
from softbench.ops import share_backward

REDUCTIONS = (None, "mean", "sum")


def check_reduction(multi_label: Any, defined: bool, owner: str) -> None:
    """Raise a ValueError unless the head `owner` can take labels of this kind."""
    if multi_label not in REDUCTIONS:
        raise ValueError(
            f"`multi_label` must be one of {REDUCTIONS}. Received: multi_label={multi_label!r}"
        )
    if multi_label and not defined:
        raise ValueError(
            f"`multi_label` must be None: {owner} has no form for several labels of an example. "
            f"Use FullSoftmax or SampledSoftmax. Received: multi_label={multi_label!r}"
        )


def check_smoothing(label_smoothing: float, multi_label: Any) -> None:
    """Raise a ValueError unless a share of the labels can be smoothed."""
    check_number(0, label_smoothing=label_smoothing)
    if label_smoothing >= 1 or (label_smoothing and multi_label):
        raise ValueError(
            "`label_smoothing` must be in [0, 1), and 0 with `multi_label`. Received: "
            f"label_smoothing={label_smoothing}, multi_label={multi_label!r}"
        )


def each(
    objective: Callable, true_logit: Tensor, sampled: list[Tensor], draws: list[Compared]
) -> Tensor:
    """The loss (B, P) of every label against the draws of its example.

    Args:
        objective: `SampledHead.objective`.
        true_logit: (B, P).
        sampled: logits (B, m) of each set of draws, -inf where a draw is one of the labels.
        draws: the sets, whose `true_log_expected_count` are (B, P) or None.
    """
    size = ops.shape(true_logit)[1]

    def own(x: Tensor) -> Tensor:
        return x if x.shape[0] == 1 else ops.repeat(x, size, axis=0)

    def of_label(draw: Compared) -> Compared:
        true = draw.true_log_expected_count
        true = None if true is None else ops.reshape(true, (-1,))
        count = own(draw.log_expected_count)
        return draw._replace(log_expected_count=count, true_log_expected_count=true)

    spread = [of_label(draw) for draw in draws]
    function = share_backward(lambda true, *others: objective(true, list(others), spread))
    losses = function(ops.reshape(true_logit, (-1,)), *(own(x) for x in sampled))
    return ops.reshape(losses, ops.shape(true_logit))


def is_repeated(labels: Tensor) -> Tensor:
    """Whether an earlier label of the example is the same: bool (B, P)."""
    slot = ops.arange(ops.shape(labels)[1], dtype="int32")
    earlier = ops.expand_dims(slot, -1) > slot
    same = ops.equal(ops.expand_dims(labels, -1), ops.expand_dims(labels, -2))
    return ops.any(ops.logical_and(same, earlier), axis=-1)


def hits(ids: Tensor, labels: Tensor) -> Tensor:
    """Whether a draw, ids (1, m) or (B, m), is one of its example's labels (B, P): bool (B, m)."""
    return ops.any(ops.equal(ops.expand_dims(ids, -1), ops.expand_dims(labels, 1)), axis=-1)

"""Several labels for each example.

Shape letters: B batch, P label slots of an example (padded), m samples.
"""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from softbench.common import Tensor, check_number
from softbench.heads import inputs
from softbench.labels import fits, is_any_of, safe_ids
from softbench.ops import share_backward
from softbench.samplers import Samples

PADDING = -1  # the label of a slot that holds none
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


def weights(
    labels: Any, sample_weight: Any, masks: tuple, padding: tuple[int, ...]
) -> tuple[Tensor, Tensor]:
    """Weights of the examples (...) and of their labels (..., P).

    A label of weight 0 is not there, and an example without labels has weight 0.

    Args:
        labels: integers (..., P).
        sample_weight: (...) of examples, (..., P) of labels, or None.
        masks: bool arrays (...) or (..., P), or None.
        padding: labels that are not there.
    """
    shape = tuple(labels.shape)
    of_labels = ops.where(is_any_of(labels, padding), 0.0, 1.0)
    of_examples = ops.any(ops.not_equal(of_labels, 0), axis=-1)
    of_examples = ops.cast(of_examples, "float32")
    names = ("sample_weight", *["Keras mask"] * len(masks))
    for name, x in zip(names, (sample_weight, *masks), strict=True):
        if x is None:
            continue
        received = tuple(x.shape)
        if fits(received, shape):
            of_labels = _product(of_labels, x)
        elif fits(received, shape[:-1]):
            of_examples = _product(of_examples, x)
        else:
            raise ValueError(
                f"`{name}` must have the shape of `labels`, {shape}, or that of the examples, "
                f"{shape[:-1]}. Received shape: {received}"
            )
    there = ops.any(ops.not_equal(of_labels, 0), axis=-1)
    of_examples = ops.where(there, of_examples, 0.0)
    counts = ops.expand_dims(ops.not_equal(of_examples, 0), -1)
    return of_examples, ops.where(counts, of_labels, 0.0)


def _product(weight: Tensor, x: Tensor) -> Tensor:
    """weight * x; 0 where the weight is, whatever x is."""
    return ops.where(ops.not_equal(weight, 0), weight * ops.cast(x, "float32"), 0.0)


def flat(labels: Tensor, label_weight: Tensor, units: int) -> tuple[Tensor, Tensor, Tensor]:
    """Labels int32 (B, P), whether those of an example are valid (B,), and their weights (B, P).

    A slot that holds no label has the first label of its example, which is looked up anyway.
    """
    size = labels.shape[-1]
    labels = ops.reshape(labels, (-1, size))
    weight = ops.reshape(ops.cast(label_weight, "float32"), (-1, size))
    safe, known = safe_ids(labels, units)
    there = ops.not_equal(weight, 0)
    valid = ops.all(ops.logical_or(known, ops.logical_not(there)), axis=-1)
    first = ops.expand_dims(ops.argmax(ops.cast(there, "int32"), axis=-1), -1)
    own = ops.take_along_axis(safe, ops.cast(first, "int32"), axis=-1)
    return ops.where(there, safe, own), valid, weight


def drawn(labels: Tensor, label_weight: Tensor, seed: Any) -> Tensor:
    """One label (B,) of each example's (B, P), with probabilities as their weights."""
    if labels.shape[1] == 1:
        return labels[:, 0]
    uniform = keras.random.uniform(ops.shape(labels), seed=seed)
    there = ops.not_equal(label_weight, 0)
    keys = ops.log(uniform) / ops.where(there, label_weight, 1.0)
    place = ops.argmax(ops.where(there, keys, -float("inf")), axis=-1)
    own = ops.take_along_axis(labels, ops.cast(place, "int32")[:, None], axis=-1)
    return own[:, 0]


def each(
    objective: Callable, true_logit: Tensor, sampled: list[Tensor], draws: list[Samples]
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
        return x if len(x.shape) == 1 else ops.repeat(x, size, axis=0)

    def of_label(draw: Samples) -> Samples:
        true = draw.true_log_expected_count
        true = None if true is None else ops.reshape(true, (-1,))
        return Samples(draw.ids, own(draw.log_expected_count), true)

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


def reduced(losses: Tensor, label_weight: Tensor, reduction: str | None) -> Tensor:
    """The weighted mean, or sum, (B,) of the losses (B, P) of an example's labels."""
    there = ops.not_equal(label_weight, 0)
    total = ops.sum(ops.where(there, losses * label_weight, 0.0), axis=-1)
    if reduction == "sum":
        return total
    weight = ops.sum(label_weight, axis=-1)
    return total / ops.where(weight > 0, weight, 1.0)


def hits(ids: Tensor, labels: Tensor) -> Tensor:
    """Whether a draw, ids (m,) or (B, m), is one of its example's labels (B, P): bool (B, m)."""
    return ops.any(ops.equal(ops.expand_dims(ids, -1), ops.expand_dims(labels, 1)), axis=-1)


def check_counts_known(sampler: Any) -> None:
    """Raise a ValueError if the expected counts of a label depend on its group's draws."""
    if sampler.draws_for_certain or (sampler.groups and sampler.kind != "static"):
        raise ValueError(
            "`multi_label` with an objective that corrects the true logit needs a sampler that "
            "draws for the batch or for each example, not for groups. "
            f"Received: sampler={type(sampler).__name__}"
        )


def true_counts(head: Any, features: Tensor, labels: Tensor, weight: Tensor | None) -> Tensor:
    """log E[count] (B, P) of the labels in the first set of the head's draws."""
    sampler, present = head.sampler, None
    if weight is not None and sampler.uses_present:
        present = ops.not_equal(weight, 0)
    ids = labels if sampler.per_example else ops.reshape(labels, (-1,))
    arguments = (head.table, features, head.num_sampled, ids, None)
    extra = {} if present is None else {"present": present}
    found = ops.stop_gradient(sampler.log_expected_count(*arguments, **extra))
    return inputs.from_present(ops.reshape(found, ops.shape(labels)), weight)

"""What draws count for: corrections, masks and sums over them. Letters as in the package."""

from collections.abc import Callable

from keras import ops

from softbench.common import Tensor

LARGEST_LOG_WEIGHT = 40.0  # its square is a float32 number, for optimizers that add squares up


def correct(logits: Tensor, log_expected_count: Tensor) -> Tensor:
    """logits - log E[count]; -inf where the logit is masked or the class cannot be drawn."""
    # The test is of the counts, which are small when draws are shared and have no gradient.
    never = ops.equal(log_expected_count, -float("inf"))
    return logits - ops.where(never, float("inf"), log_expected_count)


def masked_draws(logits: Tensor, log_expected_count: Tensor) -> Tensor:
    """Whether a draw (B, m) must not count: its logit or its log E[count] is -inf."""
    never = ops.equal(log_expected_count, -float("inf"))
    return ops.logical_or(ops.equal(logits, -float("inf")), never)


def sum_unmasked(function: Callable, values: Tensor, masked: Tensor) -> Tensor:
    """sum_j function(values_j) (B,) over the draws (B, m) that are not masked.

    Masked values never reach `function`: the gradient of an infinite one would be NaN.
    """
    terms = function(ops.where(masked, 0.0, values))
    return ops.sum(ops.where(masked, 0.0, terms), axis=-1)

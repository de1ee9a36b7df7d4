"""Negative sampling and its regulariser."""

from typing import Any

from keras import ops

from softbench.losses.masks import masked_draws, sum_unmasked

Tensor = Any


def negative_sampling(
    true_logit: Tensor,
    sampled_logits: Tensor,
    true_log_expected_count: Tensor,
    sampled_log_expected_count: Tensor,
    regularizer_lambda: float = 0.0,
) -> Tensor:
    """Negative sampling with m draws, regularised towards softmax scores of 0.

    loss = softplus(-xi_y) + 1/m sum_j softplus(xi_j)
         + lambda (xi_y + log p_n(y))^2 + lambda/m sum_j (xi_j + log p_n(j))^2
    with log p_n = log E[count] - log m (Bamler & Mandt, eq. 2 and 6).

    The mean over the negatives, not their sum, has the expectation of eq. 2 for every m, so that
    its minimum is xi = log p_D(y|x) - log p_n(y|x) (eq. 11), and xi + log p_n is what the
    regulariser and the prediction (eq. 5) take it for: the softmax score. A sum would shift all
    scores by -log m, which prediction does not see and the regulariser does.

    Args:
        true_logit: (B,).
        sampled_logits: (B, m), -inf for draws that are masked; m still counts them.
        true_log_expected_count: (B,); where it is -inf (the noise never draws that class) the
            regulariser leaves the true class out. Not used when lambda is 0.
        sampled_log_expected_count: (B, m) or (m,).
        regularizer_lambda: lambda.

    Returns:
        (B,).
    """
    size = ops.cast(ops.shape(sampled_logits)[-1], "float32")
    masked = masked_draws(sampled_logits, sampled_log_expected_count)
    negatives = sum_unmasked(ops.softplus, sampled_logits, masked)
    loss = ops.softplus(-true_logit) + negatives / size
    if not regularizer_lambda:
        return loss
    # Masked before they are added: inf - inf would be NaN, also in the gradient.
    log_noise = ops.where(masked, 0.0, sampled_log_expected_count) - ops.log(size)
    scores = ops.where(masked, 0.0, sampled_logits) + log_noise
    penalty = sum_unmasked(ops.square, scores, masked) / size
    never = ops.equal(true_log_expected_count, -float("inf"))
    true_noise = ops.where(never, 0.0, true_log_expected_count) - ops.log(size)
    penalty = penalty + ops.where(never, 0.0, ops.square(true_logit + true_noise))
    return loss + regularizer_lambda * penalty

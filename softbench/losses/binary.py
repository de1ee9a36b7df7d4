"""Objectives that ask of each class by itself: logistic regression against the draws.

Shape letters as in the package.
"""

from keras import ops

from softbench.common import Tensor
from softbench.losses.corrections import correct, masked_draws, sum_unmasked


def nce_binary(
    true_logit: Tensor,
    sampled_logits: Tensor,
    true_log_expected_count: Tensor,
    sampled_log_expected_count: Tensor,
    log_partition: Tensor | float = 0.0,
) -> Tensor:
    """Binary NCE: tell the true class from K draws of noise by logistic regression.

    With u = s - gamma - log(K q): loss = softplus(-u_true) + sum_j softplus(u_j), which is
    -log g(true) - sum_j log(1 - g(j)) for g = exp(s_bar - gamma) / (exp(s_bar - gamma) + K)
    (Ma & Collins 2018, figure 1). `tf.nn.nce_loss` is the case gamma = 0.

    Args:
        log_partition: gamma, a scalar, or (B,) for one value per example.
        others: as in `sampled_softmax`, with counts log(K q).

    Returns:
        (B,).
    """
    gamma = ops.convert_to_tensor(log_partition, dtype="float32")
    true = true_logit - true_log_expected_count - gamma
    sampled = correct(sampled_logits, sampled_log_expected_count)
    sampled = sampled - (gamma[:, None] if len(gamma.shape) else gamma)
    masked = ops.equal(sampled, -float("inf"))
    return ops.softplus(-true) + sum_unmasked(ops.softplus, sampled, masked)


def log_partition_penalty(sampled_logits: Tensor, sampled_log_expected_count: Tensor) -> Tensor:
    """(log Z_hat)^2 with Z_hat = sum_j exp(s_j - log E[count_j]), unbiased for Z (B,).

    The self-normalising regulariser of Ma & Collins 2018, section 5.2, without its factor alpha:
    with m draws from p_N, Z_hat = 1/m sum_j exp(s_j) / p_N(j).

    The logits are (B, m), the counts (B, m) or (m,).
    """
    corrected = correct(sampled_logits, sampled_log_expected_count)
    return ops.square(ops.logsumexp(corrected, axis=-1))


def negative_sampling(
    true_logit: Tensor,
    sampled_logits: Tensor,
    true_log_expected_count: Tensor,
    sampled_log_expected_count: Tensor,
    regularization: float = 0.0,
    num_drawn: int | Tensor | None = None,
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
        sampled_logits: (B, m), -inf for draws that are masked; m still counts them.
        true_log_expected_count: (B,); where it is -inf (the noise never draws that class) the
            regulariser leaves the true class out. Not used when lambda is 0.
        sampled_log_expected_count: (B, m) or (m,).
        regularization: lambda.
        num_drawn: m, where not all that is compared with are draws: the others, of E[count] 1 say,
            are weighted as draws are, by 1/m. None: the number of sampled logits.

    Returns:
        (B,).
    """
    size = ops.shape(sampled_logits)[-1] if num_drawn is None else num_drawn
    size = ops.cast(size, "float32")
    masked = masked_draws(sampled_logits, sampled_log_expected_count)
    negatives = sum_unmasked(ops.softplus, sampled_logits, masked)
    loss = ops.softplus(-true_logit) + negatives / size
    if not regularization:
        return loss
    # Masked before they are added: inf - inf would be NaN, also in the gradient.
    log_noise = ops.where(masked, 0.0, sampled_log_expected_count) - ops.log(size)
    scores = ops.where(masked, 0.0, sampled_logits) + log_noise
    penalty = sum_unmasked(ops.square, scores, masked) / size
    never = ops.equal(true_log_expected_count, -float("inf"))
    true_noise = ops.where(never, 0.0, true_log_expected_count) - ops.log(size)
    penalty = penalty + ops.where(never, 0.0, ops.square(true_logit + true_noise))
    return loss + regularization * penalty


def gbce(
    true_logit: Tensor,
    sampled_logits: Tensor,
    true_log_expected_count: Tensor | None,
    sampled_log_expected_count: Tensor,
    beta: float = 1.0,
) -> Tensor:
    """Generalised binary cross-entropy: negative sampling with a weight on the true class.

    loss = -beta log sigmoid(s_y) - sum_j log(1 - sigma(s_j)) (Petrov & Macdonald 2023);
    beta = 1 is binary cross-entropy with m negatives. The sum is not divided by m: at its minimum
    s = log p(y|x) - log E[count of y] + log beta.

    Args:
        true_log_expected_count: not used; the others as in `sampled_softmax`.
        beta: weight of the true class, see `gbce_beta`.

    Returns:
        (B,).
    """
    masked = masked_draws(sampled_logits, sampled_log_expected_count)
    negatives = sum_unmasked(ops.softplus, sampled_logits, masked)
    return beta * ops.softplus(-true_logit) + negatives


def gbce_beta(num_classes: int, num_sampled: int, t: float) -> float:
    """alpha (t (1 - 1/alpha) + 1/alpha) with alpha = m / (n - 1) (Petrov & Macdonald 2023).

    It is 1 at t = 0, and alpha at t = 1, where sigmoid(s_y) is p(y|x) if the draws are uniform
    and never the label itself.
    """
    alpha = min(num_sampled / max(num_classes - 1, 1), 1.0)
    return alpha * (t * (1.0 - 1.0 / alpha) + 1.0 / alpha)

"""Objectives with corrected logits: sampled softmax and noise-contrastive estimation."""

from typing import Any

from keras import ops

from softbench.losses.masks import correct, sum_unmasked

Tensor = Any


def sampled_softmax(
    true_logit: Tensor,
    sampled_logits: Tensor,
    true_log_expected_count: Tensor | None,
    sampled_log_expected_count: Tensor,
) -> Tensor:
    """Sampled softmax: the cross-entropy of the true class among itself and the draws.

    loss = -o_t + log(exp(o_t) + sum_j exp(o_j - log E[count_j])), and with
    `true_log_expected_count` o_t is corrected as well.

    Args:
        true_logit: (B,).
        sampled_logits: (B, m), -inf for draws that are masked.
        true_log_expected_count: (B,), or None. None is the estimator of the full loss when the
            draws exclude the label (Rawat et al. 2019, eq. 5); a value is the convention of Jean et
            al. 2015 and of `tf.nn.sampled_softmax_loss`.
        sampled_log_expected_count: (B, m) or (m,).

    Returns:
        (B,); 0 where the true class is corrected and can never be drawn.
    """
    sampled = correct(sampled_logits, sampled_log_expected_count)
    if true_log_expected_count is None:
        return _cross_entropy(true_logit, sampled)
    never = ops.equal(true_log_expected_count, -float("inf"))
    count = ops.where(never, 0.0, true_log_expected_count)
    return ops.where(never, 0.0, _cross_entropy(true_logit - count, sampled))


def _cross_entropy(true: Tensor, sampled: Tensor) -> Tensor:
    """-log softmax (B,) of the true class among itself (B,) and the others (B, m)."""
    logits = ops.concatenate([ops.expand_dims(true, -1), sampled], axis=-1)
    return -ops.log_softmax(logits, axis=-1)[:, 0]


def nce_ranking(
    true_logit: Tensor,
    sampled_logits: Tensor,
    true_log_expected_count: Tensor,
    sampled_log_expected_count: Tensor,
) -> Tensor:
    """Ranking NCE: -log softmax of s - log q over {y, K draws} (Ma & Collins 2018, figure 1).

    The true class is corrected too. The same as InfoNCE and as global NCE (Stratos). The K of
    log E[count] = log(K q) cancels.

    Args:
        true_logit: (B,).
        sampled_logits: (B, K).
        true_log_expected_count: (B,).
        sampled_log_expected_count: (B, K) or (K,).

    Returns:
        (B,).
    """
    return sampled_softmax(
        true_logit, sampled_logits, true_log_expected_count, sampled_log_expected_count
    )


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
        true_logit: (B,).
        sampled_logits: (B, K), -inf for draws that are masked.
        true_log_expected_count: (B,), log(K q).
        sampled_log_expected_count: (B, K) or (K,).
        log_partition: gamma, a scalar, or (B,) for one value per example.

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

    Args:
        sampled_logits: (B, m).
        sampled_log_expected_count: (B, m) or (m,).

    Returns:
        (B,).
    """
    corrected = correct(sampled_logits, sampled_log_expected_count)
    return ops.square(ops.logsumexp(corrected, axis=-1))

"""Objectives that compare the true class with the draws. Shape letters as in the package."""

from keras import ops

from softbench.common import Tensor
from softbench.losses.corrections import LARGEST_LOG_WEIGHT, correct, masked_draws, sum_unmasked


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

    Example:
        >>> zeros = np.zeros((1, 3), "float32")  # equal logits, and counts of one each
        >>> loss = softbench.losses.sampled_softmax(zeros[:, 0], zeros, None, zeros)
        >>> round(float(loss[0]), 4)  # log 4
        1.3863
    """
    sampled = correct(sampled_logits, sampled_log_expected_count)
    if true_log_expected_count is None:
        return cross_entropy(true_logit, sampled)
    never = ops.equal(true_log_expected_count, -float("inf"))
    count = ops.where(never, 0.0, true_log_expected_count)
    return ops.where(never, 0.0, cross_entropy(true_logit - count, sampled))


def cross_entropy(true: Tensor, sampled: Tensor) -> Tensor:
    """-log softmax (B,) of the true class among itself (B,) and the others (B, m)."""
    # Not a softmax of both side by side: that would copy the scores, and their gradients twice.
    most = ops.stop_gradient(ops.maximum(true, ops.max(sampled, axis=-1)))
    others = ops.sum(ops.exp(sampled - ops.expand_dims(most, -1)), axis=-1)
    return ops.log(ops.exp(true - most) + others) + (most - true)


def mean_logit(
    true_logit: Tensor,
    sampled_logits: Tensor,
    true_log_expected_count: Tensor | None,
    sampled_log_expected_count: Tensor,
    num_classes: int,
) -> Tensor:
    """1/n (o_t + sum_j o_j / E[count_j]) (B,): the mean logit of all classes, without bias.

    The draws are of the classes other than the true one, or masked. Shapes are those of
    `sampled_softmax`; `true_log_expected_count` is not used. No weight is above e^40.
    """
    masked = masked_draws(sampled_logits, sampled_log_expected_count)
    log_weight = -ops.where(masked, 0.0, sampled_log_expected_count)
    weight = ops.exp(ops.minimum(log_weight, LARGEST_LOG_WEIGHT))
    others = ops.sum(ops.where(masked, 0.0, sampled_logits) * weight, axis=-1)
    return (true_logit + others) / num_classes


def nce_ranking(
    true_logit: Tensor,
    sampled_logits: Tensor,
    true_log_expected_count: Tensor,
    sampled_log_expected_count: Tensor,
) -> Tensor:
    """Ranking NCE: -log softmax of s - log q over {y, K draws} (Ma & Collins 2018, figure 1).

    The true class is corrected too. The same as InfoNCE and as global NCE (Stratos). The K of
    log E[count] = log(K q) cancels. Shapes are those of `sampled_softmax`.
    """
    return sampled_softmax(
        true_logit, sampled_logits, true_log_expected_count, sampled_log_expected_count
    )


def one_vs_each(
    true_logit: Tensor,
    sampled_logits: Tensor,
    true_log_expected_count: Tensor | None,
    sampled_log_expected_count: Tensor,
) -> Tensor:
    """One-vs-each: an unbiased estimate of a bound on the softmax loss (Titsias 2016).

    -log p(y) <= sum_{i != y} softplus(o_i - o_y), estimated by
    loss = sum_j softplus(o_j - o_y) / E[count_j] over draws of other classes.
    If every other class is drawn once, with E[count] = 1, it is the bound itself. No weight
    1 / E[count] is above e^40, which only counts that are not of the draws could ask for.

    Args:
        sampled_logits: (B, m), -inf for draws that are masked: the label itself must be, or must
            not be drawn (its term is a constant, log 2 / E[count]).
        true_log_expected_count: not used; the others as in `sampled_softmax`.

    Returns:
        (B,).
    """
    masked = masked_draws(sampled_logits, sampled_log_expected_count)
    log_weight = -ops.where(masked, 0.0, sampled_log_expected_count)
    log_weight = ops.minimum(log_weight, LARGEST_LOG_WEIGHT)
    gap = ops.where(masked, 0.0, sampled_logits) - ops.expand_dims(true_logit, -1)
    return sum_unmasked(lambda gap: ops.softplus(gap) * ops.exp(log_weight), gap, masked)


def augment_reduce(
    true_logit: Tensor,
    sampled_logits: Tensor,
    true_log_expected_count: Tensor | None,
    sampled_log_expected_count: Tensor,
    log_eta: Tensor,
) -> Tensor:
    """Augment and reduce: a variational bound on the softmax loss (Ruiz et al. 2018).

    The softmax is a race of Gumbel noise: p(y) = E[prod_{i != y} F(e + o_y - o_i)], F the Gumbel
    distribution function and e Gumbel noise. With a Gumbel distribution of location log eta
    instead of the posterior of e,
    -log p(y) <= log eta - 1 + (1 + sum_{i != y} exp(o_i - o_y)) / eta,
    which is an equality at eta = 1 + sum_{i != y} exp(o_i - o_y) = 1 / p(y). The sum is estimated
    by sum_j exp(o_j - o_y) / E[count_j], without bias at a given eta. Only exponents are
    ever added, so that no term overflows before the bound does. (At the estimate's own eta the
    loss is `sampled_softmax`.)

    Args:
        sampled_logits: (B, m), -inf for draws that are masked: the label must be, or not be drawn.
        true_log_expected_count: not used; the others as in `sampled_softmax`.
        log_eta: (B,), the variational parameter of each example; no gradient goes through it.

    Returns:
        (B,).
    """
    log_eta = ops.stop_gradient(log_eta)
    found = sampled_softmax(true_logit, sampled_logits, None, sampled_log_expected_count)
    return log_eta - 1.0 + ops.exp(found - log_eta)


def hinge(
    true_logit: Tensor,
    sampled_logits: Tensor,
    true_log_expected_count: Tensor | None,
    sampled_log_expected_count: Tensor,
    margin: float = 1.0,
) -> Tensor:
    """Hinge loss against the best of the draws: max(0, margin - o_y + max_j o_j).

    A bound on the zero-one loss when every other class is drawn; the maximum over a sample stands
    for that over all classes (Stratos, appendix A). Logits are not corrected.

    Args:
        true_log_expected_count: not used; the others as in `sampled_softmax`.
        margin: of the true class over the others.

    Returns:
        (B,); 0 where all draws are masked.
    """
    masked = masked_draws(sampled_logits, sampled_log_expected_count)
    violations = margin + sampled_logits - ops.expand_dims(true_logit, -1)
    return ops.relu(ops.max(ops.where(masked, 0.0, violations), axis=-1))

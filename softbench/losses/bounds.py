"""Bounds on the softmax loss and on the zero-one loss, estimated from samples."""

from typing import Any

from keras import ops

from softbench.losses.contrastive import sampled_softmax
from softbench.losses.masks import masked_draws, sum_unmasked

Tensor = Any


def one_vs_each(
    true_logit: Tensor,
    sampled_logits: Tensor,
    true_log_expected_count: Tensor | None,
    sampled_log_expected_count: Tensor,
) -> Tensor:
    """One-vs-each: an unbiased estimate of a bound on the softmax loss (Titsias 2016).

    -log p(y) <= sum_{i != y} softplus(o_i - o_y), estimated by
    loss = sum_j softplus(o_j - o_y) / E[count_j] over draws of other classes.
    If every other class is drawn once, with E[count] = 1, it is the bound itself.

    Args:
        true_logit: (B,).
        sampled_logits: (B, m), -inf for draws that are masked: the label itself must be, or must
            not be drawn (its term is a constant, log 2 / E[count]).
        true_log_expected_count: not used.
        sampled_log_expected_count: (B, m) or (m,).

    Returns:
        (B,).
    """
    masked = masked_draws(sampled_logits, sampled_log_expected_count)
    log_weight = -ops.where(masked, 0.0, sampled_log_expected_count)
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
    distribution function and e Gumbel noise. With a Gumbel law of location log eta in the
    place of the posterior of e,
    -log p(y) <= log eta - 1 + (1 + sum_{i != y} exp(o_i - o_y)) / eta,
    which is an equality at eta = 1 + sum_{i != y} exp(o_i - o_y) = 1 / p(y). The sum is estimated
    by sum_j exp(o_j - o_y) / E[count_j], without bias at a given eta. Only exponents are
    ever added, so that no term overflows before the bound does. (At the estimate's own eta the
    loss is `sampled_softmax`.)

    Args:
        true_logit: (B,).
        sampled_logits: (B, m), -inf for draws that are masked: the label must be, or not be drawn.
        true_log_expected_count: not used.
        sampled_log_expected_count: (B, m) or (m,).
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

    A bound on the zero-one loss when every other class is drawn; the maximum over a sample takes
    the place of that over all classes (Stratos, appendix A). Logits are not corrected.

    Args:
        true_logit: (B,).
        sampled_logits: (B, m), -inf for draws that are masked.
        true_log_expected_count: not used.
        sampled_log_expected_count: (B, m) or (m,); a draw with -inf is masked.
        margin: of the true class over the others.

    Returns:
        (B,); 0 where all draws are masked.
    """
    masked = masked_draws(sampled_logits, sampled_log_expected_count)
    violations = margin + sampled_logits - ops.expand_dims(true_logit, -1)
    return ops.relu(ops.max(ops.where(masked, 0.0, violations), axis=-1))

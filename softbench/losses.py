"""The training objectives: pure functions of logits and log expected counts.

All take *uncorrected* logits and return one loss per example. A sampled class that must not count
(an accidental hit) has the logit -inf. Shape letters: B batch, m samples (K in NCE).

"Expected count" is TensorFlow's word: E[number of times a class is drawn], m q(i) with replacement
and the inclusion probability without.
"""

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
        return _cross_entropy(true_logit, sampled)
    never = ops.equal(true_log_expected_count, -float("inf"))
    count = ops.where(never, 0.0, true_log_expected_count)
    return ops.where(never, 0.0, _cross_entropy(true_logit - count, sampled))


def _cross_entropy(true: Tensor, sampled: Tensor) -> Tensor:
    """-log softmax (B,) of the true class among itself (B,) and the others (B, m)."""
    logits = ops.concatenate([ops.expand_dims(true, -1), sampled], axis=-1)
    return -ops.log_softmax(logits, axis=-1)[:, 0]


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

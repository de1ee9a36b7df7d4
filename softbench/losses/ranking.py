"""Losses of recommenders: the softmax loss, changed so that it ranks. Letters as in the package.

The papers write s for scores and divide them by a temperature tau inside the loss. Here logits are
o = s / tau already, so a second temperature is a multiple of the first. The label is among the
classes of every sum over classes, as in `sampled_softmax`; the authors' programs leave it out.
"""

from collections.abc import Callable

from keras import ops

from softbench.common import Tensor, check_number, check_positive
from softbench.losses.corrections import masked_draws
from softbench.losses.softmax import cross_entropy, sampled_softmax

_HALVINGS = 16
_LOWEST = -3e38  # above -inf, the logit of a masked draw


def bsl(
    true_logit: Tensor,
    sampled_logits: Tensor,
    true_log_expected_count: Tensor | None,
    sampled_log_expected_count: Tensor,
    ratio: float = 1.1,
) -> Tensor:
    """Bilateral softmax loss: the true class has a separate temperature (Wu et al. 2024).

    loss = -s_y / tau_1 + log sum_i exp(s_i / tau_2). In logits o = s / tau_2 and with
    r = tau_1 / tau_2: -o_y / r + log(exp(o_y) + sum_j exp(o_j) / E[count_j]).

    It is `sampled_softmax` plus (1 - 1/r) o_y: any draws estimate the loss of all classes as they
    do there; r = 1 is that loss. With r > 1 its minimum over o_y is at p(y) = 1/r instead of
    1: labels that may be wrong are not pushed all the way. A constant added to all logits changes
    the loss by (1 - 1/r) of it, so scores must be bounded, as cosines are.

    The paper's equation has -tau_1 log of the mean over a user's positives of exp(s_y / tau_1); of
    one positive at a time that is -s_y, whatever tau_1. This is what the authors' program computes,
    -s_y / tau_2 + r log sum_j exp(s_j / tau_2), divided by r.

    Args:
        true_log_expected_count: not used; the others as in `sampled_softmax`.
        ratio: r, positive; the paper's are from 1.06 to 1.32.

    Returns:
        (B,).
    """
    check_number(0, exclusive=True, ratio=ratio)
    loss = sampled_softmax(true_logit, sampled_logits, None, sampled_log_expected_count)
    return loss + (1.0 - 1.0 / ratio) * true_logit


def _log_tanh(d: Tensor) -> tuple[Tensor, Tensor]:
    """log(tanh(d) + 1), which is never log 0."""
    return ops.log(2.0) - ops.softplus(-2.0 * d), ops.zeros_like(d, dtype="bool")


def _log_atan(d: Tensor) -> tuple[Tensor, Tensor]:
    return _log_one_plus(ops.arctan(d))


def _log_one_plus(x: Tensor) -> tuple[Tensor, Tensor]:
    """log(1 + x), and where that is log 0 or of less."""
    zero = x <= -1.0
    return ops.log1p(ops.where(zero, 0.0, x)), zero


# name -> d -> log sigma(d), and where sigma(d) is 0
ACTIVATIONS: dict[str, Callable[[Tensor], tuple[Tensor, Tensor]]] = {
    "tanh": _log_tanh,
    "atan": _log_atan,
    "relu": _log_one_plus,
}


def psl(
    true_logit: Tensor,
    sampled_logits: Tensor,
    true_log_expected_count: Tensor | None,
    sampled_log_expected_count: Tensor,
    tau: float,
    activation: str = "tanh",
) -> Tensor:
    """Pairwise softmax loss: a bounded activation instead of exp (Yang et al. 2024).

    loss = log sum_i sigma(d_i)^(1/tau), d_i = s_i - s_y, over all classes, with
    sigma(d) = tanh(d) + 1, atan(d) + 1 or relu(d + 1), and 0 where that is negative. The label
    itself adds sigma(0) = 1. In logits o = s / tau it is estimated by
    log(1 + sum_j sigma(tau (o_j - o_y))^(1/tau) / E[count_j]): the sum without bias for any draws
    of the other classes, its logarithm from below, as in `sampled_softmax`.

    Every sigma is 1 + d to first order, as exp(d) is. So value and gradient are those of
    `sampled_softmax` where s_j = s_y; they are for any logits in the limit tau -> 0, and for large
    tau at given s both losses approach log n. The paper takes halves of cosines for s, so that d is
    in [-1, 1] and no sigma is 0 inside: with cosines over a temperature T as logits, tau = T / 2.

    Args:
        true_log_expected_count: not used; the others as in `sampled_softmax`.
        tau: positive, the paper's temperature.
        activation: "tanh", "atan" or "relu".

    Returns:
        (B,).
    """
    check_number(0, exclusive=True, tau=tau)
    if activation not in ACTIVATIONS:
        raise ValueError(
            f"`activation` must be one of {tuple(ACTIVATIONS)}. Received: activation={activation!r}"
        )
    masked = masked_draws(sampled_logits, sampled_log_expected_count)
    gap = ops.where(masked, 0.0, sampled_logits) - ops.expand_dims(true_logit, -1)
    log_sigma, zero = ACTIVATIONS[activation](tau * gap)
    terms = log_sigma / tau - ops.where(masked, 0.0, sampled_log_expected_count)
    terms = ops.where(ops.logical_or(masked, zero), -float("inf"), terms)
    return cross_entropy(ops.zeros_like(true_logit), terms)


def sl_at_k(
    true_logit: Tensor,
    sampled_logits: Tensor,
    true_log_expected_count: Tensor | None,
    sampled_log_expected_count: Tensor,
    k: int = 20,
    weight_temperature: float = 10.0,
) -> Tensor:
    """Softmax loss at K: weighted by whether the label is among the K best (Yang et al. 2025).

    loss = sigmoid((s_y - beta_K) / tau_w) * softmax loss of s / tau_d, beta_K the K-th largest
    score of all classes. In logits o = s / tau_d and with w = tau_w / tau_d the weight is
    sigmoid((o_y - o_K) / w). With K = n the weight is near 1: beta_K is the lowest score.

    sum_j [o_j >= t] / E[count_j], and 1 for the label if o_y >= t, is the number of classes that
    score t or more, estimated without bias for any draws of the other classes. beta_K is the
    largest of the scores at which that is K or more, or the lowest where it never is. A draw that
    stands for more than K classes, n / m of uniform ones, tells nothing about the best K of them:
    then beta_K is the best draw. (The authors take the K-th best of a user's positives and of the
    draws, each counted once, every 20 epochs; here it is of the step.) Other labels of an example
    are not counted.

    No gradient goes through the weight. (In the authors' program that of s_y does. It grows with
    the softmax loss, which has log n in it here, as in the equation, but log m in their program:
    labels far below the K-th place would be pushed down, not up.)

    Args:
        true_log_expected_count: not used; the others as in `sampled_softmax`.
        k: K, at least 1.
        weight_temperature: w, positive.

    Returns:
        (B,).
    """
    check_positive(k=k)
    check_number(0, exclusive=True, weight_temperature=weight_temperature)
    loss = sampled_softmax(true_logit, sampled_logits, None, sampled_log_expected_count)
    threshold = _kth_largest(true_logit, sampled_logits, sampled_log_expected_count, k)
    gap = (ops.stop_gradient(true_logit) - threshold) / weight_temperature
    return ops.sigmoid(gap) * loss


def _kth_largest(true: Tensor, sampled: Tensor, log_count: Tensor, k: int) -> Tensor:
    """The estimate (B,) of the k-th largest logit of all classes; see `sl_at_k`.

    Where every draw stands for k classes or more, it is the best draw. Otherwise it is found by
    bisection, in passes over the logits: to sort them takes longer. Of scores closer than 2^-16 of
    the range of an example's logits that may take the lower one.
    """
    never = ops.equal(log_count, -float("inf"))
    weight = ops.where(never, 0.0, ops.exp(-ops.where(never, 0.0, log_count)))
    true = ops.expand_dims(ops.stop_gradient(true), -1)
    logits = ops.where(never, -float("inf"), ops.stop_gradient(sampled))
    best = ops.max(logits, axis=-1, keepdims=True)
    highest = ops.maximum(true, best)

    def best_draw() -> Tensor:
        return highest if k == 1 else ops.where(best > -float("inf"), best, true)

    def bisected() -> Tensor:
        def halved(_: Tensor, bounds: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            low, high = bounds
            middle = (low + high) / 2.0
            number = ops.sum(ops.where(logits >= middle, weight, 0.0), axis=-1, keepdims=True)
            enough = number + ops.cast(true >= middle, "float32") >= k
            return ops.where(enough, middle, low), ops.where(enough, high, middle)

        def lowest(bound: Tensor) -> Tensor:
            """The lowest logit from `bound` (B, 1) on."""
            above = ops.where(logits >= bound, logits, float("inf"))
            others = ops.min(above, axis=-1, keepdims=True)
            return ops.where(true >= bound, ops.minimum(true, others), others)

        bounds = lowest(ops.full_like(true, _LOWEST)), highest
        return lowest(ops.fori_loop(0, _HALVINGS, halved, bounds)[0])

    one_is_enough = ops.all(ops.logical_or(never, weight >= k))
    return ops.cond(one_is_enough, best_draw, bisected)[:, 0]

"""Plain NumPy float64 versions of what softbench computes; imports nothing from it."""

import numpy as np


def ref_perplexity(nll, weight=None):
    """exp of the weighted mean negative log-likelihood."""
    nll = np.asarray(nll, np.float64)
    weight = np.ones_like(nll) if weight is None else np.asarray(weight, np.float64)
    return float(np.exp((nll * weight).sum() / weight.sum()))


def _ref_ranking(scores, k):
    """First k ids of one row: decreasing score, then increasing id."""
    return sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:k]


def ref_precision_at_k(scores, truth, k):
    """Mean over rows of (labels among the first k) / k; truth (N, n) binary."""
    pairs = zip(scores, truth, strict=True)
    hits = [sum(t[i] != 0 for i in _ref_ranking(s, k)) / k for s, t in pairs]
    return sum(hits) / len(hits)


def ref_inverse_propensities(counts, num_examples, a=0.55, b=1.5):
    """Jain et al. (2016): p_l = 1 / (1 + C exp(-a log(N_l + b))), C = (log N - 1)(b + 1)^a."""
    c = (np.log(num_examples) - 1) * (b + 1) ** a
    p = [1 / (1 + c * np.exp(-a * np.log(count + b))) for count in counts]
    return np.array([1 / value for value in p])


def ref_propensity_scored_precision_at_k(scores, truth, inverse, k):
    """Propensity-scored precision@k over that of the best ranking."""
    got = best = 0.0
    for s, t in zip(scores, truth, strict=True):
        got += sum(inverse[i] for i in _ref_ranking(s, k) if t[i]) / k
        best += sum(sorted((inverse[i] for i in range(len(t)) if t[i]), reverse=True)[:k]) / k
    return got / best


def logsumexp(x, axis=-1):
    peak = np.max(x, axis=axis, keepdims=True)
    peak = np.where(np.isfinite(peak), peak, 0.0)
    with np.errstate(divide="ignore"):
        return np.squeeze(peak, axis) + np.log(np.sum(np.exp(x - peak), axis=axis))


def softmax(x):
    return np.exp(x - logsumexp(x)[..., None])


def softplus(x):
    return np.logaddexp(0.0, x)


def scores(hidden, kernel, bias=None, normalize=False, temperature=1.0, absolute=False):
    """(B, n): <h, c_i> / temperature + b_i; |.| if absolute; unit vectors if normalize."""
    hidden, kernel = np.asarray(hidden, np.float64), np.asarray(kernel, np.float64)
    if normalize:
        hidden = hidden / np.linalg.norm(hidden, axis=-1, keepdims=True)
        kernel = kernel / np.linalg.norm(kernel, axis=-1, keepdims=True)
    inner = hidden @ kernel.T
    inner = (np.abs(inner) if absolute else inner) / temperature
    return inner if bias is None else inner + np.asarray(bias, np.float64)


def negative_log_likelihood(scores, labels):
    """(B,): -log softmax(scores)[label]."""
    return logsumexp(scores) - np.take_along_axis(scores, labels[:, None], axis=-1)[:, 0]


# Objectives. `true_count`, `sampled_count` are expected counts, not their logarithms.


def sampled_softmax(true, sampled, true_count, sampled_count):
    """Rawat et al. eq. 5 (`true_count` None), Jean et al. (given); a draw at -inf adds nothing."""
    weight = np.where(np.isneginf(sampled), 0.0, np.exp(sampled) / sampled_count)
    own = np.exp(true) / (1.0 if true_count is None else true_count)
    return -np.log(own / (own + weight.sum(-1)))


def nce_ranking(true, sampled, true_noise, sampled_noise):
    """Ma & Collins figure 1, ranking: `*_noise` are p_N(y), not K p_N(y)."""
    own = np.exp(true) / true_noise
    others = np.where(np.isneginf(sampled), 0.0, np.exp(sampled) / sampled_noise)
    return -np.log(own / (own + others.sum(-1)))


def nce_binary(true, sampled, true_noise, sampled_noise, gamma=0.0):
    """Ma & Collins figure 1, binary: g = e^(s_bar - gamma) / (e^(s_bar - gamma) + K).

    `gamma` is a scalar or (B,); draws at -inf are left out, K still counts them.
    """
    size = sampled.shape[-1]
    gamma = np.broadcast_to(gamma, true.shape)
    odds_true = np.exp(true - gamma) / true_noise
    odds = np.exp(sampled - gamma[:, None]) / sampled_noise
    loss = -np.log(odds_true / (odds_true + size))
    terms = np.where(np.isneginf(sampled), 0.0, -np.log(size / (odds + size)))
    return loss + terms.sum(-1)


def log_partition_penalty(sampled, sampled_noise):
    """Ma & Collins section 5.2: (log 1/m sum_j exp(s_j) / p_N(j))^2."""
    return np.log(np.mean(np.exp(sampled) / sampled_noise, axis=-1)) ** 2


# Laws of the static samplers.


def uniform_law(n):
    return np.full(n, 1.0 / n)


def log_uniform_law(n):
    """TensorFlow's: P(i) = (log(i + 2) - log(i + 1)) / log(n + 1)."""
    i = np.arange(n, dtype=np.float64)
    return np.log1p(1.0 / (i + 1.0)) / np.log(n + 1.0)


def unigram_law(counts, power):
    counts = np.asarray(counts, np.float64)
    weights = np.where(counts > 0, np.power(np.maximum(counts, 1e-300), power), 0.0)
    return weights / weights.sum()


def inclusion_probabilities(weights, size):
    """pi_i = min(1, c w_i) with sum `size`; c by bisection on its logarithm."""
    weights = np.asarray(weights, np.float64)
    if size == np.count_nonzero(weights):
        return (weights > 0).astype(np.float64)
    positive = weights[weights > 0]
    low, high = -np.log(positive.sum()) - 1.0, np.log(size) - np.log(positive.min()) + 1.0
    for _ in range(200):
        middle = (low + high) / 2.0
        if np.minimum(1.0, np.exp(middle) * weights).sum() < size:
            low = middle
        else:
            high = middle
    return np.minimum(1.0, np.exp(high) * weights)


# Optimizers: one step on a dense parameter; `state` is a dict that is changed in place.


def sum_rows(shape, ids, gradients):
    """The dense gradient whose rows are the sums of `gradients` (N, ...) over equal ids (N,)."""
    dense = np.zeros(shape)
    np.add.at(dense, ids, gradients)
    return dense


def sgd(value, gradient, state, rate):
    return value - rate * gradient


def adagrad(value, gradient, state, rate, initial=0.1, epsilon=1e-7):
    state["a"] = state.get("a", np.full_like(value, initial)) + gradient**2
    return value - rate * gradient / np.sqrt(state["a"] + epsilon)


def lazy_adam(value, gradient, state, rate, touched, beta_1=0.9, beta_2=0.999, epsilon=1e-7):
    """TensorFlow Addons' LazyAdam: moments and rows move only where `touched` (n,) is True."""
    step = state["t"] = state.get("t", 0) + 1
    m, v = state.get("m", np.zeros_like(value)), state.get("v", np.zeros_like(value))
    on = touched.reshape(-1, *[1] * (value.ndim - 1))
    state["m"] = np.where(on, beta_1 * m + (1 - beta_1) * gradient, m)
    state["v"] = np.where(on, beta_2 * v + (1 - beta_2) * gradient**2, v)
    rate = rate * np.sqrt(1 - beta_2**step) / (1 - beta_1**step)
    return np.where(on, value - rate * state["m"] / (np.sqrt(state["v"]) + epsilon), value)


def top_k(scores, k):
    """Scores and ids (B, k); equal scores: the lower id first."""
    ids = np.argsort(-scores, axis=-1, kind="stable")[:, :k]
    return np.take_along_axis(scores, ids, axis=-1), ids

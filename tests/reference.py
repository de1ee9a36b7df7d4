"""Plain NumPy float64 versions of what softbench computes; imports nothing from it."""

import math

import numpy as np
from scipy import optimize
from scipy.linalg import hadamard


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


def ref_ndcg_at_k(scores, truth, k):
    """Mean over rows of DCG@k / best DCG@k, gains 1 / log2(rank + 1); 0 without labels."""
    values = []
    for s, t in zip(scores, truth, strict=True):
        got = sum(1 / math.log2(r + 2) for r, i in enumerate(_ref_ranking(s, k)) if t[i])
        best = sum(1 / math.log2(r + 2) for r in range(min(k, int(sum(t != 0)))))
        values.append(got / best if best else 0.0)
    return sum(values) / len(values)


def ref_recommendation(scores, truth, seen, novelty, k):
    """Metrics at k of the best unseen items, over rows with labels; a label is never seen."""
    values, shown = [], set()
    for s, t, before in zip(scores, truth, seen, strict=True):
        labels = {i for i in range(len(s)) if t[i]}
        if not labels:
            continue
        unseen = [-math.inf if before[i] and i not in labels else s[i] for i in range(len(s))]
        best = _ref_ranking(unseen, k)
        shown.update(best)
        hits = [r for r, i in enumerate(best, 1) if i in labels]
        gains = sum(1 / math.log2(r + 1) for r in hits)
        precisions = [sum(other <= r for other in hits) / r for r in hits]
        of_user = {
            "recall": len(hits) / len(labels),
            "ndcg": gains / sum(1 / math.log2(r + 1) for r in range(1, min(k, len(labels)) + 1)),
            "mrr": 1 / hits[0] if hits else 0.0,
            "map": sum(precisions) / len(labels),
            "novelty": sum(novelty[i] for i in best) / k,
        }
        values.append(of_user)
    means = {name: sum(row[name] for row in values) / len(values) for name in values[0]}
    found = {f"{name}_at_{k}": value for name, value in means.items()}
    return found | {f"coverage_at_{k}": len(shown) / len(scores[0])}


def ref_novelty(lists, num_items):
    """-log2 of the share of the users, lists of items, who have had an item; one at least."""
    had = [max(1, sum(i in items for items in lists)) for i in range(num_items)]
    return [-math.log2(count / len(lists)) for count in had]


def ref_class_buckets(counts):
    """0, 1, 2 by the third of all labels in which the more frequent classes' labels end."""
    order = sorted(range(len(counts)), key=lambda i: (-counts[i], i))
    buckets, before = [2] * len(counts), 0
    for i in order:
        if counts[i]:
            buckets[i] = min(3 * before // sum(counts), 2)
        before += counts[i]
    return buckets


def ref_bucket_scores(scores, log_p, truth, buckets, bucket, k):
    """(mean -log p, part among the first k) of the labels of one bucket."""
    nll, found = [], []
    for s, lp, t in zip(scores, log_p, truth, strict=True):
        first = _ref_ranking(s, k)
        for i in np.flatnonzero(t):
            if buckets[i] == bucket:
                nll.append(-lp[i])
                found.append(i in first)
    return sum(nll) / len(nll), sum(found) / len(found)


def ref_calibration_error(confidence, correct, bins):
    """Sum over bins of equal mass of (part of the rows) |mean confidence - mean correct|.

    A row's bin is that of the first row of its confidence in the order of confidences.
    """
    rows = sorted(zip(confidence, correct, strict=True))
    places: dict[int, list] = {}
    for p, hit in rows:
        first = next(place for place, (other, _) in enumerate(rows) if other == p)
        places.setdefault(first * bins // len(rows), []).append((p, hit))
    return sum(
        len(own) / len(rows) * abs(sum(p for p, _ in own) - sum(c for _, c in own)) / len(own)
        for own in places.values()
    )


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


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def negative_sampling(true, sampled, true_noise, sampled_noise, regularization=0.0):
    """Bamler & Mandt eq. 2 and 6, the mean over m negatives; `*_noise` are p_n, draws at -inf off.

    A class whose p_n is 0 has no regulariser.
    """
    m = sampled.shape[-1]
    kept = ~np.isneginf(sampled) & (np.broadcast_to(sampled_noise, sampled.shape) > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = -np.log(sigmoid(-sampled))
        terms = terms + regularization * (sampled + np.log(sampled_noise)) ** 2
        own = (true + np.log(true_noise)) ** 2
    penalty = np.where(true_noise > 0, regularization * own, 0.0)
    return -np.log(sigmoid(true)) + penalty + np.where(kept, terms, 0.0).sum(-1) / m


def gbce(true, sampled, num_classes, t):
    """Petrov & Macdonald 2023: -log sigma(s)^beta - sum_j log(1 - sigma(s_j)), m = all draws."""
    alpha = sampled.shape[-1] / (num_classes - 1)
    beta = alpha * (t * (1 - 1 / alpha) + 1 / alpha)
    negatives = np.where(np.isneginf(sampled), 0.0, np.log(1 - sigmoid(sampled)))
    return -np.log(sigmoid(true) ** beta) - negatives.sum(-1)


def attention(x, mask, weights):
    """One head over x (T, d): weights query, its bias, key, bias, value, bias, output, bias."""
    wq, bq, wk, bk, wv, bv, wo, bo = weights
    query, key, value = x @ wq + bq, x @ wk + bk, x @ wv + bv
    scores = np.where(mask, query @ key.T / np.sqrt(query.shape[-1]), -np.inf)
    return softmax(scores) @ value @ wo + bo


def lstm(x, kernel, recurrent, bias):
    """One LSTM over (B, T, d), gates in the order input, forget, cell, output."""
    h = c = np.zeros((x.shape[0], recurrent.shape[0]))
    outputs = []
    for t in range(x.shape[1]):
        i, f, g, o = np.split(x[:, t] @ kernel + h @ recurrent + bias, 4, axis=-1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        outputs.append(h)
    return np.stack(outputs, axis=1)


def layer_norm(x, scale, shift, epsilon=1e-6):
    """(x - mean) / sqrt(variance + epsilon) along the last axis, scaled and shifted."""
    variance = x.var(-1, keepdims=True)
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(variance + epsilon) * scale + shift


def one_vs_each(true, sampled, sampled_count):
    """Titsias 2016: sum_j -log sigma(o_y - o_j) / E[count_j]; draws at -inf left out."""
    gap = true[:, None] - np.where(np.isneginf(sampled), 0.0, sampled)
    return np.where(np.isneginf(sampled), 0.0, -np.log(sigmoid(gap)) / sampled_count).sum(-1)


def augment_reduce(true, sampled, sampled_count, eta):
    """log eta - 1 + (1 + sum_j exp(o_j - o_y) / E[count_j]) / eta."""
    odds = np.exp(sampled - true[:, None]) / sampled_count
    return np.log(eta) - 1 + (1 + odds.sum(-1)) / eta


def bsl(true, sampled, sampled_count, ratio):
    """-o_y / r + log(exp(o_y) + sum_j exp(o_j) / E[count_j])."""
    weight = np.where(np.isneginf(sampled), 0.0, np.exp(sampled) / sampled_count)
    return -true / ratio + np.log(np.exp(true) + weight.sum(-1))


SIGMAS = {
    "tanh": lambda d: np.tanh(d) + 1,
    "atan": lambda d: np.arctan(d) + 1,
    "relu": lambda d: np.maximum(d + 1, 0.0),
}


def psl(true, sampled, sampled_count, tau, activation):
    """log(1 + sum_j sigma(tau (o_j - o_y))^(1 / tau) / E[count_j]); nothing below sigma = 0."""
    masked = np.isneginf(sampled)
    d = tau * (np.where(masked, 0.0, sampled) - true[:, None])
    sigma = np.maximum(SIGMAS[activation](d), 0.0) ** (1 / tau)
    return np.log(1 + np.where(masked, 0.0, sigma / sampled_count).sum(-1))


def sl_at_k(true, sampled, sampled_count, k, weight_temperature):
    """sigmoid((o_y - o_K) / w) times the softmax loss; o_K by counting classes, score by score."""
    counts = np.broadcast_to(sampled_count, sampled.shape)
    threshold = []
    for own, row, count in zip(true, sampled, counts, strict=True):
        logits = np.append(row[~np.isneginf(row)], own)
        weight = np.append(1 / count[~np.isneginf(row)], 1.0)
        enough = [t for t in logits if weight[logits >= t].sum() >= k]
        threshold.append(max(enough, default=logits.min()))
    weight = sigmoid((true - np.array(threshold)) / weight_temperature)
    return weight * sampled_softmax(true, sampled, None, sampled_count)


def hinge(true, sampled, margin=1.0):
    """max(0, margin - (o_y - max_j o_j))."""
    return np.maximum(0.0, margin - (true - sampled.max(-1)))


def of_several(loss, scores, labels, weight=None, total=False, noise=False):
    """(B,): the weighted mean, or total, of loss(true (1,), others (1, k)) over the labels.

    `scores` (B, n); `labels` (B, P) padded with -1. The others are the classes that are no label of
    the example, or with `noise` all of them. An example without labels has the loss 0.
    """
    weight = np.ones(labels.shape) if weight is None else np.asarray(weight, np.float64)
    result = np.zeros(len(labels))
    for b, (row, own, w) in enumerate(zip(scores, labels, weight, strict=True)):
        there = (own >= 0) & (w > 0)
        if not there.any():
            continue
        others = row if noise else np.delete(row, own[there])
        found = [float(loss(row[[y]], others[None])[0]) for y in own[there]]
        result[b] = np.dot(found, w[there]) / (1.0 if total else w[there].sum())
    return result


def of_several_gradient(scores, labels):
    """d of_several / d scores (B, n) of the mean of softmax losses: s (q - e_y), summed over y.

    q is the softmax of the classes that are no label, s = sum_i exp(o_i) / (exp(o_y) + that sum).
    """
    result = np.zeros(scores.shape)
    for b, (row, own) in enumerate(zip(scores, labels, strict=True)):
        own = own[own >= 0]
        others = np.setdiff1d(np.arange(len(row)), own)
        for y in own:
            share = sigmoid(logsumexp(row[others]) - row[y]) / len(own)
            result[b, others] += share * softmax(row[others])
            result[b, y] -= share
    return result


def smoothed_loss(scores, labels, epsilon):
    """(B,): cross-entropy with (1 - epsilon) on the label and epsilon / n on every class."""
    target = np.full(scores.shape, epsilon / scores.shape[1])
    target[np.arange(len(labels)), labels] += 1 - epsilon
    return -(target * (scores - logsumexp(scores)[:, None])).sum(-1)


# Heads that are not one table of n rows.


def leaves(order):
    """Leaf of each class (n,): a permutation is spread over 2^D leaves, others are leaves."""
    order = np.asarray(order)
    n = len(order)
    size = 2 ** math.ceil(math.log2(n))
    return np.array([int(i) * size // n for i in order]) if order.max() < n else order


def hierarchical_log_probs(hidden, kernel, bias, leaf):
    """(B, n): sum over the path of log sigma(+-(h.w + b)); no factor where one side has no class.

    kernel (2^D - 1, d) and bias level by level; leaf (n,).
    """
    depth = math.ceil(math.log2(len(leaf)))
    result = np.zeros((len(hidden), len(leaf)))
    for i, own in enumerate(leaf):
        for level in range(depth):
            node = 2**level - 1 + (own >> (depth - level))
            step = own >> (depth - level - 1)
            if not any(other >> (depth - level - 1) == step ^ 1 for other in leaf):
                continue
            sign = 1 if step % 2 else -1
            result[:, i] -= softplus(-sign * (hidden @ kernel[node] + bias[node]))
    return result


def adaptive_log_probs(hidden, shortlist, projections, tails, cutoffs, rank):
    """(B, n) of Grave et al. 2017: log p(cluster) + log p(class | cluster).

    `shortlist` and `tails` are pairs (kernel, bias); rank (n,) of each class by its frequency.
    """
    first = scores(hidden, *shortlist)
    first = first - logsumexp(first)[:, None]
    by_rank = [first[:, : cutoffs[0]]]
    for i, (projection, tail) in enumerate(zip(projections, tails, strict=True)):
        within = scores(hidden @ projection, *tail)
        within = within - logsumexp(within)[:, None]
        by_rank.append(first[:, [cutoffs[0] + i]] + within)
    return np.concatenate(by_rank, axis=-1)[:, rank]


# Distributions of the static samplers.


def uniform_distribution(n):
    return np.full(n, 1.0 / n)


def log_uniform_distribution(n):
    """TensorFlow's: P(i) = (log(i + 2) - log(i + 1)) / log(n + 1)."""
    i = np.arange(n, dtype=np.float64)
    return np.log1p(1.0 / (i + 1.0)) / np.log(n + 1.0)


def unigram_distribution(counts, power):
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


def differences(loss, arrays, step=1e-5):
    """Central differences of `loss(arrays)` by every entry of float64 arrays."""
    found = []
    for array in arrays:
        gradient = np.zeros_like(array)
        for index in np.ndindex(*array.shape):
            ends, before = [], array[index]
            for sign in (1, -1):
                array[index] = before + sign * step
                ends.append(loss(arrays))
            array[index] = before
            gradient[index] = (ends[0] - ends[1]) / (2 * step)
        found.append(gradient)
    return found


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


# Kernel samplers: feature maps (N, D) of rows x (N, d), and the distribution of the descent.


def quadratic_features(x, alpha):
    """Inner products are alpha <h, c>^2 + 1 (Blanc & Rendle 2018)."""
    outer = np.einsum("ni,nj->nij", x, x).reshape(len(x), -1)
    return np.concatenate([np.sqrt(alpha) * outer, np.ones((len(x), 1))], axis=-1)


def fourier_features(x, directions, nu, limit=40.0):
    """Rawat et al. (2019) eq. 17 times exp(min(nu |x|^2 / 2, limit)); directions (d, D)."""
    angles = x @ directions
    waves = np.concatenate([np.cos(angles), np.sin(angles)], axis=-1)
    scale = np.exp(np.minimum(nu / 2 * (x**2).sum(-1, keepdims=True), limit))
    return waves * scale / np.sqrt(directions.shape[1])


def structured_directions(signs, nu, size, num_features):
    """Yu et al. (2016): sqrt(nu p) H D_1 H D_2 H D_3, transposed; signs (3, stacks, p)."""
    p = signs.shape[-1]
    h = hadamard(p) / np.sqrt(p)
    d = signs[..., None] * np.eye(p)  # (3, stacks, p, p)
    stacks = h @ d[0] @ h @ d[1] @ h @ d[2]
    return np.sqrt(nu * p) * stacks.reshape(-1, p)[:num_features, :size].T


def maclaurin_features(x, signs, counts, num_features, nu):
    """Kar & Karnick (2012); `signs` are the first factors of counts[0] features, and so on."""
    starts = np.cumsum([0, *counts])
    columns = []
    for j in range(num_features):
        degree = sum(count > j for count in counts)
        scale = 2.0 ** (degree + 1) * nu**degree / math.factorial(degree) / num_features
        factors = [x @ signs[:, starts[i] + j] for i in range(degree)]
        columns.append(np.sqrt(scale) * np.prod([np.ones(len(x)), *factors], axis=0))
    return np.stack(columns, axis=-1)


def positive_features(x, directions, nu, limit=40.0):
    """Choromanski et al. (2021), Lemma 1; directions (d, D)."""
    exponents = x @ directions - nu / 2 * (x**2).sum(-1, keepdims=True)
    return np.exp(np.minimum(exponents, limit)) / np.sqrt(directions.shape[1])


def clamped_shares(mass, prior, available, floor):
    """Shares of siblings (K,): M+ = max(M, floor w mean |M|) over its sum; w if all M+ are 0."""
    mass, prior = np.where(available, mass, 0.0), np.where(available, prior, 0.0)
    if not available.any():
        return np.zeros_like(mass)
    raised = np.maximum(mass, floor * prior * np.abs(mass).sum() / prior.sum())
    raised = raised if raised.sum() > 0 else prior
    return raised / raised.sum()


def mixture_members(phi, total):
    """phi(h_b) / Z_b (B, D), Z_b at least 1e-3 of the batch's mean of |Z| (1 if that is 0)."""
    mean = np.abs(total).mean()
    return phi / np.maximum(total, 1e-3 * mean if mean > 0 else 1.0)[:, None]


def _within_leaf(scores, available, share):
    """Mean by `share` (B,) over examples of the softmax of available scores (B, b)."""
    if not available.any():
        return np.zeros(scores.shape[-1])
    return share @ softmax(np.where(available, scores, -np.inf))


def kernel_distribution(
    phi,
    phi_rows,
    weight,
    prior,
    block_size,
    top_size,
    floor,
    labels=None,
    scores=None,
    shared=False,
    branching=16,
):
    """q (B, n) of the kernel samplers, or (1, n) if shared.

    phi (B, D), phi_rows (n, D), weight and prior (n,); with `scores` (B, n) the share of a class in
    its block is their softmax. Masses of nodes are sums over their classes, one by one.
    """
    n = len(phi_rows)
    spans = [block_size] if block_size < n else []
    while spans and -(-n // spans[-1]) > top_size:
        spans.append(branching * spans[-1])
    members = mixture_members(phi, phi @ (weight @ phi_rows)) if shared else None
    queries = members.mean(0, keepdims=True) if shared else phi
    q = np.ones((len(queries), n))
    for row, query in enumerate(queries):
        available = prior > 0
        if labels is not None:
            available = available & (np.arange(n) != labels[row])
        mass = np.where(available, phi_rows @ query * weight, 0.0)
        own_prior = np.where(available, prior, 0.0)
        for level, span in enumerate(spans):
            node = np.arange(n) // span
            sums = [np.bincount(node, v) for v in (mass, own_prior, available)]
            parent = np.arange(node[-1] + 1) // (branching if level + 1 < len(spans) else n)
            for group in np.unique(parent):
                mine = parent == group
                shares = clamped_shares(sums[0][mine], sums[1][mine], sums[2][mine] > 0, floor)
                for child, share in zip(np.flatnonzero(mine), shares, strict=True):
                    q[row, node == child] *= share
        leaf = np.arange(n) // block_size
        for own in (leaf == v for v in np.unique(leaf)):
            if block_size == 1:
                shares = available[own].astype(float)
            elif scores is None:
                shares = clamped_shares(mass[own], prior[own], available[own], floor)
            elif not shared:
                shares = _within_leaf(scores[[row]][:, own], available[own], np.ones(1))
            else:
                part = np.maximum(members @ (weight[own] @ phi_rows[own]), 0.0)
                if not spans or part.sum() == 0:
                    part = np.ones(len(part))
                shares = _within_leaf(scores[:, own], available[own], part / part.sum())
            q[row, own] *= shares
    return q


def codebook_distribution(
    first, second, cell, weight, order=None, window=None, labels=None, scores=None, shared=False
):
    """q (B, n) of the codebook sampler, or (1, n) if shared.

    first (B, K1), second (B, K2): scores of the codewords, relative to the largest of a codeword
    that has classes, and never below -30. cell (n, 2), weight (n,). With `window`, the class is
    drawn among those of its window of `order` (n,) by the softmax of scores (B, n).
    """
    parts = []
    for part, own in zip((first, second), cell.T, strict=True):
        used = np.isin(np.arange(part.shape[1]), own[weight > 0])
        peak = np.max(np.where(used, part, -np.inf), axis=1, keepdims=True)
        parts.append(np.maximum(part - peak, -30.0)[:, own])
    mass = weight * np.exp(parts[0] + parts[1])
    if labels is not None:
        mass = np.where(np.arange(len(cell)) == labels[:, None], 0.0, mass)
    total = mass.sum(-1, keepdims=True)
    q = mass / np.where(total > 0, total, 1.0)
    if window is not None:
        for start in range(0, len(order), window):
            ids = order[start : start + window]
            peak = scores[:, ids].max(-1, keepdims=True)
            softmax_of = np.where(q[:, ids] > 0, np.exp(scores[:, ids] - peak), 0.0)
            below = softmax_of.sum(-1, keepdims=True)
            share = softmax_of / np.where(below > 0, below, 1.0)
            q[:, ids] = q[:, ids].sum(-1, keepdims=True) * share
    return q.mean(0, keepdims=True) if shared else q


def log_sigmoid(z):
    return -softplus(-np.asarray(z, np.float64))


def tree_path(leaf, num_leaves):
    """[(node, zeta)] from the root to a leaf; heap order, children 2i (-1), 2i + 1 (+1)."""
    child, path = int(leaf) + num_leaves, []
    while child > 1:
        path.append((child // 2, 1 if child % 2 else -1))
        child //= 2
    return path[::-1]


def tree_log_prob(x, nodes, leaf):
    """Bamler & Mandt eq. 7 for one point x (k,): sum of log sigmoid(zeta (w.x + b)) on the path."""
    nodes = np.asarray(nodes, np.float64)
    path = tree_path(leaf, len(nodes))
    return sum(log_sigmoid(zeta * (nodes[i, :-1] @ x + nodes[i, -1])) for i, zeta in path)


def tree_log_rest(x, nodes, leaf):
    """log(1 - p) of a leaf: the log of the sum over the places where a path may leave its own."""
    nodes = np.asarray(nodes, np.float64)
    above, terms = 0.0, []
    for i, zeta in tree_path(leaf, len(nodes)):
        toward = zeta * (nodes[i, :-1] @ x + nodes[i, -1])
        terms.append(above + log_sigmoid(-toward))
        above += log_sigmoid(toward)
    return logsumexp(np.array(terms)) if terms else -np.inf


def tree_distribution(hidden, mean, components, nodes, leaves, labels=None, shared=False):
    """q (B, n) of a tree; without the labels if they are given, the batch's mixture if shared."""
    points = (np.asarray(hidden, np.float64) - mean) @ np.asarray(components, np.float64)
    log_p = np.array([[tree_log_prob(x, nodes, leaf) for leaf in leaves] for x in points])
    if shared:
        return np.broadcast_to(np.exp(log_p).mean(0), log_p.shape)
    if labels is not None:
        rest = np.array(
            [tree_log_rest(x, nodes, leaves[y]) for x, y in zip(points, labels, strict=True)]
        )
        log_p = np.where(np.arange(len(leaves)) == labels[:, None], -np.inf, log_p)
        log_p = log_p - np.where(np.isfinite(rest), rest, 0.0)[:, None]
    return np.exp(log_p)


def ridge_logistic(x, zeta, regularization):
    """(w, b) (k + 1,) of the largest sum of log sigmoid(zeta (w.x + b)) - lambda (|w|^2 + b^2)."""
    z = np.concatenate([np.asarray(x, np.float64), np.ones((len(x), 1))], axis=1)

    def loss(w):
        margin = zeta * (z @ w)
        gradient = -(zeta * np.exp(log_sigmoid(-margin))) @ z + 2 * regularization * w
        return -log_sigmoid(margin).sum() + regularization * w @ w, gradient

    start = np.zeros(z.shape[1])
    return optimize.minimize(loss, start, jac=True, method="BFGS", options={"gtol": 1e-10}).x

"""Asymptotic covariances of maximum likelihood and of noise-contrastive estimation. Needs no Keras.

Ma & Collins 2018, section 4.4 and appendix B, for scores that are linear in their parameters:
sqrt(N) (estimate - truth) => Normal(0, covariance). Inputs are uniform.

Shape letters: X inputs, Y classes, K draws of noise, P parameters. F is d s / d parameters
(X Y, P), the rows of one input after those of the other.
"""

from itertools import combinations_with_replacement

import numpy as np
from scipy import sparse, stats


def covariance(
    kind: str,
    design: np.ndarray,
    conditional: np.ndarray,
    noise: np.ndarray,
    num_noise: int | None,
) -> np.ndarray:
    """Asymptotic covariance (P, P) of an estimate.

    Args:
        kind: "likelihood", "ranking" or "binary".
        design: F; of binary NCE with the columns of gamma or b_x.
        conditional: p(y|x) (X, Y).
        noise: p_N (Y,).
        num_noise: K.
    """
    if kind == "binary":
        return binary_covariance(design, conditional, noise, num_noise)
    if kind == "likelihood":
        return np.linalg.inv(fisher(design, conditional))
    return np.linalg.inv(ranking_information(design, conditional, noise, num_noise))


def fisher(design: np.ndarray, conditional: np.ndarray) -> np.ndarray:
    """I = E_X Var_{Y|X} of the gradient of s (P, P); the covariance of the MLE is its inverse."""
    means = conditional_means(design, conditional)
    return second_moment(design, conditional) - means.T @ means / len(conditional)


def _information(design: np.ndarray, weights: list[np.ndarray]) -> np.ndarray:
    """1/X sum_x F_x^T weights_x F_x (P, P) of X weights (Y, Y)."""
    return design.T @ (sparse.block_diag(weights, "csr") @ design) / len(weights)


def second_moment(design: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """1/X sum_xy weight(x, y) F(x, y) F(x, y)^T (P, P) of a weight (X, Y)."""
    return design.T @ (weight.reshape(-1, 1) * design) / len(weight)


def conditional_means(design: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """sum_y weight(x, y) F(x, y) (X, P) of a weight (X, Y): of p(y|x), the gradient of log Z(x)."""
    return sparse.block_diag(list(weight[:, None, :]), "csr") @ design


def ranking_information(
    design: np.ndarray, conditional: np.ndarray, noise: np.ndarray, num_noise: int
) -> np.ndarray:
    """I_{R,K} (P, P), exact: the covariance of ranking is its inverse (Lemma B.7).

    I_{R,K} = E[Var_q of the gradient of s over {y_0, ..., y_K}], q the softmax of s_bar over the
    set. The expectation is a sum over all multisets of K + 1 classes, so Y must be small.
    """
    size, kinds = num_noise + 1, len(noise)
    sets = combinations_with_replacement(range(kinds), size)
    counts = np.array([np.bincount(ids, minlength=kinds) for ids in sets], float)
    chance = stats.multinomial.pmf(counts, size, noise)
    weights = []
    for p in conditional:
        ratio = p / noise
        total = counts @ ratio
        # The true class is any of the K + 1 of the set: sum_j p(y_j) / p_N(y_j) / (K + 1).
        share = chance * total / size
        q = counts * ratio / total[:, None]
        weights.append(np.diag(share @ q) - (q.T * share) @ q)
    return _information(design, weights)


def binary_covariance(
    design: np.ndarray, conditional: np.ndarray, noise: np.ndarray, num_noise: int
) -> np.ndarray:
    """Covariance (P, P) of binary NCE where s = log p(y|x) at the truth (Lemma B.14).

    W^-1 (W - (1 + 1/K) E_X[mu_x mu_x^T]) W^-1, W = E[(1 - sigma) g g^T] and
    mu_x = E_{Y|X}[(1 - sigma) g], with g the gradient of s and 1 - sigma = K p_N / (p + K p_N). The
    log-partition, or one b_x for each input, is among the parameters.
    """
    weight = conditional * (num_noise * noise / (conditional + num_noise * noise))
    hessian = second_moment(design, weight)
    means = conditional_means(design, weight)
    variance = hessian - (1 + 1 / num_noise) * means.T @ means / len(conditional)
    inverse = np.linalg.inv(hessian)
    return inverse @ variance @ inverse

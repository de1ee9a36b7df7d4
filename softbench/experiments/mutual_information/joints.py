"""Joint distributions of (x, y) with exact mutual information, and critics that hold their optimum.

A critic f(x, y) estimates log p(y|x) / p(y). Both distributions have one that is linear in its
weights and can be the truth exactly.

Shape letters: S samples, N candidates of each, the first one the label.
"""

import math

import numpy as np
from scipy.special import softmax

from softbench.datasets import draws


class Table:
    """p(y|x) of a table (X, n), mixed with a little of the uniform one; x is uniform.

    Args:
        num_inputs, num_classes: X and n.
        sharpness: factor of the normal scores whose softmax the rows are.
        uniform: share of the uniform distribution.
        seed: of the scores.
    """

    def __init__(
        self, num_inputs: int, num_classes: int, sharpness: float, uniform: float, seed: int
    ) -> None:
        scores = sharpness * np.random.default_rng(seed).normal(size=(num_inputs, num_classes))
        self.conditional = (1 - uniform) * softmax(scores, axis=-1) + uniform / num_classes
        self.marginal = self.conditional.mean(0)
        self.optimum = np.log(self.conditional / self.marginal)
        self.information = float(np.mean(np.sum(self.conditional * self.optimum, -1)))

    def sample(self, rng: np.random.Generator, size: int, candidates: int) -> tuple:
        """x (S,) and y (S, N): y[:, 0] ~ p(y|x), the others ~ p(y)."""
        x = rng.integers(len(self.conditional), size=size)
        true = draws.draw_rows(self.conditional, x, rng.random(size))
        uniform = rng.random((size, candidates - 1))
        noise = draws.draw_rows(self.marginal[None], np.zeros(size, int), uniform)
        return x, np.concatenate([true[:, None], noise], -1)

    def log_noise(self, y: np.ndarray) -> np.ndarray:
        """log p(y) (S, N)."""
        return np.log(self.marginal)[y]

    def scores(self, weights: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """f (S, N) of weights (X, n)."""
        return weights[x[:, None], y]

    def pull(self, x: np.ndarray, y: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """The gradient (X, n) of the weights, from that of f (S, N)."""
        shape = self.conditional.shape
        cells = (x[:, None] * shape[1] + y).ravel()
        return np.bincount(cells, gradient.ravel(), minlength=shape[0] * shape[1]).reshape(shape)

    def local_optimum(self, candidates: int) -> float:
        """Least loss of local NCE, H(A^N | X Y^N), in nats (Stratos, Lemma 2.1)."""
        noise = self.marginal
        mixture = (self.conditional + (candidates - 1) * noise) / candidates
        divergence = np.sum(self.conditional * np.log(self.conditional / mixture), -1)
        divergence += (candidates - 1) * np.sum(noise * np.log(noise / mixture), -1)
        rest = math.log(candidates) + (candidates - 1) * math.log(candidates / (candidates - 1))
        return float(rest - divergence.mean())

    def recovery(self, weights: np.ndarray) -> dict:
        """How a critic gives p(y|x) back.

        Returns:
            {"kl": mean KL of the softmax of f + log p(y) (eq. 2), in nats; "partition": least and
            largest sum over y of p(y) e^f, which is 1 where no renormalisation is needed}.
        """
        mass = self.marginal * np.exp(weights)
        total = mass.sum(-1, keepdims=True)
        kl = np.sum(self.conditional * np.log(self.conditional * total / mass), -1).mean()
        return {"kl": float(kl), "partition": [float(total.min()), float(total.max())]}


class Gaussian:
    """`dim` pairs of standard normal variables, each of this correlation; y is the second ones.

    The critic is [1, x, x^2] W [1, y, y^2]: log p(y|x) / p(y) is among its values.
    """

    def __init__(self, dim: int, correlation: float) -> None:
        self.dim, self.correlation = dim, correlation
        rest = 1 - correlation**2
        self.information = -0.5 * dim * math.log(rest)
        d = np.arange(1, dim + 1)
        self.optimum = np.zeros((2 * dim + 1, 2 * dim + 1))
        self.optimum[0, 0] = self.information
        self.optimum[d, d] = correlation / rest
        self.optimum[d + dim, 0] = self.optimum[0, d + dim] = -0.5 * correlation**2 / rest

    def sample(self, rng: np.random.Generator, size: int, candidates: int) -> tuple:
        """Features of x (S, 2d + 1) and y (S, N, 2d + 1); y[:, 0] goes with x."""
        x = rng.normal(size=(size, self.dim))
        y = rng.normal(size=(size, candidates, self.dim))
        y[:, 0] = self.correlation * x + math.sqrt(1 - self.correlation**2) * y[:, 0]
        return _features(x), _features(y)

    def log_noise(self, y: np.ndarray) -> np.ndarray:
        """log p(y) (S, N), a density."""
        squares = y[..., self.dim + 1 :].sum(-1)
        return -0.5 * (squares + self.dim * math.log(2 * math.pi))

    def scores(self, weights: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """f (S, N) of weights (2d + 1, 2d + 1)."""
        return np.matmul(y, (x @ weights)[:, :, None])[:, :, 0]

    def pull(self, x: np.ndarray, y: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """The gradient of the weights, from that of f (S, N)."""
        return x.T @ np.matmul(gradient[:, None, :], y)[:, 0]


def _features(values: np.ndarray) -> np.ndarray:
    ones = np.ones((*values.shape[:-1], 1))
    return np.concatenate([ones, values, values**2], -1)


def build(dataset: dict, seed: int) -> Table | Gaussian:
    """The joint distribution that a config describes.

    Raises:
        ValueError: for one that is neither `table` nor `gaussian`.
    """
    name = dataset["name"]
    fields = {key: value for key, value in dataset.items() if key not in ("name", "label")}
    if name == "table":
        return Table(**fields, seed=seed)
    if name == "gaussian":
        return Gaussian(**fields)
    raise ValueError(f"`dataset.name` must be table or gaussian. Received: {name!r}")

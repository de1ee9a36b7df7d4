"""Feature maps phi whose inner products are, or estimate, the kernels of the kernel samplers.

phi(h).phi(c) is linear in phi(c), so the mass of any set of classes is one inner product with the
sum of its feature vectors (Rawat et al. 2019, section 3.1). The random maps here all estimate
exp(nu <h, c>), all but SORF without bias; they differ in cost, in variance, and in whether an
estimate can be negative. Shape letters: B batch, N rows, d features of a row, D random features,
K rows compared.
"""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from softbench.checks import check_number, check_positive
from softbench.constants import add_constant
from softbench.ops import read

Tensor = Any

# Exponents of class features stop here: float32 sums of a million of them stay finite.
LARGEST_EXPONENT = 40.0


class FeatureMap(keras.layers.Layer):
    """Base class: `features`, the `kernel` that their inner products estimate, and `dim`.

    Attributes:
        dim: length of a feature vector, known when built.
        signed: whether an inner product can be negative.
        exact: whether the inner product is the kernel itself rather than an estimate of it.
    """

    signed = False
    exact = False

    def features(self, x: Tensor) -> Tensor:
        """phi of rows (N, d): float32 (N, dim)."""
        raise NotImplementedError

    def queries(self, hidden: Tensor) -> Tensor:
        """phi of hidden (B, d), each row up to a positive factor, which no proposal depends on."""
        return self.features(hidden)

    def kernel(self, hidden: Tensor, rows: Tensor) -> Tensor:
        """The exact kernel of hidden (B, d) and rows (K, d): (B, K)."""
        raise NotImplementedError

    def products(self, queries: Tensor, rows: Tensor, hidden: Tensor | None = None) -> Tensor:
        """Inner products of queries with phi(rows).

        Args:
            queries: (B, dim).
            rows: (K, d), compared with every query, or (B, K, d).
            hidden: (B, d) that the queries are features of, if they are those of single vectors.

        Returns:
            float32 (B, K), in the scale of `queries`.
        """
        found = self.features(ops.reshape(rows, (-1, rows.shape[-1])))
        if len(rows.shape) == 2:
            return ops.matmul(queries, ops.transpose(found))
        found = ops.reshape(found, (*ops.shape(rows)[:-1], self.dim))
        return ops.squeeze(ops.matmul(found, ops.expand_dims(queries, -1)), -1)


class Quadratic(FeatureMap):
    """K(h, c) = alpha <h, c>^2 + 1 (Blanc & Rendle 2018; Rawat et al. 2019, eq. 15).

    The sum over classes of alpha c c^T is a symmetric d x d form. Its upper triangle is kept, with
    the entries off the diagonal times sqrt(2), and a 1: dim = d (d + 1) / 2 + 1.
    """

    exact = True

    def __init__(self, alpha: float = 100.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_number(0, exclusive=True, alpha=alpha)
        self.alpha = alpha

    def build(self, x_shape: tuple) -> None:
        size = x_shape[-1]
        first, second = np.triu_indices(size)
        self.dim = len(first) + 1
        self.positions = (first * size + second).astype("int32")
        scale = math.sqrt(self.alpha) * np.where(first == second, 1.0, math.sqrt(2.0))
        self.scale = scale.astype("float32")
        # packed -> full: where entry (i, j) of the form is in the triangle, and what undoes `scale`
        place = np.zeros((size, size), "int32")
        place[first, second] = place[second, first] = np.arange(len(first))
        self.place = place.ravel()
        self.unscale = (
            np.where(np.eye(size), 1.0, 1 / math.sqrt(2.0)) * math.sqrt(self.alpha)
        ).astype("float32")

    def features(self, x: Tensor) -> Tensor:
        outer = ops.expand_dims(x, -1) * ops.expand_dims(x, -2)
        flat = ops.reshape(outer, (-1, x.shape[-1] ** 2))
        form = ops.take(flat, self.positions, axis=1) * self.scale
        return ops.concatenate([form, ops.ones_like(form[:, :1])], axis=-1)

    def kernel(self, hidden: Tensor, rows: Tensor) -> Tensor:
        return self.alpha * ops.square(ops.matmul(hidden, ops.transpose(rows))) + 1.0

    def products(self, queries: Tensor, rows: Tensor, hidden: Tensor | None = None) -> Tensor:
        if hidden is not None and len(rows.shape) == 2:
            return self.kernel(hidden, rows)
        if hidden is not None:
            inner = ops.squeeze(ops.matmul(rows, ops.expand_dims(hidden, -1)), -1)
            return self.alpha * ops.square(inner) + 1.0
        size = rows.shape[-1]
        form = ops.take(queries[:, :-1], self.place, axis=1)
        form = ops.reshape(form, (-1, size, size)) * self.unscale
        if len(rows.shape) == 2:
            rows = ops.expand_dims(rows, 0)
        return ops.sum(ops.matmul(rows, form) * rows, axis=-1) + queries[:, -1:]


class ExponentialMap(FeatureMap):
    """Base class of the random maps: E[phi(h).phi(c)] = exp(nu <h, c>).

    Args:
        num_features: D, the number of random directions.
        nu: 1 / (temperature of the kernel).
        seed: of the first directions, which are drawn with NumPy and saved; None for any.
    """

    def __init__(self, num_features: int, nu: float, seed: int | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        check_positive(num_features=num_features)
        check_number(0, exclusive=True, nu=nu)
        self.num_features = int(num_features)
        self.nu = nu
        self.seed = seed

    def kernel(self, hidden: Tensor, rows: Tensor) -> Tensor:
        return ops.exp(self.nu * ops.matmul(hidden, ops.transpose(rows)))

    def noise(self, seed: keras.random.SeedGenerator) -> Tensor:
        """The random numbers of one set of directions, for `fresh`."""
        return keras.random.normal(self.drawn.shape, seed=seed)

    def fresh(self, noise: Tensor) -> Tensor:
        """Another value of the variable `drawn`, independent of the present one."""
        raise NotImplementedError

    @property
    def drawn(self) -> keras.Variable:
        """The random directions."""
        return self.directions

    def _half_square(self, x: Tensor) -> Tensor:
        return 0.5 * self.nu * ops.sum(ops.square(x), axis=-1, keepdims=True)


class RandomMaclaurin(ExponentialMap):
    """Random Maclaurin features (Kar & Karnick 2012).

    phi_j(x) = sqrt(2^(N + 1) nu^N / N! / D) prod_{i <= N} <w_ji, x>, with a degree N drawn with
    probability 2^-(N + 1) and signs w_ji: one term of the series of exp(nu <h, c>).
    """

    signed = True

    def build(self, x_shape: tuple) -> None:
        self.dim = self.num_features
        rng = np.random.default_rng(self.seed)
        degrees = np.sort(rng.geometric(0.5, self.num_features) - 1)[::-1]
        # how many features have at least this degree: they are a prefix, as degrees fall
        self.counts = [int((degrees > k).sum()) for k in range(degrees[0])]
        signs = rng.choice([-1.0, 1.0], (x_shape[-1], sum(self.counts)))
        self.directions = add_constant(self, "directions", signs)
        logs = [(n + 1) * math.log(2) + n * math.log(self.nu) - math.lgamma(n + 1) for n in degrees]
        coefficients = np.exp(0.5 * (np.array(logs) - math.log(self.num_features)))
        self.coefficients = add_constant(self, "coefficients", coefficients)

    def fresh(self, noise: Tensor) -> Tensor:
        return ops.where(noise > 0, 1.0, -1.0)

    def features(self, x: Tensor) -> Tensor:
        factors, start = ops.matmul(x, read(self.directions)), 0
        result = ops.ones((ops.shape(x)[0], self.num_features), "float32")
        for count in self.counts:
            factor = factors[:, start : start + count]
            result = ops.concatenate([result[:, :count] * factor, result[:, count:]], axis=-1)
            start += count
        return result * read(self.coefficients)


class PositiveRandom(ExponentialMap):
    """Positive random features (FAVOR+; Choromanski et al. 2021): no estimate is negative.

    phi_j(x) = exp(<w_j, x> - nu |x|^2 / 2) / sqrt(D), w_j ~ N(0, nu I): dim = D.

    Args:
        orthogonal: draw the directions orthogonal in groups of d, with the norms of Gaussian ones:
            still unbiased, and of lower variance.
    """

    def __init__(self, num_features: int, nu: float, orthogonal: bool = True, **kwargs: Any):
        super().__init__(num_features, nu, **kwargs)
        self.orthogonal = orthogonal

    def build(self, x_shape: tuple) -> None:
        self.dim = self.num_features
        rng = np.random.default_rng(self.seed)
        draws = rng.normal(size=(x_shape[-1], self.num_features))
        if self.orthogonal:
            draws = _orthogonal(rng, draws)
        self.directions = add_constant(self, "directions", math.sqrt(self.nu) * draws)

    def noise(self, seed: keras.random.SeedGenerator) -> Tensor:
        size, columns = self.directions.shape
        groups = -(-columns // size) if self.orthogonal else 0
        return keras.random.normal((size, columns + groups * size), seed=seed)

    def fresh(self, noise: Tensor) -> Tensor:
        size, columns = self.directions.shape
        draws = noise[:, :columns]
        if self.orthogonal:
            groups = ops.transpose(ops.reshape(noise[:, columns:], (size, -1, size)), (1, 0, 2))
            q, r = ops.qr(groups)
            signs = ops.where(ops.diagonal(r, axis1=-2, axis2=-1) < 0, -1.0, 1.0)
            q = ops.reshape(ops.transpose(q * signs[:, None, :], (1, 0, 2)), (size, -1))
            draws = q[:, :columns] * ops.sqrt(ops.sum(ops.square(draws), axis=0))
        return math.sqrt(self.nu) * draws

    def _exponents(self, x: Tensor) -> Tensor:
        return ops.matmul(x, read(self.directions)) - self._half_square(x)

    def features(self, x: Tensor) -> Tensor:
        exponents = ops.minimum(self._exponents(x), LARGEST_EXPONENT)
        return ops.exp(exponents) / math.sqrt(self.num_features)

    def queries(self, hidden: Tensor) -> Tensor:
        exponents = self._exponents(hidden)
        return ops.exp(exponents - ops.max(exponents, axis=-1, keepdims=True))


def _orthogonal(rng: np.random.Generator, draws: np.ndarray) -> np.ndarray:
    """Columns (d, D), orthogonal within groups of d, with the norms of the columns of `draws`."""
    size, columns = draws.shape
    groups = []
    for _ in range(-(-columns // size)):
        q, r = np.linalg.qr(rng.normal(size=(size, size)))
        # Without the signs q is not uniform over rotations (Mezzadri 2007), and phi is biased.
        groups.append(q * np.where(np.diag(r) < 0, -1.0, 1.0))
    return np.concatenate(groups, axis=1)[:, :columns] * np.linalg.norm(draws, axis=0)

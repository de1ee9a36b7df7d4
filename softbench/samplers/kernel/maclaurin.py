"""Random Maclaurin features as proposal; shape letters as in `features`."""

import math

import keras
import numpy as np
from keras import ops

from softbench.common import PACKAGE, Tensor
from softbench.ops import read
from softbench.samplers.kernel.exponential import ExponentialKernelSampler, ExponentialMap
from softbench.state import add_constant

# Products of factors stop here, and class features at the next: a float32 sum over a million of
# these, times a query of at most the third, is finite.
LARGEST_TERM, LARGEST_FEATURE, LARGEST_QUERY = 2.0**100, 2.0**66, 2.0**30


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

    def _terms(self, x: Tensor, largest: float) -> Tensor:
        """phi of rows (N, d), none of it beyond `largest`."""
        factors, start = ops.matmul(x, read(self.directions)), 0
        result = ops.ones((ops.shape(x)[0], self.num_features), "float32")
        for count in self.counts:
            product = result[:, :count] * factors[:, start : start + count]
            product = ops.clip(product, -LARGEST_TERM, LARGEST_TERM)
            result = ops.concatenate([product, result[:, count:]], axis=-1)
            start += count
        return ops.clip(result * read(self.coefficients), -largest, largest)

    def features(self, x: Tensor) -> Tensor:
        return self._terms(x, LARGEST_FEATURE)

    def queries(self, hidden: Tensor) -> Tensor:
        terms = self._terms(hidden, LARGEST_TERM)
        peak = ops.max(ops.abs(terms), axis=-1, keepdims=True)
        # Scaled by powers of two, which leave all shares the same to the last bit.
        scale = ops.where(peak > LARGEST_QUERY * 2.0**35, 2.0**-70, 2.0**-35)
        return terms * ops.where(peak > LARGEST_QUERY, scale, 1.0)


@keras.saving.register_keras_serializable(PACKAGE)
class RandomMaclaurinKernel(ExponentialKernelSampler):
    """q(i | h) proportional to phi(h).phi(c_i) with random Maclaurin features (Kar & Karnick 2012).

    Of high variance (Rawat et al., Table 1): here to be compared with. The arguments are those of
    `ExponentialKernelSampler` and `KernelSampler`.
    """

    feature_map = RandomMaclaurin

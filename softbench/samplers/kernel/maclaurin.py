"""Random Maclaurin features as proposal; shape letters as in `features`."""

import math

import keras
import numpy as np
from keras import ops

from softbench.common import PACKAGE, Tensor
from softbench.ops import read
from softbench.samplers.kernel.exponential import ExponentialKernelSampler, ExponentialMap
from softbench.state import add_constant


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


@keras.saving.register_keras_serializable(PACKAGE)
class RandomMaclaurinKernel(ExponentialKernelSampler):
    """q(i | h) proportional to phi(h).phi(c_i) with random Maclaurin features (Kar & Karnick 2012).

    Of high variance (Rawat et al., Table 1): here to be compared with. The arguments are those of
    `ExponentialKernelSampler` and `KernelSampler`.
    """

    feature_map = RandomMaclaurin

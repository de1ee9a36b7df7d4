"""Random Maclaurin features as proposal."""

import keras

from softbench.rows import PACKAGE
from softbench.samplers.exponential_kernel import ExponentialKernelSampler
from softbench.samplers.features import FeatureMap, RandomMaclaurin


@keras.saving.register_keras_serializable(PACKAGE)
class RandomMaclaurinKernel(ExponentialKernelSampler):
    """q(i | h) proportional to phi(h).phi(c_i) with random Maclaurin features (Kar & Karnick 2012).

    Of high variance (Rawat et al., Table 1): here to be compared with. The arguments are those of
    `ExponentialKernelSampler` and `KernelSampler`.
    """

    def make_features(self, temperature: float) -> FeatureMap:
        return RandomMaclaurin(self.num_features, self.kernel_nu(temperature), seed=self.seed)

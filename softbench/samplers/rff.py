"""Random Fourier features as proposal: RF-softmax."""

import keras

from softbench.rows import PACKAGE
from softbench.samplers.exponential_kernel import ExponentialKernelSampler
from softbench.samplers.features import FeatureMap
from softbench.samplers.fourier import RandomFourier


@keras.saving.register_keras_serializable(PACKAGE)
class RandomFourierKernel(ExponentialKernelSampler):
    """q(i | h) proportional to phi(h).phi(c_i) with random Fourier features (Rawat et al. eq. 19).

    Meant for `normalize=True`. An estimate can be negative; see `floor`. The arguments are those of
    `ExponentialKernelSampler` and `KernelSampler`.
    """

    def make_features(self, temperature: float) -> FeatureMap:
        return RandomFourier(self.num_features, self.kernel_nu(temperature), seed=self.seed)

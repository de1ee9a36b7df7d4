"""The log-uniform (Zipfian) proposal of classes in decreasing order of frequency."""

import keras
import numpy as np

from softbench.common import PACKAGE
from softbench.samplers.static import StaticSampler


@keras.saving.register_keras_serializable(PACKAGE)
class LogUniform(StaticSampler):
    """q(i) = log((i + 2) / (i + 1)) / log(n + 1), as `tf.random.log_uniform_candidate_sampler`.

    Right when ids are sorted by decreasing frequency and frequencies are a Zipf distribution's. See
    `StaticSampler` for the arguments.
    """

    def class_weights(self, units: int) -> np.ndarray:
        return np.log1p(1.0 / np.arange(1, units + 1))

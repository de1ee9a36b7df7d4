"""The unigram proposal: class counts to a power."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from softbench.common import PACKAGE, check_counts, check_length, count_weights
from softbench.samplers.static import StaticSampler


@keras.saving.register_keras_serializable(PACKAGE)
class Unigram(StaticSampler):
    """q(i) proportional to counts_i ** power.

    A class with count 0 is never drawn. See `StaticSampler` for the other arguments.

    Args:
        counts: one non-negative number for each class, such as its frequency in training.
        power: 1.0 for the frequencies (Ma & Collins' noise), 0.75 as in word2vec, 0 for uniform
            over the classes seen.

    Raises:
        ValueError: if `counts` has a negative or non-finite entry, is all zero, or does not have
            one entry for each class.
    """

    arguments = ("counts", "power")

    def __init__(self, counts: Sequence[float], power: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.counts = check_counts(counts)
        self.power = power

    def class_weights(self, units: int) -> np.ndarray:
        check_length(self.counts, units)
        return count_weights(self.counts, self.power)

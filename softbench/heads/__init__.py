"""Heads: Keras layers in the place of a Dense layer and its softmax cross-entropy."""

from softbench.heads.base import Head
from softbench.heads.full import FullSoftmax
from softbench.heads.noise_contrastive import NoiseContrastive
from softbench.heads.sampled import SampledHead, SampledSoftmax

__all__ = ["FullSoftmax", "Head", "NoiseContrastive", "SampledHead", "SampledSoftmax"]

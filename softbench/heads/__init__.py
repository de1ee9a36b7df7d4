"""Heads: Keras layers in the place of a Dense layer and its softmax cross-entropy."""

from softbench.heads.base import Head
from softbench.heads.full import FullSoftmax
from softbench.heads.noise_contrastive import NoiseContrastive
from softbench.heads.sampled import SampledHead
from softbench.heads.sampled_softmax import SampledSoftmax
from softbench.heads.table_head import TableHead

__all__ = [
    "FullSoftmax",
    "Head",
    "NoiseContrastive",
    "SampledHead",
    "SampledSoftmax",
    "TableHead",
]

"""Heads: Keras layers that replace a Dense layer and its softmax cross-entropy."""

from softbench.heads.adaptive import AdaptiveSoftmax
from softbench.heads.augment_reduce import AugmentReduce
from softbench.heads.base import Head
from softbench.heads.full import FullSoftmax
from softbench.heads.hierarchical import HierarchicalSoftmax
from softbench.heads.negative_sampling import NegativeSampling
from softbench.heads.noise_contrastive import NoiseContrastive
from softbench.heads.one_vs_each import OneVsEach
from softbench.heads.sampled import SampledHead
from softbench.heads.sampled_hinge import SampledHinge
from softbench.heads.sampled_softmax import SampledSoftmax
from softbench.heads.scalable_cross_entropy import BucketedSoftmax
from softbench.heads.table_head import TableHead
from softbench.heads.tied_embedding import TiedEmbedding

__all__ = [
    "AdaptiveSoftmax",
    "AugmentReduce",
    "BucketedSoftmax",
    "FullSoftmax",
    "Head",
    "HierarchicalSoftmax",
    "NegativeSampling",
    "NoiseContrastive",
    "OneVsEach",
    "SampledHead",
    "SampledHinge",
    "SampledSoftmax",
    "TableHead",
    "TiedEmbedding",
]

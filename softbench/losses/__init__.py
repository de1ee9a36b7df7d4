"""The training objectives: pure functions of logits and log expected counts.

All take *uncorrected* logits and return one loss per example. A sampled class that must not count
(an accidental hit) has the logit -inf. Shape letters: B batch, m samples.

"Expected count" is TensorFlow's word: E[number of times a class is drawn], m q(i) with replacement
and the inclusion probability without.
"""

from softbench.losses.bounds import augment_reduce, hinge, one_vs_each
from softbench.losses.contrastive import (
    log_partition_penalty,
    nce_binary,
    nce_ranking,
    sampled_softmax,
)
from softbench.losses.negative_sampling import negative_sampling

__all__ = [
    "augment_reduce",
    "hinge",
    "log_partition_penalty",
    "nce_binary",
    "nce_ranking",
    "negative_sampling",
    "one_vs_each",
    "sampled_softmax",
]

"""The training objectives: pure functions of logits and log expected counts.

All take *uncorrected* logits and return one loss per example. A sampled class that must not count
(an accidental hit) has the logit -inf. Shape letters: B batch, m samples (K in NCE).

"Expected count" is TensorFlow's word: E[number of times a class is drawn], m q(i) with replacement
and the inclusion probability without.
"""

from softbench.losses.binary import (
    gbce,
    gbce_beta,
    log_partition_penalty,
    nce_binary,
    negative_sampling,
)
from softbench.losses.corrections import LARGEST_LOG_WEIGHT, correct, masked_draws, sum_unmasked
from softbench.losses.ranking import bsl, psl, sl_at_k
from softbench.losses.softmax import (
    augment_reduce,
    hinge,
    mean_logit,
    nce_ranking,
    one_vs_each,
    sampled_softmax,
)

__all__ = [
    "LARGEST_LOG_WEIGHT",
    "augment_reduce",
    "bsl",
    "correct",
    "gbce",
    "gbce_beta",
    "hinge",
    "log_partition_penalty",
    "masked_draws",
    "mean_logit",
    "nce_binary",
    "nce_ranking",
    "negative_sampling",
    "one_vs_each",
    "psl",
    "sampled_softmax",
    "sl_at_k",
    "sum_unmasked",
]

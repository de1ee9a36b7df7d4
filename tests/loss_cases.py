"""Every objective of `softbench.losses`, and its values in NumPy float64.

A new objective gets an entry here: what is called with the true logits (B,), the sampled ones
(B, m), and the log expected counts of both; and the same of probabilities, of which m are drawn.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import reference

from softbench import losses

ETA, GAMMA, GBCE = np.exp(1.5), 0.7, (41, 9, 0.75)


class Objective(NamedTuple):
    loss: Callable
    expected: Callable
    of_differences: bool = False  # whether a constant added to all logits changes nothing
    masks: bool = True  # whether it is a number where all draws are masked


def of_counts(function, *rest):
    """A reference that takes the logits and the draws' expected counts."""
    return lambda t, s, _, noise: function(t, s, s.shape[-1] * noise, *rest)


OBJECTIVES = {
    "sampled_softmax": Objective(
        lambda t, s, tc, c: losses.sampled_softmax(t, s, None, c),
        lambda t, s, tn, n: reference.sampled_softmax(t, s, None, s.shape[-1] * n),
        of_differences=True,
    ),
    "sampled_softmax corrected": Objective(
        losses.sampled_softmax,
        lambda t, s, tn, n: reference.sampled_softmax(t, s, s.shape[-1] * tn, s.shape[-1] * n),
        of_differences=True,
    ),
    "nce_ranking": Objective(losses.nce_ranking, reference.nce_ranking, of_differences=True),
    "nce_binary": Objective(losses.nce_binary, reference.nce_binary),
    "nce_binary gamma": Objective(
        lambda *a: losses.nce_binary(*a, GAMMA), lambda *a: reference.nce_binary(*a, GAMMA)
    ),
    "log_partition_penalty": Objective(
        lambda t, s, tc, c: losses.log_partition_penalty(s, c),
        lambda t, s, tn, n: reference.log_partition_penalty(s, n),
        masks=False,
    ),
    "negative_sampling": Objective(losses.negative_sampling, reference.negative_sampling),
    "negative_sampling regularised": Objective(
        lambda *a: losses.negative_sampling(*a, 0.1),
        lambda *a: reference.negative_sampling(*a, 0.1),
    ),
    "gbce": Objective(
        lambda *a: losses.gbce(*a, losses.gbce_beta(*GBCE)),
        lambda t, s, tn, n: reference.gbce(t, s, GBCE[0], GBCE[2]),
    ),
    "one_vs_each": Objective(
        losses.one_vs_each, of_counts(reference.one_vs_each), of_differences=True
    ),
    "augment_reduce": Objective(
        lambda *a: losses.augment_reduce(*a, 0.0 * a[0] + np.log(ETA)),
        of_counts(reference.augment_reduce, ETA),
    ),
    "bsl": Objective(lambda *a: losses.bsl(*a, 1.2), of_counts(reference.bsl, 1.2)),
    # No sigma(d) is 0 at the logits of the tests: these have no gradient there.
    **{
        f"psl {name}": Objective(
            partial(losses.psl, tau=tau, activation=name),
            of_counts(reference.psl, tau, name),
            of_differences=True,
        )
        for name, tau in {"tanh": 0.1, "atan": 0.02, "relu": 0.02}.items()
    },
    "sl_at_k": Objective(
        lambda *a: losses.sl_at_k(*a, 20, 3.0),
        of_counts(reference.sl_at_k, 20, 3.0),
        of_differences=True,
    ),
    "hinge": Objective(
        losses.hinge, lambda t, s, tn, n: reference.hinge(t, s), of_differences=True
    ),
    "hinge margin": Objective(
        lambda *a: losses.hinge(*a, 0.25), lambda t, s, tn, n: reference.hinge(t, s, 0.25)
    ),
}

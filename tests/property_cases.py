"""Heads, samplers and arrays for the properties: strategies of Hypothesis, and what they make."""

import itertools
from typing import NamedTuple

import numpy as np
from conftest import BACKEND, on_table
from head_zoo import tables
from hypothesis import assume
from hypothesis import strategies as st
from sampler_cases import CASES, KERNELS
from small import make_sampler

from softbench import (
    AdaptiveSoftmax,
    AugmentReduce,
    FullSoftmax,
    HierarchicalSoftmax,
    NegativeSampling,
    NoiseContrastive,
    OneVsEach,
    RowAdagrad,
    RowAdam,
    RowSGD,
    SampledHinge,
    SampledSoftmax,
)

D = 2
ROWS = {"sgd": RowSGD, "adagrad": RowAdagrad, "adam": RowAdam}
# Of the cases of samplers, but with less to compile; components of a mixture must each draw.
SMALL = {"num_components": 1, "num_features": 8, "block_size": 2, "num_codewords": 2, "window": 2}
SAMPLERS = {
    f"{name}-{variant}": config | {key: SMALL[key] for key in SMALL if key in config}
    for name, variants in CASES.items()
    for variant, config in variants.items()
    if not variant.startswith("nested") and variant != "streaming"
}
SAMPLERS["mixed-in_batch_shared"] = {"first": "uniform", "second": "in_batch", "share_draws": True}
STATIC = [case for case in SAMPLERS if case.startswith(("uniform", "log_uniform", "unigram"))]
OF_KERNEL = [case for case in SAMPLERS if case.split("-")[0] in KERNELS]
# A kernel's loops are compiled again at each eager call on JAX: fewer examples have them.
SAMPLER = st.sampled_from([*[case for case in SAMPLERS if case not in OF_KERNEL] * 4, *OF_KERNEL])
AT_ONE = {"class_name": "sl_at_k", "config": {"k": 1}}


def of(cls, *arguments, **given):
    """Makes a head of n classes, with further options."""
    return lambda n, *a, **options: on_table(cls, n, *a, *arguments, **given, **options)


EXACT = {
    "full": of(FullSoftmax),
    "full chunked": of(FullSoftmax, class_chunk=2, regularization=0.01),
    "hierarchical": of(HierarchicalSoftmax),
    "adaptive": of(AdaptiveSoftmax, [1, 3], div_value=1.0),
}
SAMPLED = {
    "sampled": of(SampledSoftmax),
    "sampled corrected": of(SampledSoftmax, correct_true_logit=True),
    "psl": of(SampledSoftmax, objective="psl"),
    "sl at k": of(SampledSoftmax, objective=AT_ONE),
    "binary": of(NoiseContrastive, objective="binary"),
    "binary free": of(NoiseContrastive, objective="binary", learn_log_partition=True),
    "ranking": of(NoiseContrastive, objective="ranking"),
    "negative": of(NegativeSampling),
    "negative regularised": of(NegativeSampling, regularization=1e-3),
    "each": of(OneVsEach),
    "augment": of(AugmentReduce, num_examples=4),
    "hinge": of(SampledHinge),
}
SCORES = {
    "plain": {},
    "no bias": {"use_bias": False},
    "normalised": {"normalize": True, "temperature": 0.09},
    "absolute": {"absolute": True},
}
COUNTS = st.sampled_from([0.0, 5e-324, 1e-310, 1e-38, 1.0, 3.0, 1e9, 1e30, 1e308])
# <h, c> of two such vectors is at most 9,801, and a bias at most 150.
SIZES = {"equal": (0.0, 0.0), "one": (1.0, 1.0), "large": (99.0 / 2**0.5, 150.0)}


class Case(NamedTuple):
    """A head, what it is called with, and what its table holds."""

    head: str
    sampler: str
    scores: str
    dtype: str
    rows: str | None
    units: int
    num_sampled: int
    counts: list
    hidden: np.ndarray
    labels: np.ndarray
    kernel: np.ndarray
    bias: np.ndarray
    seed: int


def vectors(draw, size, *shape):
    values = st.sampled_from([0.0, 1.0, -1.0, 0.5, 1e-3])
    count = int(np.prod(shape))
    found = draw(st.lists(values, min_size=count, max_size=count))
    return size * np.array(found, "float32").reshape(shape)


SHAPES = ((7, 3, 2), (1, 1, 1), (2, 3, 9), (7, 1, 9))  # n, B, m
DTYPES = ("float32", "mixed_bfloat16", "mixed_float16", "bfloat16", "float16")


@st.composite
def cases(draw, heads=(*EXACT, *SAMPLED), samplers=None, scores=tuple(SCORES), plain=False):
    n, batch, num_sampled = draw(st.sampled_from(SHAPES))
    row_size, bias_size = SIZES[draw(st.sampled_from(list(SIZES)))]
    return Case(
        head=draw(st.sampled_from(heads)),
        sampler=draw(SAMPLER if samplers is None else st.sampled_from(samplers)),
        scores=draw(st.sampled_from(scores)),
        dtype="float32" if plain else draw(st.sampled_from(DTYPES)),
        rows=None if plain else draw(st.sampled_from([None, *ROWS])),
        units=n,
        num_sampled=num_sampled,
        counts=draw(st.lists(COUNTS, min_size=n, max_size=n).filter(any)),
        hidden=vectors(draw, row_size, batch, D),
        labels=np.array(draw(st.lists(st.integers(0, n - 1), min_size=batch, max_size=batch))),
        kernel=vectors(draw, row_size, n, D),
        bias=vectors(draw, bias_size, n),
        seed=draw(st.integers(0, 5)),
    )


def sampler_of(case):
    """The sampler of a case; assumes that there can be one."""
    name, config = case.sampler.split("-")[0], {**SAMPLERS[case.sampler], "seed": case.seed}
    if name == "adversarial":
        points = np.random.default_rng(0).normal(size=(3 * case.units, D))
        tree = make_sampler(name, **config)
        return tree.fit(points, np.arange(len(points)) % case.units, case.units, verbose=0)
    if name in ("unigram", "in_batch", "codebook", "top_and_tail"):
        config["counts"] = case.counts
    assume(name not in ("codebook", "top_and_tail") or case.scores != "absolute")
    if case.sampler in OF_KERNEL:
        config |= {"prior": case.counts, "prior_power": 0.75, "block_size": 2}
    if config.get("unique") or name == "top_and_tail":
        assume(case.num_sampled <= np.count_nonzero(case.counts))
    assume(name != "mixed" or case.num_sampled > 1)
    return make_sampler(name, **config)


_MADE = itertools.count(1)


def forget_compiled():
    """Now and then: what JAX has compiled holds memory maps, of which a process has 65,530."""
    if BACKEND == "jax" and next(_MADE) % 200 == 0:
        import jax

        jax.clear_caches()


def small_counts(case):
    """Whether a class is 1,000 times as rare as another."""
    positive = [count for count in case.counts if count > 0]
    return "bfloat16" not in case.dtype and min(positive) < max(positive) * 1e-3


def head_of(case):
    """The head of a case, its table as the case says."""
    forget_compiled()
    options = {**SCORES[case.scores], "dtype": case.dtype}
    if case.head in ("hierarchical", "adaptive") and case.scores != "no bias":
        options = {"dtype": case.dtype}
    if case.rows and not case.head.startswith(("full", "adaptive")):
        options["row_optimizer"] = ROWS[case.rows](1e-2)
    if case.head in EXACT:
        assume(case.head != "adaptive" or case.units == 7)
        head = EXACT[case.head](case.units, **options)
    else:
        # Its weights, 1 / E[count], are larger than float16's largest number where counts say so.
        assume(not (case.head == "each" and case.dtype.endswith("float16") and small_counts(case)))
        name = case.sampler.split("-")[0]
        shared = case.sampler.endswith("shared") or name in ("in_batch", "top_and_tail")
        assume(not (case.head.startswith("negative") and shared and case.sampler not in STATIC))
        head = SAMPLED[case.head](case.units, sampler_of(case), case.num_sampled, **options)
    head.build((None, D))
    for table in tables(head):
        rows = np.resize(case.kernel, table.kernel.shape)
        table.kernel.assign(rows)
        if table.bias is not None:
            table.bias.assign(np.resize(case.bias, table.bias.shape))
        if case.head in SAMPLED:
            head.sampler.refresh(table)
    return head

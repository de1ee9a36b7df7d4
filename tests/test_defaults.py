"""The arguments of the public classes, their order and defaults, as the design states them."""

import inspect

import pytest

import softbench
from softbench import (
    AdaptiveSoftmax,
    BucketedSoftmax,
    ClassTable,
    FullSoftmax,
    HierarchicalSoftmax,
    heads,
)
from softbench.samplers import REGISTRY

TABLE = {"table": None, "use_bias": True, "normalize": False, "temperature": 1.0}
DRAWN = {"num_sampled": 100, "remove_accidental_hits": True, "seed": None}
CLIPPING = {"clipnorm": None, "clipvalue": None, "global_clipnorm": None}
KERNEL = {"prior": None, "prior_power": 1.0, "within_block": "features", "block_size": None}
KERNEL |= {"floor": None, "refresh_every": 10, "seed": None, "share_draws": False}
RANDOM = KERNEL | {"num_features": 1024, "nu": None, "redraw": False}
STATIC = {"share_draws": None, "unique": False, "seed": None}
DEFAULTS = {
    "ClassTable": {"dim": None, "use_bias": True, "normalize": False, "temperature": 1.0}
    | {"absolute": False, "row_optimizer": None, "kernel_initializer": "glorot_uniform"}
    | {"bias_initializer": "zeros", "table_dtype": None, "seed": None},
    "FullSoftmax": TABLE
    | {"class_chunk": None, "regularization": 0.0, "label_smoothing": 0.0}
    | {"ignore_index": None, "multi_label": None, "max_valid": None},
    "SampledSoftmax": TABLE
    | DRAWN
    | {"sampler": None, "objective": "softmax"}
    | {"correct_true_logit": False, "label_smoothing": 0.0},
    "NoiseContrastive": DRAWN
    | {"sampler": "unigram", "objective": "binary", "remove_accidental_hits": False}
    | {"learn_log_partition": False, "regularization": 0.0, "regularization_samples": None},
    "NegativeSampling": DRAWN
    | {"sampler": "adversarial", "num_sampled": 1, "remove_accidental_hits": False}
    | {"regularization": 0.0, "objective": "mean", "t": 0.75},
    "BucketedSoftmax": {"num_buckets": 64, "bucket_examples": 64, "bucket_classes": 256},
    "OneVsEach": DRAWN | {"sampler": "uniform"},
    "AugmentReduce": DRAWN | {"sampler": "uniform", "step_power": 0.9},
    "SampledHinge": DRAWN | {"sampler": "uniform", "margin": 1.0},
    "HierarchicalSoftmax": {"leaf_order": None, "use_bias": True, "row_optimizer": None},
    "AdaptiveSoftmax": {"div_value": 4.0, "counts": None, "tail_capacity": None, "use_bias": True},
    "RowSGD": CLIPPING | {"learning_rate": 0.01},
    "RowAdagrad": CLIPPING
    | {"learning_rate": 0.001, "initial_accumulator_value": 0.1, "epsilon": 1e-7},
    "RowAdam": CLIPPING | {"learning_rate": 0.001, "beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-7},
    "uniform": STATIC,
    "log_uniform": STATIC,
    "unigram": STATIC | {"power": 1.0},
    "exp": {"share_draws": False, "seed": None},
    "in_batch": {"counts": None, "smoothing": 1.0, "memory": 0},
    "mixed": {"weight": 0.5, "num_sampled": None},
    "quadratic": KERNEL | {"alpha": 100.0},
    "rff": RANDOM,
    "sorf": RANDOM,
    "maclaurin": RANDOM,
    "positive": RANDOM | {"orthogonal": True},
    "codebook": {"num_codewords": 128, "quantizer": "residual", "within_cell": "weights"}
    | {"window": 32, "counts": None, "prior": None, "prior_power": 1.0}
    | {"refresh_every": 20, "share_draws": False, "seed": None},
    "top_and_tail": {"num_top": 256, "num_candidates": None, "share_draws": 16}
    | {"top": "codebook", "counts": None, "tail": None, "seed": None},
    "adversarial": {"num_components": 16, "regularization": 0.1, "max_alternations": 30}
    | {"max_points_per_node": None, "share_draws": False},
}


def defaults(cls):
    """Those of a class and, where it passes them on, of the classes above it."""
    found = {}
    for own in reversed(cls.__mro__):
        if own.__module__.startswith("softbench.") and "__init__" in vars(own):
            parameters = inspect.signature(own.__init__).parameters.values()
            found |= {p.name: p.default for p in parameters if p.default is not p.empty}
    return found


@pytest.mark.parametrize("name", DEFAULTS)
def test_defaults(name):
    cls = REGISTRY[name] if name in REGISTRY else getattr(softbench, name)
    found = defaults(cls)
    assert {key: found[key] for key in DEFAULTS[name]} == DEFAULTS[name]


# Their order.

OF_TABLE = ["table", "use_bias", "normalize", "temperature", "row_optimizer"]
OF_ALL = ["remove_accidental_hits", "ignore_index", "multi_label", "max_valid", "seed"]
OF_OBJECTIVE = {
    "SampledSoftmax": ["objective", "correct_true_logit", "label_smoothing"],
    "NoiseContrastive": [
        "objective",
        "learn_log_partition",
        "regularization",
        "regularization_samples",
    ],
    "NegativeSampling": ["objective", "t", "regularization"],
    "OneVsEach": [],
    "AugmentReduce": ["num_examples", "step_power"],
    "SampledHinge": ["margin"],
}


def sampled_heads():
    """The names of the public heads that draw from a sampler."""
    classes = {name: getattr(heads, name) for name in heads.__all__ if name != "SampledHead"}
    return [name for name, cls in classes.items() if issubclass(cls, heads.SampledHead)]


@pytest.mark.parametrize("name", sampled_heads())
def test_arguments_of_the_sampled_heads_are_in_one_order(name):
    cls = getattr(softbench, name)
    parameters = dict(inspect.signature(cls.__init__).parameters)
    del parameters["self"]
    names = [*OF_TABLE, *OF_OBJECTIVE.get(name, vars(cls).get("arguments", ())), *OF_ALL]
    assert list(parameters) == ["units", "sampler", "num_sampled", *names, "kwargs"]
    kinds = [parameter.kind for parameter in parameters.values()]
    single = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    assert kinds == [single[0]] * 3 + [single[1]] * len(names) + [inspect.Parameter.VAR_KEYWORD]


@pytest.mark.parametrize(
    ("cls", "positional"),
    [
        (FullSoftmax, ["units"]),
        (BucketedSoftmax, ["units"]),
        (HierarchicalSoftmax, ["units", "leaf_order"]),
        (AdaptiveSoftmax, ["units", "cutoffs"]),
        (ClassTable, ["units", "dim"]),
    ],
)
def test_all_else_is_given_by_name(cls, positional):
    parameters = inspect.signature(cls).parameters.values()
    assert [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD] == positional

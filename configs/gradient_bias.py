"""Rawat et al. (2019), Theorems 1 and 2 on one trained Penn Treebank head, n = 10,000.

    softbench --config=configs/gradient_bias.py --backend=jax --data_dir=<folder that holds ptb/>

A small LSTM with normalised embeddings (1 / temperature = 11.1, no bias) is trained with the full
softmax for one epoch; then every sampler is asked for its law on 400 validation contexts. The
trained head is kept under the results folder (`partial/`), so another run with other samplers takes
a few minutes.
"""

from softbench.bench.config import experiment
from softbench.bench.methods import SMALL_LANGUAGE

TEMPERATURE = 0.09
FEATURES = (64, 256, 1024, 4096)
NUS = (1, 2, 4, 8)
FLOORS = {"1e-3": 0.001, "1e-2": 0.01, "3e-1": 0.3, "1": 1.0}


def method(head, **kwargs):
    """A row on the normalised table."""
    table = {"normalize": True, "temperature": TEMPERATURE, "use_bias": False}
    return {"head": head, "kwargs": {**table, **kwargs}}


def sampler(name, **config):
    """A row that asks one sampler."""
    return method("SampledSoftmax", sampler={"class_name": name, "config": config}, num_sampled=100)


def method_table():
    """The head that is trained, then the samplers."""
    unigram = {"class_name": "unigram", "config": {"counts": "train", "power": 0.75}}
    rff = {"class_name": "rff", "config": {"num_features": 1024, "nu": 4.0}}
    table = {
        "full": method("FullSoftmax"),
        "uniform": sampler("uniform"),
        "log_uniform": sampler("log_uniform"),
        "unigram": sampler("unigram", counts="train", power=1.0),
        "unigram_p75": sampler("unigram", counts="train", power=0.75),
        "exp": sampler("exp"),
        "quadratic": sampler("quadratic"),
    }
    grid = [(features, 4) for features in FEATURES] + [(1024, nu) for nu in NUS if nu != 4]
    for features, nu in grid:
        table[f"rff_D{features}_nu{nu}"] = sampler("rff", num_features=features, nu=float(nu))
    for name, floor in FLOORS.items():
        table[f"rff_D1024_nu4_floor_{name}"] = sampler(
            "rff", num_features=1024, nu=4.0, floor=floor
        )
    for name in ("sorf", "maclaurin", "positive"):
        table[f"{name}_D1024_nu4"] = sampler(name, num_features=1024, nu=4.0)
    prior = {"prior": "train", "prior_power": 0.75, "nu": 4.0}
    table["rff_prior_D1024_nu4"] = sampler("rff", num_features=1024, **prior)
    table["positive_prior_D512_nu4"] = sampler("positive", num_features=512, **prior)
    table["positive_prior1_D512_nu4"] = sampler(
        "positive", num_features=512, **{**prior, "prior_power": 1.0}
    )
    table["positive_prior9_D512_nu4"] = sampler(
        "positive", num_features=512, **{**prior, "prior_power": 0.9}
    )
    table["positive_prior_D512_nu4_exact16"] = sampler(
        "positive", num_features=512, within_block="exact", block_size=16, **prior
    )
    table["mixed_unigram_rff"] = sampler("mixed", first=unigram, second=rff)
    return table


def get_config():
    """Returns the experiment; every value can be overridden on the command line."""
    return experiment(
        "gradient_bias",
        title="Proposals on a trained Penn Treebank head: Rawat et al. 2019, Theorems 1 and 2",
        task="gradient_bias",
        dataset={"name": "ptb"},
        model={"name": "lstm", "preset": "small"},
        optimizer={"name": "adam", "learning_rate": 2e-3},
        method_table=method_table(),
        epochs=1,
        # `repetitions`: m -> sets of m draws for each context of Theorem 1.
        options={"contexts": 8, "repetitions": {"10": 1_000, "100": 500, "1000": 250}},
        cell_timeout_s=3 * 3600.0,
        presets={
            "smoke": {
                "dataset": SMALL_LANGUAGE,
                "model": {"name": "lstm", "preset": "small", "units": 16},
                "methods": "full,unigram,exp,rff_D64_nu4,positive_prior_D512_nu4,mixed_unigram_rff",
                "options": {"contexts": 2, "repetitions": {"10": 100}},
            },
            "paper": {"epochs": 10},
        },
    )

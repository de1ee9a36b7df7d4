"""Rawat et al. (2019), Theorems 1 and 2 on one trained Penn Treebank head, n = 10,000.

    softbench --config=configs/gradient_bias.py --backend=jax --data_dir=<folder that holds ptb/>

A small LSTM with normalised embeddings (1 / temperature = 11.1, no bias) is trained with the full
softmax for one epoch; then every sampler is asked for its distribution on 400 validation contexts.
The trained head is kept under the results folder (`partial/`), so another run with other samplers
takes a few minutes.
"""

from softbench.bench.config import experiment
from softbench.bench.methods import (
    FLAT_COUNTS,
    FLAT_PRIOR,
    NORMALISED,
    SMALL_LANGUAGE,
    full,
    sampled,
    sampler,
)

FEATURES = (64, 256, 1024, 4096)
NUS = (1, 2, 4, 8)
FLOORS = {"1e-3": 0.001, "1e-2": 0.01, "3e-1": 0.3, "1": 1.0}


def asked(name, **config):
    """A row that asks one sampler on the normalised table."""
    return sampled(name, 100, NORMALISED, **config)


def method_table():
    """The head that is trained, then the samplers."""
    table = {
        "full": full(**NORMALISED),
        "uniform": asked("uniform"),
        "log_uniform": asked("log_uniform"),
        "unigram": asked("unigram", counts="train", power=1.0),
        "unigram_p75": asked("unigram", **FLAT_COUNTS),
        "exp": asked("exp"),
        "quadratic": asked("quadratic"),
    }
    grid = [(features, 4) for features in FEATURES] + [(1024, nu) for nu in NUS if nu != 4]
    for features, nu in grid:
        table[f"rff_D{features}_nu{nu}"] = asked("rff", num_features=features, nu=float(nu))
    rff = {"num_features": 1024, "nu": 4.0}
    for name, floor in FLOORS.items():
        table[f"rff_D1024_nu4_floor_{name}"] = asked("rff", **rff, floor=floor)
    for name in ("sorf", "maclaurin", "positive"):
        table[f"{name}_D1024_nu4"] = asked(name, **rff)
    table["rff_prior_D1024_nu4"] = asked("rff", **rff, **FLAT_PRIOR)
    positive = {"num_features": 512, "nu": 4.0, "prior": "train"}
    for name, power in {"prior": 0.75, "prior1": 1.0, "prior9": 0.9}.items():
        table[f"positive_{name}_D512_nu4"] = asked("positive", **positive, prior_power=power)
    exact = {"within_block": "exact", "block_size": 16, "prior_power": 0.75}
    table["positive_prior_D512_nu4_exact16"] = asked("positive", **positive, **exact)
    first, second = sampler("unigram", **FLAT_COUNTS), sampler("rff", **rff)
    table["mixed_unigram_rff"] = asked("mixed", first=first, second=second)
    return table | codebooks()


def codebooks():
    """Codebooks, and as `midx` those of arXiv 2501.08563: the k-means weighs all classes alike."""
    own = {"counts": "train"}
    table = {
        f"codebook_K{size}": asked("codebook", num_codewords=size, **own) for size in (128, 256)
    }
    table["codebook_K128_product"] = asked("codebook", quantizer="product", **own)
    table["codebook_K128_exact"] = asked("codebook", within_cell="exact", **own)
    table["codebook_K128_prior"] = asked("codebook", **own, **FLAT_PRIOR)
    popularity = {"prior": "train", "prior_power": 1.0}
    table["midx_uniform"] = asked("codebook", counts="equal")
    table["midx_popularity"] = asked("codebook", counts="equal", **popularity)
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

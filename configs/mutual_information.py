"""Stratos, sections 1.1 and 2.1: the InfoNCE bound against N where I(X, Y) is known.

    softbench --config=configs/mutual_information.py --backend=jax \\
        --config.seeds="(0,1,2,3,4,5,6,7)"

Two distributions of (x, y): a table of 16 x 16 probabilities (I by summation), and 4 pairs of
correlated normal variables (I = 2 nats in closed form). The critic is the optimum in closed form,
or trained by L-BFGS on global (`ranking`) or local NCE (`binary`) with 6,000 samples of their own;
every number is measured on 30,000 new samples by the library's objectives. About three minutes a
seed.

The bound log N - loss never exceeds min(I, log N) by more than its standard error allows, and is
within 10 % of I at N = 512.
"""

import math

from softbench.bench.config import experiment

# I = -d/2 log(1 - rho^2) = 2 nats with d = 4.
CORRELATION = math.sqrt(1 - math.exp(-1))
DISTRIBUTIONS = {
    "table": {"num_inputs": 16, "num_classes": 16, "sharpness": 3.0, "uniform": 0.05},
    "gaussian": {"dim": 4, "correlation": CORRELATION},
}


def get_config():
    """Returns the experiment; every value can be overridden on the command line."""
    return experiment(
        "mutual_information",
        title="Mutual information: the InfoNCE bound and local NCE (Stratos)",
        task="mutual_information",
        model={"name": "critic"},
        problems={
            name: {"dataset": {"name": name, **fields}} for name, fields in DISTRIBUTIONS.items()
        },
        method_table={
            "optimal": {"critic": "optimal"},
            "ranking": {"critic": "trained", "objective": "ranking"},
            "binary": {"critic": "trained", "objective": "binary"},
        },
        options={
            "candidates": (2, 4, 8, 16, 32, 64, 128, 256, 512),
            "samples": 30_000,
            "train_samples": 6_000,
        },
        presets={
            "smoke": {
                "options": {"candidates": (2, 8), "samples": 2_000, "train_samples": 1_000},
            },
            "paper": {},
        },
    )

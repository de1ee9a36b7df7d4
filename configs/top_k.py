"""The 10 best of a million classes: how many of them an index finds, and how fast.

    softbench --config=configs/top_k.py
    softbench --config=configs/top_k.py --backend=jax

Classes around the centres of a generated clustered set, frequencies by a power of the rank; a
dense encoder and a `SampledSoftmax` head with 1,000 shared draws and row updates are trained on
examples of it, d = 64. Then, for batches of 32 examples that were not trained on: `head.top_k`,
exact and with an index, M classes of whose best cells are scored exactly. `product` is the
plain one: all (32, n) scores, then their top k.

Recall is the share of the exact 10 best classes that are found. All methods take turns in one
process; `index` is the time of making the index. In `grouped` the clusters are in groups; in
`clustered` the 20,000 centres have nothing in common in 64 dimensions, so that many of the best
classes are chance neighbours of the query, which no cell tells.

Measured on two cores that other programs shared: `grouped`, M = 1,024, recall 0.9945 at 0.086 of
the time of the streamed `top_k` and 0.115 of that of `product`; `clustered` 0.30 (M = 1,024).
"""

from softbench.bench.config import experiment
from softbench.bench.methods import HUGE_PAGES, adagrad

FLAT = {"class_spread": 0.6, "example_spread": 0.5}
GROUPS = {"num_groups": 100, "cluster_spread": 0.7, "class_spread": 0.4, "example_spread": 0.4}


def problem(units, clusters, train_steps, data=FLAT, **model):
    """n classes in clusters, these in groups or not."""
    return {
        "dataset": {
            "name": "clustered",
            "label": f"{'clustered' if data is FLAT else 'grouped'}{units}",
            "num_classes": units,
            "num_clusters": clusters,
            "frequency_power": 0.5,
            **data,
        },
        "model": {
            "name": "dense",
            "dim": 64,
            "batch_size": 32,
            "k": 10,
            "train_batch_size": 4096,
            "train_steps": train_steps,
            "num_sampled": 1000,
            "row_optimizer": adagrad(0.3, accumulator=1e-8),
            **model,
        },
    }


def index(num_cells, num_candidates):
    """A row with an index; None: a cell for every 32 classes."""
    return {"num_cells": num_cells, "num_candidates": num_candidates}


def get_config():
    """Returns the experiment; every value can be overridden on the command line."""
    return experiment(
        "top_k",
        title="The best of a million classes, approximately",
        task="top_k",
        problems={
            "clustered": problem(1_000_000, 20_000, 800),
            "grouped": problem(1_000_000, 5_000, 800, GROUPS),
        },
        method_table={
            "exact": {},
            "product": {"product": True},
            "index_m256": index(None, 256),
            "index_m512": index(None, 512),
            "index_m1024": index(None, 1024),
            "index_m2048": index(None, 2048),
            "index_m4096": index(None, 4096),
            "fewer_cells_m2048": index(8_192, 2048),
        },
        timing={"rounds": 6, "block": 3, "max_seconds": 10.0},
        # Huge pages: a table of 256 MB is read at random rows.
        environment=HUGE_PAGES,
        presets={
            "smoke": {
                "problems": {"n2000": problem(2_000, 40, 5, dim=8, train_batch_size=64)},
                "methods": "exact,index_m256",
                "timing": {"rounds": 1, "block": 2, "max_seconds": 1.0},
            },
            "paper": {},
        },
    )

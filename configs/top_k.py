"""The 10 best of a million classes: how many of them an index finds, and how fast.

    softbench --config=configs/top_k.py --backend=jax
    softbench --config=configs/top_k.py:words --backend=jax --data_dir=<folder with eltec-hun/>

For batches of 32 queries that were not trained on: `head.top_k`, exact and with an index, M classes
of whose best cells are scored exactly. `product` is the plain one: all (32, n) scores, then their
top k. Recall is the share of the exact 10 best classes that are found. All methods take turns in
one process; `index` is the time of making the index.

`labels`: extreme classification, 1,000,000 labels in a hierarchy, generated rows; bags of features,
d = 64, trained as the harness trains (shared unigram draws, row updates). `words`: an LSTM of 200
units over the 197,030 words of `eltec-hun`, trained likewise.
"""

from softbench.bench.config import experiment
from softbench.bench.methods import (
    HUGE_PAGES,
    LOG_FREQUENCIES,
    SMALL_LABELS,
    adagrad,
    sampled,
    with_row_updates,
)
from softbench.commands import ConfigError


def trained(dataset, encoder, num_sampled, **fields):
    """A head that is trained as the harness trains, on a data set of softbench."""
    rows = adagrad(0.1, accumulator=1e-8)
    draws = {"counts": "train + 1", "power": 0.75, "share_draws": True, "unique": True}
    biases = {"bias_initializer": LOG_FREQUENCIES}
    head = with_row_updates(sampled("unigram", num_sampled, biases, **draws), rows)
    own = {"row_optimizer": rows, "k": 10, "queries": 32, "head": head}
    return {"dataset": dataset, "model": {**encoder, **own}, **fields}


BAG = {"name": "bag", "dim": 64, "batch_size": 2048, "max_features": 64}
ADAM = {"name": "adam", "learning_rate": 5e-3}
LABELS = trained(
    {
        "name": "synthetic_xmc",
        "label": "labels1000000",
        "num_classes": 1_000_000,
        "num_features": 200_000,
        "num_train": 1_000_000,
        "num_valid": 1_000,
        "num_test": 1_000,
    },
    BAG,
    2000,
    optimizer=ADAM,
    epochs=2,
)
WORDS = trained(
    {"name": "eltec-hun", "valid_fraction": 0.0015, "test_fraction": 0.003, "split_lines": 50},
    {"name": "lstm", "preset": "small", "batch_size": 40},
    1000,
    optimizer={"name": "adam", "learning_rate": 2e-3, "global_clipnorm": 5.0},
    steps_per_epoch=2000,
)


def index(num_cells, num_candidates):
    """A row with an index; None: a cell for every 32 classes."""
    return {"num_cells": num_cells, "num_candidates": num_candidates}


def get_config(part="labels"):
    """Returns the experiment on one of the problems; every value can be overridden."""
    known = {"labels": LABELS, "words": WORDS}
    if part not in known:
        raise ConfigError(f"After the colon: {', '.join(known)}. Received: {part!r}")
    return experiment(
        "top_k",
        title="The best of a million classes, approximately",
        task="top_k",
        problems={part: known[part]},
        method_table={
            "exact": {},
            "product": {"product": True},
            "index_m256": index(None, 256),
            "index_m512": index(None, 512),
            "index_m1024": index(None, 1024),
            "index_m2048": index(None, 2048),
            "index_m4096": index(None, 4096),
            "fewer_cells_m2048": index(8_192, 2048),
            "more_cells_m512": index(62_500, 512),
            "more_cells_m1024": index(62_500, 1024),
        },
        timing={"rounds": 6, "block": 3, "max_seconds": 10.0},
        # Huge pages: a table of 256 MB is read at random rows.
        environment=HUGE_PAGES,
        presets={
            "smoke": {
                "problems": {
                    "labels": trained(
                        SMALL_LABELS,
                        {**BAG, "dim": 8, "batch_size": 64},
                        50,
                        optimizer=ADAM,
                        steps_per_epoch=2,
                    ),
                },
                "methods": "exact,index_m256",
                "timing": {"rounds": 1, "block": 2, "max_seconds": 1.0},
            },
            "paper": {},
        },
    )

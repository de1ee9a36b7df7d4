"""Rows and labels of your own that do not fit in memory, streamed from Parquet files.

    softbench --config=own_xmc --config.dataset.path='folder/*.parquet' --backend=jax

A pattern as the path makes it `softbench --config=xmc_shards` with that path. The files have
columns of lists: of features' ids, of their values and of labels, ids from 0 on
(`--config.dataset.columns=features,values,labels`). Every row has a label; one of them is drawn at
each visit. In the order of the files' names the last row groups are the test set, those before them
are for validation, and `held_out_rows` rows of each are asked: mix the rows first. Row groups of
some 2^16 rows mix best. Longer rows keep their largest weights.

Features and labels are tables of 64 numbers a row that take row updates;
`--config.steps_per_epoch=10000` gives a point of the curve after so many steps.
"""

from softbench.bench.config import experiment
from softbench.bench.methods import (
    FLAT_COUNTS,
    NORMALISED,
    SMALL_LABELS,
    SMALL_TIMING,
    adagrad,
    sampled,
    with_row_updates,
)

ROWS = adagrad(0.1, accumulator=1e-8)
M = 1024


def get_config():
    """Returns the experiment; every value can be overridden on the command line."""
    model = {"name": "bag", "dim": 64, "normalize": True, "row_optimizer": ROWS, "batch_size": 1024}
    model |= {"max_features": 128, "prefetch": 2}
    methods = {
        "uniform": sampled("uniform", M, NORMALISED, share_draws=True),
        "unigram": sampled("unigram", M, NORMALISED, unique=True, share_draws=True, **FLAT_COUNTS),
        "in_batch": sampled("in_batch", M, NORMALISED, counts="train"),
    }
    return experiment(
        "xmc_shards",
        title="Streamed rows and labels of your own",
        dataset={
            "name": "xmc_shards",
            "path": "",
            "features": "",
            "columns": "features,values,labels",
            "valid_fraction": 0.01,
            "test_fraction": 0.01,
            "held_out_rows": 10_000,
        },
        model=model,
        optimizer={"name": "adam", "learning_rate": 1e-3},
        method_table={name: with_row_updates(row, ROWS) for name, row in methods.items()},
        epochs=1,
        timing={"warmup_steps": 5, "head_repetitions": 10},
        columns=(
            "test_precision_at_1",
            "test_precision_at_3",
            "test_precision_at_5",
            "test_perplexity",
            "step_ms",
            "examples/s",
            "memory_mb",
        ),
        presets={
            "smoke": {
                "dataset": SMALL_LABELS,
                "model": {**model, "dim": 16, "batch_size": 64},
                "methods": "uniform,in_batch",
                "timing": SMALL_TIMING,
            },
            "paper": {},
        },
    )

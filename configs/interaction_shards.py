"""Interactions of your own that do not fit in memory, streamed from Parquet files.

    softbench --config=interactions --config.dataset.path='folder/*.parquet' --backend=jax

A pattern as the path makes it `softbench --config=interaction_shards` with that path.
The files have a column of numbers of users and one of numbers of items, each from 0 on
(`--config.dataset.columns=user,item`); rows are taken as they are. In the order of the files' names
the last row groups are the test set, those before them are for validation: files by time make it a
split by time. At most `held_out_users` users are asked, and all items ranked but those that they
have had. Row groups of some 2^16 rows mix best. There is no `test_novelty_at_k`: it counts the
different users of each item, which is more than a stream keeps; the groups of users are thirds of
those that are asked.

A user is a row of 64 numbers and so is an item; both tables take row updates. Every interaction is
a training example; `--config.steps_per_epoch=10000` gives a point of the curve after so many steps.
"""

from softbench.bench.config import experiment
from softbench.bench.methods import (
    FLAT_COUNTS,
    SMALL_HISTORIES,
    SMALL_TIMING,
    ranking_columns,
    sampled,
    with_row_updates,
)

ROWS = {"name": "adagrad", "learning_rate": 0.1}
COSINE = {"normalize": True, "temperature": 0.1, "use_bias": False}
M = 1024


def get_config():
    """Returns the experiment; every value can be overridden on the command line."""
    model = {"name": "matrix_factorisation", "dim": 64, "row_optimizer": ROWS, "batch_size": 4096}
    methods = {
        "uniform": sampled("uniform", M, COSINE, share_draws=True),
        "popularity": sampled("unigram", M, COSINE, unique=True, share_draws=True, **FLAT_COUNTS),
        "in_batch": sampled("in_batch", M, COSINE, counts="train"),
    }
    return experiment(
        "interaction_shards",
        title="Streamed interactions of your own",
        dataset={
            "name": "interaction_shards",
            "path": "",
            "features": "",
            "columns": "user,item",
            "valid_fraction": 0.01,
            "test_fraction": 0.01,
            "held_out_users": 10_000,
        },
        model=model,
        optimizer={"name": "adam", "learning_rate": 1e-3},
        method_table={name: with_row_updates(row, ROWS) for name, row in methods.items()},
        epochs=1,
        timing={"warmup_steps": 5, "head_repetitions": 10},
        columns=(*ranking_columns(20), "step_ms", "examples/s", "memory_mb"),
        presets={
            "smoke": {
                "dataset": SMALL_HISTORIES,
                "model": {**model, "dim": 16, "batch_size": 64},
                "methods": "uniform,in_batch",
                "timing": SMALL_TIMING,
            },
            "paper": {},
        },
    )

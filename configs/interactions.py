"""Your own interactions: predict the item that a user takes next, from a file to a table.

    softbench --config=interactions --config.dataset.path=interactions.csv
    softbench --config=interactions --config.dataset.path=ratings.csv \\
        --config.dataset.columns=userId,movieId,timestamp

The file has user, item and maybe time in a line, between commas, tabs, semicolons or `::` (a
header with usual names is understood; else `columns` says names or numbers of the fields), or is
Parquet (pandas and pyarrow installed), or has one user a line: `user item item ...`. Without a time
the order of the file counts. Items seen less than `min_count` times and users with less than
`min_length` items are left out. The last item of each user is the test, the one before it is for
validation.

A set of TensorFlow Datasets instead of a file (TensorFlow and `softbench[tfds]` installed):
`--config.dataset.name=tfds:movielens/100k-ratings
--config.dataset.features=user_id,movie_id,timestamp`.

All rows train the same encoder, the mean of the last `max_items` items
(`--config.model.pooling=gru` for a GRU), from the same start for ten epochs. `unigram_rows` and
`in_batch_rows` update the touched rows of the class table alone: for more than some 50,000 items.
Large catalogues: also `--config.model.held_out_rows=10000`, the number of users evaluated.
"""

from softbench.bench.config import experiment
from softbench.bench.methods import NORMALISED_FREQUENCIES, SMALL_TIMING, comparison


def get_config():
    """Returns the experiment; every value can be overridden on the command line."""
    model = {"name": "session", "dim": 64, "pooling": "mean", "max_items": 20}
    model |= {"batch_size": 256, "held_out_rows": 0}
    return experiment(
        "interactions",
        title="Interactions of your own",
        dataset={
            "name": "interactions",
            "path": "",
            "features": "",
            "columns": "",
            "layout": "auto",
            "min_count": 2,
            "min_length": 3,
        },
        model=model,
        optimizer={"name": "adam", "learning_rate": 5e-3, "epsilon": 1e-4},
        methods="full,uniform,unigram,in_batch,nce_ranking,rff",
        method_table=comparison(NORMALISED_FREQUENCIES, "at most 512"),
        epochs=10,
        timing={"warmup_steps": 5, "head_repetitions": 10},
        columns=(
            "valid_perplexity",
            "test_perplexity",
            "test_precision_at_1",
            "test_precision_at_5",
            "test_ndcg_at_5",
            "step_ms",
            "head_ms",
            "examples/s",
        ),
        presets={
            "smoke": {
                "dataset": {"name": "synthetic_sessions", "num_users": 100, "num_items": 60},
                "model": {**model, "dim": 8},
                "methods": "full,unigram",
                "epochs": 1,
                "timing": SMALL_TIMING,
            },
            "paper": {},
        },
    )

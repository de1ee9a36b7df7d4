"""Your own interactions: predict the item that a user takes next, from a file to a table.

    softbench --config=interactions --config.dataset.path=interactions.csv
    softbench --config=interactions --config.dataset.path=ratings.csv \\
        --config.dataset.columns=userId,movieId,timestamp

The file has user, item and maybe time in a line, between commas, tabs, semicolons or `::` (a
header with usual names is understood; else `columns` says names or numbers of the fields), or is
Parquet (pandas and pyarrow installed), or has one user a line: `user item item ...`. Without a time
the order of the file counts. Items seen less than `min_count` times and users with less than
`min_length` items are left out. The last item of each user is the test, the one before it is for
validation; all items are ranked but those that the user has had.

A set of TensorFlow Datasets instead of a file (TensorFlow and `softbench[tfds]` installed):
`--config.dataset.name=tfds:movielens/100k-ratings
--config.dataset.features=user_id,movie_id,timestamp`.

All rows train the same encoder, SASRec of the last `length` items, which reads its items from the
table of the head, for twenty epochs. For more than some 50,000 items, `unigram_rows` and
`in_batch_rows` update the touched rows of the class table alone; they need
`--config.model.tied=False`. Large catalogues: also `--config.model.test_users=10000`, the number
of users asked at the end (0: all), beside `valid_users` after each epoch.
"""

from softbench.bench.config import experiment
from softbench.bench.methods import (
    NORMALISED_FREQUENCIES,
    SASREC,
    SMALL_HISTORIES,
    SMALL_TIMING,
    comparison,
    ranking_columns,
)


def get_config():
    """Returns the experiment; every value can be overridden on the command line."""
    model = {
        **SASREC,
        "dropout": 0.2,
        "tied": True,
        "batch_size": 16,
        "valid_users": 1024,
        "test_users": 0,
    }
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
        optimizer={"name": "adam", "learning_rate": 3e-3},
        methods="full,uniform,unigram,in_batch,nce_ranking,rff",
        method_table=comparison(NORMALISED_FREQUENCIES, "at most 512"),
        epochs=20,
        timing={"warmup_steps": 2, "head_repetitions": 10},  # a small file has few steps an epoch
        columns=(*ranking_columns(10), "test_perplexity", "step_ms", "head_ms", "examples/s"),
        presets={
            "smoke": {
                "dataset": SMALL_HISTORIES,
                "model": {**model, "dim": 8, "length": 16},
                "methods": "full,unigram",
                "epochs": 1,
                "timing": SMALL_TIMING,
            },
            "paper": {},
        },
    )

"""Your own interactions: predict the item that a user takes next, from a file to a table.

    softbench --config=interactions --config.dataset.path=interactions.csv
    softbench --config=interactions --config.dataset.path=ratings.csv \\
        --config.dataset.columns=userId,movieId,timestamp

The file is CSV with any separator, JSON lines or Parquet (`softbench[data]` installed) with user,
item and maybe time in a row, or has a user a line: `user item item ...`. Columns with usual names
are recognised; else `columns` says their names or numbers (from 0). Without a time the order of the
file counts. The run begins with four lines: what the file holds, what was dropped, how the columns
were understood, the split.

Rows that repeat user, item and time are dropped. A row without a user, an item or its time is an
error, or dropped with `--config.dataset.missing=drop`. Dates in which day and month could be taken
for each other need `--config.dataset.date_format=%d/%m/%Y`. Items seen less than `min_count` times
and users with less than `min_length` items are left out. The last item of each user is the test,
the one before it is for validation; with `--config.dataset.split=time` the last `test_fraction` of
all rows are the test and the `valid_fraction` before these are for validation. All items are ranked
but those that the user has had.

A set of TensorFlow Datasets instead of a file (TensorFlow and `softbench[tfds]` installed):
`--config.dataset.name=tfds:movielens/100k-ratings
--config.dataset.features=user_id,movie_id,timestamp`.

All rows train the same encoder, SASRec of the last `length` items, which reads its items from the
table of the head, for ten epochs: `codebook`, `unigram` without replacement, `mixed` and `full`.
Others: `--config.methods=uniform,in_batch,nce_ranking,gbce,rff`, and three losses that rank on the
draws of `codebook`: `bsl,psl,sl_at_k`, whose perplexity says nothing. `softbench-advise` says which
are recommended. For more than some 50,000 items, `unigram_rows` and `in_batch_rows` update the
touched rows of the class table alone; they need `--config.model.tied=False`. Large catalogues: also
`--config.model.test_users=10000`, the number of users asked at the end (0: all), beside
`valid_users` after each epoch.
"""

from softbench.bench.config import experiment
from softbench.bench.methods import (
    FIRST_RUN,
    HUGE_PAGES,
    NORMALISED_FREQUENCIES,
    SASREC,
    SMALL_HISTORIES,
    SMALL_TIMING,
    comparison,
    gbce,
    ranked,
    ranking_columns,
    with_rows,
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
    table = with_rows(comparison(NORMALISED_FREQUENCIES))
    table["gbce"] = gbce(NORMALISED_FREQUENCIES)
    table |= {name: ranked(name, table["codebook"]) for name in ("bsl", "psl", "sl_at_k")}
    return experiment(
        "interactions",
        title="Interactions of your own",
        dataset={
            "name": "interactions",
            "path": "",
            "features": "",
            "columns": "",
            "date_format": "",
            "missing": "error",
            "layout": "auto",
            "min_count": 2,
            "min_length": 3,
            "split": "last",
            "valid_fraction": 0.1,
            "test_fraction": 0.1,
        },
        model=model,
        optimizer={"name": "adam", "learning_rate": 3e-3},
        methods="codebook,unigram,mixed,full",
        method_table=table,
        epochs=10,
        timing=FIRST_RUN,
        environment=HUGE_PAGES,
        columns=(
            *ranking_columns(10),
            "test_map_at_10",
            "test_novelty_at_10",
            "test_perplexity",
            "step_ms",
            "examples/s",
        ),
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

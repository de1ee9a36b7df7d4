"""Your own knowledge graph: predict the tail of a triple from its head and relation.

    softbench --config=triples --config.dataset.path=my_triples.csv

The file is CSV with any separator, JSON lines or Parquet (`softbench[data]` installed) with head,
relation and tail in a row; other columns than these need `--config.dataset.columns`, their names or
numbers. Or the path is a folder with train.txt and test.txt (and valid.txt). Of one file 5 % each
are held out for validation and test. A row without one of the three is an error, or dropped with
`--config.dataset.missing=drop`.

All rows train the same encoder, a small network on the embeddings of head and relation, from the
same start for five epochs: `rff`, `codebook`, `nce_binary` and `full`. Others:
`--config.methods=uniform,unigram,in_batch,mixed,nce_ranking`.
`unigram_rows` and `in_batch_rows` update the touched rows of the class table alone: for more than
some 50,000 entities. `--config.model.held_out_rows=10000` evaluates on so many triples.
"""

from softbench.bench.config import experiment
from softbench.bench.methods import (
    FIRST_RUN,
    HUGE_PAGES,
    NORMALISED_FREQUENCIES,
    SMALL_TIMING,
    SMALL_TRIPLES,
    comparison,
    with_rows,
)


def get_config():
    """Returns the experiment; every value can be overridden on the command line."""
    model = {"name": "pair", "dim": 64, "hidden_units": 128, "batch_size": 256, "held_out_rows": 0}
    return experiment(
        "triples",
        title="Triples of your own",
        dataset={
            "name": "triples",
            "path": "",
            "columns": "",
            "missing": "error",
            "valid_fraction": 0.05,
            "test_fraction": 0.05,
            "split_seed": 0,
        },
        model=model,
        optimizer={"name": "adam", "learning_rate": 5e-3, "epsilon": 1e-4},
        methods="rff,codebook,nce_binary,full",
        method_table=with_rows(comparison(NORMALISED_FREQUENCIES)),
        epochs=5,
        timing=FIRST_RUN,
        environment=HUGE_PAGES,
        columns=(
            "valid_perplexity",
            "test_perplexity",
            "test_precision_at_1",
            "test_ndcg_at_5",
            "step_ms",
            "examples/s",
        ),
        presets={
            "smoke": {
                "dataset": SMALL_TRIPLES,
                "model": {**model, "dim": 8, "hidden_units": 8},
                "methods": "full,unigram",
                "epochs": 1,
                "timing": SMALL_TIMING,
            },
            "paper": {},
        },
    )

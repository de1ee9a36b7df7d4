"""Your own rows of features with sets of labels: extreme classification, from a file to a table.

    softbench --config=xmc --config.dataset.path=my_rows.txt
    softbench --config=own_xmc --config.dataset.path=folder_with_train_and_test

The file has the XMC repository's format: a line `N D L` (rows, features, labels), then
`l1,l2 f:w f:w ...` in each line; or the path is a folder with train.txt and test.txt (and
valid.txt). Of one file 10 % are held out for validation and 20 % for the test.
`--config.dataset.first_id=1` reads ids that begin at 1, `--config.dataset.allow_negative=True`
negative weights.

A set of TensorFlow Datasets instead of a file (TensorFlow and `softbench[tfds]` installed):
`--config.dataset.name=tfds:mnist --config.dataset.features=image,label`, numbers and a label.

All rows train the same bag of features from the same start for five epochs: `uniform`, `codebook`,
`nce_binary` and `full`. Others: `--config.methods=rff,unigram,in_batch,mixed`;
`softbench-advise` says which are recommended. `unigram_rows` and `in_batch_rows` update the touched
rows of the class table alone: for more than some 50,000 labels. With very many features, the table
of the encoder takes row updates too: a config of your own with `row_optimizer` in `model`, as in
configs/xmc.py.
"""

from softbench.bench.config import experiment
from softbench.bench.methods import (
    FIRST_RUN,
    HUGE_PAGES,
    NORMALISED_FREQUENCIES,
    SMALL_LABELS,
    SMALL_TIMING,
    comparison,
    with_rows,
)


def get_config():
    """Returns the experiment; every value can be overridden on the command line."""
    model = {"name": "bag", "dim": 64, "normalize": True, "batch_size": 128, "max_features": 0}
    return experiment(
        "own_xmc",
        title="Rows and labels of your own",
        dataset={
            "name": "xmc",
            "path": "",
            "features": "",
            "valid_fraction": 0.1,
            "test_fraction": 0.2,
            "split_seed": 0,
            "first_id": 0,
            "allow_negative": False,
            "first_label": False,
        },
        model=model,
        optimizer={"name": "adam", "learning_rate": 1e-2, "epsilon": 1e-4},
        methods="uniform,codebook,nce_binary,full",
        method_table=with_rows(comparison(NORMALISED_FREQUENCIES)),
        epochs=5,
        timing=FIRST_RUN,
        environment=HUGE_PAGES,
        columns=(
            "test_precision_at_1",
            "test_precision_at_3",
            "test_precision_at_5",
            "test_perplexity",
            "step_ms",
            "examples/s",
        ),
        presets={
            "smoke": {
                "dataset": SMALL_LABELS,
                "model": {**model, "dim": 8},
                "methods": "full,unigram",
                "epochs": 1,
                "timing": SMALL_TIMING,
            },
            "paper": {},
        },
    )

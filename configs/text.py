"""Your own text: next-word prediction by every kind of method, from a file to a table.

    softbench --config=text --config.dataset.path=my.txt
    softbench --config=text --config.dataset.path=my.txt --config.max_train_seconds=120

The path is a text file (UTF-8, maybe compressed), a folder of text files, or a folder with
train.txt and test.txt (and valid.txt). Without these, whole blocks of lines are held out for
validation and test, 5 % each. Words seen twice or more are the vocabulary, `vocabulary_size` of
them at most; the others are `<unk>`. 800 lines are enough to see it run.

A set of TensorFlow Datasets instead of a file (TensorFlow and `softbench[tfds]` installed):
`--config.dataset.name=tfds:ag_news_subset --config.dataset.features=description`.

All rows train the same LSTM from the same start for three epochs, or, with `max_train_seconds`, for
that many seconds each: `unigram` without replacement, `in_batch`, `nce_binary` and `full`. Others:
`--config.methods=uniform,codebook,mixed,nce_ranking,rff` (`softbench-advise` says which are
recommended), and for more than some 50,000 words `unigram_rows,in_batch_rows`, which update the
touched rows of the class table alone. Settings that matter first: `--config.dataset.min_count`,
`--config.dataset.tokenizer=whitespace` (all that stands between spaces is a word),
`--config.dataset.end_of_line=True` (lines are sentences), `--config.model.units`,
`--config.epochs`.
"""

from softbench.bench.config import experiment
from softbench.bench.methods import (
    FIRST_RUN,
    HUGE_PAGES,
    NORMALISED_FREQUENCIES,
    SMALL_LANGUAGE,
    SMALL_TIMING,
    comparison,
    with_rows,
)

COLUMNS = ("valid_perplexity", "test_precision_at_1", "test_perplexity", "step_ms", "tokens/s")


def get_config():
    """Returns the experiment; every value can be overridden on the command line."""
    model = {"name": "lstm", "units": 128, "num_layers": 1, "batch_size": 20, "num_steps": 20}
    return experiment(
        "text",
        title="A text of your own",
        dataset={
            "name": "text",
            "path": "",
            "features": "",
            "min_count": 2,
            "vocabulary_size": 50_000,
            "vocabulary_from": "train",
            "tokenizer": "words",
            "lowercase": True,
            "end_of_line": False,
            "valid_fraction": 0.05,
            "test_fraction": 0.05,
            "split_lines": 0,
            "split_seed": 0,
        },
        model={**model, "keep_prob": 0.8},
        optimizer={
            "name": "adam",
            "learning_rate": 5e-3,
            "epsilon": 1e-4,
            "global_clipnorm": 1.0,
        },
        methods="unigram,in_batch,nce_binary,full",
        method_table=with_rows(comparison(NORMALISED_FREQUENCIES)),
        epochs=3,
        timing=FIRST_RUN,
        environment=HUGE_PAGES,
        columns=COLUMNS,
        presets={
            "smoke": {
                "dataset": SMALL_LANGUAGE,
                "model": {**model, "units": 8},
                "methods": "full,unigram",
                "epochs": 1,
                "timing": SMALL_TIMING,
            },
            "paper": {},
        },
    )

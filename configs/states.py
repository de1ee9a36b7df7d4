"""Hidden states of a frozen encoder as a data set: dense features and the word that follows.

    softbench --config=configs/states.py --backend=jax --data_dir=<root with eltec-hun/>

Trains the LSTM of 200 units of `large_vocabulary` for 300 s, with draws from the batch and from the
unigram, and freezes it. Then it writes `<root>/states/eltec-hun`, some 0.8 GB: the states before a
million training words taken at random, and before 2,000 validation and 4,000 test words. Any config
can name that data set, with the model `linear`; its records tell of the encoder.
"""

from softbench.bench.config import experiment
from softbench.bench.methods import (
    HUGE_PAGES,
    LOG_FREQUENCIES,
    SMALL_LANGUAGE,
    adagrad,
    row,
    sampler,
    with_row_updates,
)

ROWS = adagrad(0.1, accumulator=1e-8)
MODEL = {"name": "lstm", "preset": "small", "batch_size": 40, "row_optimizer": ROWS}


def get_config():
    """Returns the experiment; every value can be overridden on the command line."""
    flat = {"counts": "train + 1", "power": 0.75, "share_draws": True, "unique": True}
    mixed = row(
        "SampledSoftmax",
        num_sampled="at most 1800",
        sampler=sampler(
            "mixed",
            first=sampler("in_batch", counts="train"),
            second=sampler("unigram", **flat),
        ),
        bias_initializer=LOG_FREQUENCIES,
    )
    return experiment(
        "states",
        title="Hidden states of a frozen encoder",
        task="states",
        dataset={
            "name": "eltec-hun",
            "valid_fraction": 0.0015,
            "test_fraction": 0.003,
            "split_lines": 50,
        },
        model=MODEL,
        optimizer={"name": "adam", "learning_rate": 2e-3, "global_clipnorm": 5.0},
        method_table={"in_batch_unigram": with_row_updates(mixed, ROWS)},
        options={"train": 1_000_000, "valid": 2_000, "test": 4_000},
        epochs=2,
        max_train_seconds=300.0,
        environment=HUGE_PAGES,
        columns=("valid_perplexity", "test_perplexity", "test_precision_at_1", "tokens/s"),
        presets={
            "smoke": {
                "dataset": SMALL_LANGUAGE,
                "model": {**MODEL, "batch_size": 4, "units": 16},
                "options": {"train": 1_000, "valid": 200, "test": 200},
                "max_train_seconds": 3.0,
            },
            "paper": {},
        },
    )

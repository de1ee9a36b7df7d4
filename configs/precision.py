"""A class table in bfloat16 against one in float32: Penn Treebank, n = 10,000, one epoch.

    softbench --config=configs/precision.py --data_dir=<folder that holds ptb/> --backend=jax
    softbench --config=configs/precision.py --config.methods=float32,bfloat16

The same sampled softmax (1,000 unigram draws shared by the batch, without replacement) with row
Adagrad, its class table and the (n, d) slots in float32 or in bfloat16 (touched rows are rounded at
random, up or down), with an accumulator for each entry or one for each row. All else is equal: the
seed, the draws and the model, an LSTM of 200 units under Adam. One pass over the text, evaluated
after each quarter. `head_mb` is the size of the class table with its biases and slots and what the
sampler keeps.

Without the flag, XLA on a CPU makes a float32 copy of a whole bfloat16 table to update some of its
rows. The flag is of the CPU alone; accelerators were not tried.
"""

from softbench.bench.config import experiment
from softbench.bench.methods import (
    LOG_FREQUENCIES,
    SMALL_LANGUAGE,
    SMALL_TIMING,
    adagrad,
    sampled,
)

COUNTS = {"counts": "train + 1", "power": 0.75, "share_draws": True, "unique": True}
IN_PLACE = {"XLA_FLAGS": "--xla_disable_hlo_passes=float-normalization-bf16"}


def row(table_dtype, **optimizer):
    """A row whose table has a type, and whose Adagrad has options."""
    rows = {**adagrad(0.1, accumulator=1e-8), **optimizer}
    options = {"bias_initializer": LOG_FREQUENCIES, "row_optimizer": rows}
    return sampled("unigram", "at most 1000", {**options, "table_dtype": table_dtype}, **COUNTS)


def get_config():
    """Returns the experiment; every value can be overridden on the command line."""
    return experiment(
        "precision",
        title="A class table in bfloat16: perplexity on Penn Treebank after one epoch",
        dataset={"name": "ptb"},
        model={"name": "lstm", "preset": "small"},
        optimizer={"name": "adam", "learning_rate": 2e-3, "global_clipnorm": 5.0},
        method_table={
            "float32": row("float32"),
            "bfloat16": row("bfloat16"),
            "float32_per_row": row("float32", per_row=True),
            "bfloat16_per_row": row("bfloat16", per_row=True),
        },
        epochs=4,
        steps_per_epoch=581,
        environment=IN_PLACE,
        columns=("valid_perplexity", "test_perplexity", "head_mb", "step_ms"),
        presets={
            "smoke": {
                "dataset": SMALL_LANGUAGE,
                "timing": SMALL_TIMING,
                "model": {"name": "lstm", "preset": "small", "units": 16},
                "methods": "float32,bfloat16_per_row",
            },
            "paper": {},
        },
    )

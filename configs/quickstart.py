"""Every kind of method on two generated data sets, with one head model; nothing to download.

    softbench --config=quickstart --workdir=my_results

15 cells, three and a half minutes on two cores. (Without `--workdir` the committed records count as
done.)
The run ends with two tables: a language of 10,000 words (LSTM; perplexity) and an extreme
classification set of 10,000 labels (sparse bag of features; precision@1/3/5). In each, all rows
train the same model from the same start: normalised vectors at temperature 0.09, biases that begin
at the log frequencies, Adam with one rate. They differ in the loss and its draws alone.

Adam's epsilon is 1e-4: with the mean over a batch, the gradient of a rare class is far below 1, and
from 1e-7 each of its steps has full length. `full`, which touches every class at every step, then
ends behind the sampled rows; with 1e-4 it does not (trials in results/quickstart/NOTES.md).
"""

from softbench.bench.config import experiment
from softbench.bench.methods import (
    FLAT_COUNTS,
    LOG_FREQUENCIES,
    SMALL_SIZES,
    SMALL_TIMING,
    full,
    noise,
    sampled,
)

MODEL = {"normalize": True, "temperature": 0.09, "bias_initializer": LOG_FREQUENCIES}
ADAM = {"name": "adam", "learning_rate": 1e-2, "epsilon": 1e-4}


def problems(**sizes):
    """The two data sets, with other sizes than these if given."""
    language = {"num_classes": 10_000, "num_train": 90_000, "num_valid": 5_000, "num_test": 5_000}
    labels = {"num_classes": 10_000, "num_train": 90_000, "num_valid": 1_000, "num_test": 2_000}
    labels |= {"num_features": 10_000}
    lstm = {"units": 64, "num_layers": 1, "batch_size": 40, "num_steps": 10}
    return {
        "language": {
            "dataset": {"name": "synthetic_language", "label": "language", **language, **sizes},
            "model": {"name": "lstm", **lstm},
            "optimizer": {**ADAM, "global_clipnorm": 1.0},
            "methods": "full,uniform,unigram,exp,rff,nce_binary,nce_ranking",
        },
        "xmc": {
            "dataset": {"name": "synthetic_xmc", "label": "xmc", **labels, **sizes},
            "model": {"name": "bag", "dim": 64, "batch_size": 256},
            "optimizer": ADAM,
        },
    }


def get_config():
    """Returns the experiment; every value can be overridden on the command line."""
    shared = {"share_draws": True}
    return experiment(
        "quickstart",
        title="Quickstart: every method on two generated data sets",
        problems=problems(),
        method_table={
            "full": full(**MODEL),
            "uniform": sampled("uniform", 256, MODEL, **shared),
            "unigram": sampled("unigram", 256, MODEL, unique=True, **FLAT_COUNTS, **shared),
            "exp": sampled("exp", 256, MODEL, **shared),
            "rff": sampled("rff", 256, MODEL, **shared),
            "nce_binary": noise("binary", 256, MODEL, **shared),
            "nce_ranking": noise("ranking", 256, MODEL, **shared),
            "in_batch": sampled("in_batch", 256, MODEL, counts="train"),
        },
        cell_timeout_s=300.0,
        timing={"warmup_steps": 5, "head_repetitions": 10},
        columns=(
            "step_ms",
            "head_ms",
            "examples/s",
            "test_perplexity",
            "test_precision_at_1",
            "test_precision_at_3",
            "test_precision_at_5",
        ),
        presets={
            "smoke": {
                "problems": problems(**SMALL_SIZES),
                "methods": "full,uniform,in_batch",
                "timing": SMALL_TIMING,
            },
            "paper": {},
        },
    )

"""Every method built so far on two generated data sets; nothing to download.

    softbench --config=configs/quickstart.py --workdir=my_results

15 cells; 4 minutes 41 seconds on two otherwise idle hardware threads.
(Without `--workdir` the committed records count as done.)
The run ends with two tables: a language of 10,000 words (LSTM; perplexity) and an extreme
classification set of 10,000 labels (sparse bag of features; precision@1/3/5). On the labels
`full` ends at precision@1 0.546 and `unigram` at 0.382 (TensorFlow, seed 0).
"""

from softbench.bench.config import experiment
from softbench.bench.methods import (
    FLAT_COUNTS,
    SMALL_SIZES,
    SMALL_TIMING,
    biases,
    full,
    noise,
    sampled,
)


def problems(**sizes):
    """The two data sets, with other sizes than these if given."""
    language = {"num_classes": 10_000, "num_train": 40_000, "num_valid": 5_000, "num_test": 5_000}
    labels = {"num_classes": 10_000, "num_train": 10_000, "num_valid": 1_000, "num_test": 2_000}
    return {
        "language": {
            "dataset": {"name": "synthetic_language", "label": "language", **language, **sizes},
            "model": {
                "name": "lstm",
                "units": 64,
                "num_layers": 1,
                "batch_size": 40,
                "num_steps": 10,
            },
            "optimizer": {"name": "adam", "learning_rate": 1e-2, "global_clipnorm": 1.0},
            "methods": "full,uniform,unigram,exp,rff,nce_binary,nce_ranking",
        },
        "xmc": {
            "dataset": {
                "name": "synthetic_xmc",
                "label": "xmc",
                "num_features": 10_000,
                **labels,
                **sizes,
            },
            "model": {"name": "bag", "dim": 64, "batch_size": 256},
            "optimizer": {"name": "adam", "learning_rate": 1e-2},
            "epochs": 3,
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
            "full": full(),
            "uniform": sampled("uniform", 256, **shared),
            "unigram": sampled("unigram", 256, unique=True, **FLAT_COUNTS, **shared),
            "exp": sampled("exp", 256, **shared),
            # Normalised vectors, as Rawat et al. use random Fourier features.
            "rff": sampled("rff", 256, {"normalize": True, "temperature": 0.09}, **shared),
            "nce_binary": noise("binary", 256, biases(-9.21), **shared),  # -log(10,000)
            "nce_ranking": noise("ranking", 256, **shared),
            "in_batch": sampled("in_batch", 256, counts="train"),
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

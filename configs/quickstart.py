"""Every kind of method on two generated data sets, with one head model; nothing to download.

    softbench --config=quickstart --workdir=my_results
    softbench --config=quickstart "--config.seeds=(0,1,2)"

18 cells a seed, four minutes on two cores that do nothing else. Each looks at the validation set
five times, which is no training time. The committed page comes from the second command. (Without
`--workdir` the committed records count as done.)
The run ends with two tables: a language of 2,000 words (LSTM; perplexity) and an extreme
classification set of 2,048 labels (sparse bag of features; precision@1/3/5). In each, all rows
train the same model from the same start: normalised vectors at temperature 0.09, biases that begin
at the log frequencies, Adam with one rate that falls to a twentieth. They differ in the loss and
its draws alone.

Both sets are generated, so the best that any model can do is known: the row `(oracle)`. Sizes and
rates were chosen so that `full` comes near it in the steps that there are. An example of the second
set has one label, and its features say under which of 128 parents it stands, no more.
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
SHARED = {"share_draws": True}
METHODS = {
    "full": full(**MODEL),
    "uniform": sampled("uniform", 256, MODEL, **SHARED),
    "unigram": sampled("unigram", 256, MODEL, unique=True, **FLAT_COUNTS, **SHARED),
    "in_batch": sampled("in_batch", 256, MODEL, counts="train"),
    "exp": sampled("exp", 256, MODEL, **SHARED),
    "rff": sampled("rff", 256, MODEL, **SHARED),
    "codebook": sampled("codebook", 256, MODEL, counts="train + 1", **SHARED),
    "nce_binary": noise("binary", 256, MODEL, **SHARED),
    "nce_ranking": noise("ranking", 256, MODEL, **SHARED),
}


def adam(steps, **options):
    """Adam whose rate falls to a twentieth in so many steps."""
    rate = {"initial_learning_rate": 2e-2, "decay_steps": steps, "alpha": 0.05}
    return {
        "name": "adam",
        "learning_rate": {"class_name": "CosineDecay", "config": rate},
        **options,
    }


def problems(epochs=5, **sizes):
    """The two data sets, with other sizes than these if given; an epoch is a fifth of the data."""
    language = {"num_classes": 2_000, "num_train": 300_000, "num_valid": 5_000, "num_test": 5_000}
    language |= {"num_groups": 5, "collocation": 0.0, "exponent": 1.5}
    labels = {"num_classes": 2_048, "num_train": 240_000, "num_valid": 1_000, "num_test": 2_000}
    labels |= {"num_features": 4_096, "labels_per_example": 1.0, "lowest_level": 1}
    lstm = {"units": 64, "num_layers": 1, "batch_size": 40, "num_steps": 10}
    return {
        "language": {
            "dataset": {"name": "synthetic_language", "label": "language", **language, **sizes},
            "model": {"name": "lstm", **lstm},
            "optimizer": adam(745, epsilon=1e-6, global_clipnorm=1.0),
            "epochs": epochs,
            "steps_per_epoch": 149,
        },
        "xmc": {
            "dataset": {"name": "synthetic_xmc", "label": "xmc", **labels, **sizes},
            "model": {"name": "bag", "dim": 64, "batch_size": 256},
            "optimizer": adam(935, epsilon=1e-5),
            "epochs": epochs,
            "steps_per_epoch": 187,
        },
    }


def get_config():
    """Returns the experiment; every value can be overridden on the command line."""
    return experiment(
        "quickstart",
        title="Quickstart: every method on two generated data sets",
        problems=problems(),
        method_table=METHODS,
        cell_timeout_s=300.0,
        timing={"warmup_steps": 5, "head_repetitions": 0},
        columns=(
            "step_ms",
            "examples/s",
            "test_perplexity",
            "test_precision_at_1",
            "test_precision_at_3",
            "test_precision_at_5",
        ),
        presets={
            "smoke": {
                "problems": problems(epochs=1, **SMALL_SIZES),
                "methods": "full,uniform,in_batch",
                "timing": SMALL_TIMING,
            },
            "paper": {},
        },
    )

"""Every method built so far on two generated data sets; nothing to download.

    softbench --config=configs/quickstart.py --workdir=my_results

15 cells; 4 minutes 41 seconds on two otherwise idle hardware threads.
(Without `--workdir` the committed records count as done.)
The run ends with two tables: a language of 10,000 words (LSTM; perplexity) and an extreme
classification set of 10,000 labels (sparse bag of features; precision@1/3/5). On the labels
`full` ends at precision@1 0.546 and `unigram` at 0.382 (TensorFlow, seed 0).
"""

from softbench.bench.config import experiment
from softbench.bench.methods import SMALL_TIMING

# Binary NCE needs log Z near 0 from the start: scores of -log(10,000) make it so.
SELF_NORMALISED = {"class_name": "Constant", "config": {"value": -9.21}}


def sampled(name, num_sampled=256, **sampler):
    """A `SampledSoftmax` row."""
    return {
        "head": "SampledSoftmax",
        "kwargs": {
            "sampler": {"class_name": name, "config": sampler},
            "num_sampled": num_sampled,
        },
    }


def normalised(method, temperature=0.09):
    """The row with normalised vectors, as Rawat et al. use random Fourier features."""
    method["kwargs"] |= {"normalize": True, "temperature": temperature}
    return method


def noise(objective, num_sampled=256, **kwargs):
    """A `NoiseContrastive` row, noise shared by the batch."""
    unigram = {"counts": "train", "power": 1.0, "share_draws": True}
    return {
        "head": "NoiseContrastive",
        "kwargs": {
            "sampler": {"class_name": "unigram", "config": unigram},
            "objective": objective,
            "num_sampled": num_sampled,
            **kwargs,
        },
    }


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
    flat = {"counts": "train", "power": 0.75, "share_draws": True, "unique": True}
    return experiment(
        "quickstart",
        title="Quickstart: every method on two generated data sets",
        problems=problems(),
        method_table={
            "full": {"head": "FullSoftmax"},
            "uniform": sampled("uniform", share_draws=True),
            "unigram": sampled("unigram", **flat),
            "exp": sampled("exp", share_draws=True),
            "rff": normalised(sampled("rff", share_draws=True)),
            "nce_binary": noise("binary", bias_initializer=SELF_NORMALISED),
            "nce_ranking": noise("ranking"),
            "in_batch": sampled("in_batch", counts="train"),
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
                "problems": problems(num_classes=300, num_train=2_000, num_valid=500, num_test=500),
                "methods": "full,uniform,in_batch",
                "timing": SMALL_TIMING,
            },
            "paper": {},
        },
    )

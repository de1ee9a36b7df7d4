"""Which figure of a proposal says how well a head trains with it.

    softbench --config=configs/what_ranks.py --backend=jax
    softbench --config=configs/what_ranks.py:real --backend=jax --config.seeds="(0,1,2)" \\
        --data_dir=...

In each cell the full softmax is trained, and every sampler is measured on its table after half of
the steps and after all: KL, effective sample size, the relative variance of the partition (`rv`)
and of the gradients of the rows of the class table, for frequent, middle and rare classes. Then
each sampler trains the same model, from the same start, on the same batches. The page gives
Spearman's rank correlation of every figure with the perplexities.

The rows spend their draws in different ways, from 64 for the batch to 100 for each example; no
head has a bias. Without a colon there are a generated language and generated labels, with 10,000
classes each and three optimizers; the figures were chosen on these. After the colon `real`, words
(PTB, n = 10,000), items (Beauty, 12,101), labels of documents (citeulike-t, 52,946) and entities
(wd50k, 41,334) test what was found there: 300 steps of Adam each, measured at their end.
"""

from softbench.bench.config import ConfigError, experiment
from softbench.bench.methods import (
    NORMALISED,
    SASREC,
    SMALL_SIZES,
    adagrad,
    full,
    one_tail,
    sampled,
)

OPTIMIZERS = {
    "sgd": {"name": "sgd", "learning_rate": 20.0, "momentum": 0.9},
    "adagrad": adagrad(0.1, accumulator=1e-6),
    "adam": {"name": "adam", "learning_rate": 1e-2, "epsilon": 1e-4},
}
# Of 10,000 classes some are no label in training: with "train" they would never be drawn.
COUNTS = "train + 1"
FLAT = {"counts": COUNTS, "power": 0.75}
LSTM = {"name": "lstm", "units": 64, "num_layers": 1, "batch_size": 40, "num_steps": 10}


def drawn(name, num_sampled, **config):
    """A row of draws on the normalised table."""
    return sampled(name, num_sampled, NORMALISED, **config)


def unigram(num_sampled, groups):
    """Draws without replacement that the batch shares, or each of its groups."""
    return drawn("unigram", num_sampled, share_draws=groups, unique=True, **FLAT)


def method_table():
    """The head that all are measured on, then the samplers."""
    counts = {"counts": COUNTS}
    top = {"num_top": 64, "tail": one_tail(COUNTS), **counts}
    return {
        "full": full(**NORMALISED),
        "uniform_256": drawn("uniform", 256, share_draws=True),
        "uniform_each_25": drawn("uniform", 25),
        "unigram_64": unigram(64, True),
        "unigram_256": unigram(256, True),
        "unigram_1024": unigram(1024, True),
        "unigram_16x64": unigram(64, 16),
        "unigram_each_25": drawn("unigram", 25, **FLAT),
        "exp_256": drawn("exp", 256, share_draws=True),
        "exp_each_25": drawn("exp", 25),
        "codebook_each_5": drawn("codebook", 5, **counts),
        "codebook_each_25": drawn("codebook", 25, **counts),
        "codebook_each_100": drawn("codebook", 100, **counts),
        "codebook_16x64": drawn("codebook", 64, share_draws=16, **counts),
        "rff_256": drawn("rff", 256, share_draws=True),
        "top_and_tail_1": drawn("top_and_tail", 256, share_draws=True, **top),
        "top_and_tail_16": drawn("top_and_tail", 256, share_draws=16, **top),
    }


def real():
    """Data that the figures were not chosen on: a small LSTM, and models of `decisions`."""
    pair = {"name": "pair", "dim": 128, "hidden_units": 256, "batch_size": 512}
    bag = {"name": "bag", "dim": 128, "normalize": True, "batch_size": 128}
    items = {**SASREC, "dropout": 0.2, "batch_size": 16, "valid_users": 1024}
    return {
        "words": {"dataset": {"name": "ptb"}, "model": LSTM},
        "items": {"dataset": {"name": "beauty"}, "model": items},
        "labels": {
            "dataset": {"name": "xmc/citeulike-t", "valid_fraction": 0.05},
            "model": bag,
        },
        "entities": {"dataset": {"name": "wd50k"}, "model": pair},
    }


def generated(**sizes):
    """Each generated data set with each optimizer."""
    language = {"num_classes": 10_000, "num_train": 90_000, "num_valid": 5_000, "num_test": 400}
    labels = {"num_classes": 10_000, "num_train": 90_000, "num_valid": 1_000, "num_test": 400}
    labels |= {"num_features": 10_000}
    found = {}
    for name, optimizer in OPTIMIZERS.items():
        found[f"language_{name}"] = {
            "dataset": {"name": "synthetic_language", "label": "language", **language, **sizes},
            "model": {**LSTM, "label": f"lstm-{name}"},
            "optimizer": {**optimizer, "global_clipnorm": 1.0},
        }
        if name == "sgd":  # at 20 the full softmax ends worse than at 5
            found["language_sgd"]["optimizer"]["learning_rate"] = 5.0
        found[f"xmc_{name}"] = {
            "dataset": {"name": "synthetic_xmc", "label": "xmc", **labels, **sizes},
            "model": {"name": "bag", "dim": 64, "batch_size": 256, "label": f"bag-{name}"},
            "optimizer": optimizer,
        }
    return found


def get_config(data="generated"):
    """Returns the experiment on "generated" or "real" data; every value can be overridden."""
    if data not in ("generated", "real"):
        raise ConfigError(f"After the colon: generated or real. Received: {data!r}")
    on_real = data == "real"
    fields = {"problems": real(), "optimizer": {"name": "adam", "learning_rate": 5e-3}}
    return experiment(
        "what_ranks_real" if on_real else "what_ranks",
        title="Which figure of a proposal orders the methods that train with it"
        + ", on real data" * on_real,
        task="proposals",
        method_table=method_table(),
        epochs=1,
        steps_per_epoch=300 if on_real else 0,
        options={
            "fractions": (1.0,) if on_real else (0.5, 1.0),  # of the training steps
            "train": True,
            "timing": {"rounds": 3, "block": 2, "max_seconds": 5.0},  # of `timing.in_turn`
        },
        cell_timeout_s=3 * 3600.0,
        **(fields if on_real else {"problems": generated()}),
        presets={
            "smoke": {
                "problems": {"language_adam": generated(**SMALL_SIZES)["language_adam"]},
                "methods": "full,unigram_64,exp_256",
            },
            "paper": {},
        },
    )

"""Next-item prediction on Amazon Beauty (12,101 items): one SASRec, the losses of recommenders.

    softbench --config=configs/sequences.py --data_dir=<folder with sequences/> --backend=jax

With `--config.dataset.path`, a file of your own, it is `--config=interactions`.

Leave-one-out: the last item of each user is the test, the one before it the validation; all items
are ranked but those that the user has had. The encoder has one block of 64 units with one head,
as in the eSASRec paper, and reads its items from the table of the head; histories are packed into
rows of 50 steps, so that no step is padding. All rows have one head model, cosines over a
temperature and biases that begin at the log frequencies, and 256 classes to compare with; `full`
has all of them, and `popularity_1024` the number in its name.

`equal_time` gives rows that are worth it the same seconds of training instead of the same epochs:

    softbench --config=configs/sequences.py:equal_time --data_dir=... --backend=jax

`--config.methods=bsl,psl,sl_at_k`: losses that rank, on the draws of `codebook`.

The published numbers beside ours: SASRec with binary cross-entropy and one negative, and with
sampled softmax of 256 (arXiv 2508.06450); SCE (Mezentsev et al. 2024), which has two blocks.

`--config.preset=accelerator`, JAX on one GPU: batches of 80 x 50 = 4,000 positions, 40 epochs (at
equal time: 20 s, one seed). It needs `sequences/beauty.txt` (1 MB). The largest array of a step are
the scores of `full`, 194 MB.
"""

from softbench.bench.config import ConfigError, experiment
from softbench.bench.methods import (
    ACCELERATOR,
    NORMALISED_FREQUENCIES,
    SASREC,
    SMALL_HISTORIES,
    SMALL_TIMING,
    full,
    ranked,
    ranking_columns,
    row,
    sampled,
    sampler,
)

MODEL = {**SASREC, "dropout": 0.2, "tied": True, "batch_size": 16, "valid_users": 1024}
M = 256
SHARED = {"share_draws": True}
RANKING = ("bsl", "psl", "sl_at_k")  # not run unless they are named
EQUAL_TIME = "full,popularity,popularity_1024,mixed,codebook,top_and_tail"
COLUMNS = (*ranking_columns(10), "epochs", "step_ms", "head_ms", "memory_mb")


def logistic(num_sampled, t):
    """Binary cross-entropy with negatives drawn for each example, gBCE if t > 0."""
    kwargs = {"objective": "gbce", "t": t, "remove_accidental_hits": True, **NORMALISED_FREQUENCIES}
    uniform = sampler("uniform", share_draws=num_sampled > 1)
    return row("NegativeSampling", sampler=uniform, num_sampled=num_sampled, **kwargs)


def method_table():
    """All rows."""
    head, counts = NORMALISED_FREQUENCIES, {"counts": "train + 1"}  # some items are in no history
    both = {"first": sampler("in_batch", counts="train"), "second": sampler("uniform", **SHARED)}
    mixed = sampler("mixed", **both, num_sampled=(M // 2, M // 2))
    table = {
        "full": full(**head),
        "uniform": sampled("uniform", M, head, **SHARED),
        "popularity": sampled("unigram", M, head, power=0.75, unique=True, **counts, **SHARED),
        "popularity_1024": sampled(
            "unigram", 4 * M, head, power=0.75, unique=True, **counts, **SHARED
        ),
        "in_batch": sampled("in_batch", M, head, counts="train"),
        "mixed": row("SampledSoftmax", sampler=mixed, num_sampled=M, **head),
        "codebook": sampled("codebook", M, head, **counts, **SHARED),
        "top_and_tail": sampled(
            "top_and_tail", M // 2, head, num_top=M // 2, share_draws=True, **counts
        ),
        "gbce": logistic(M, 0.75),
        "bce": logistic(M, 0.0),
        "bce_1": logistic(1, 0.0),
        "sce": row("BucketedSoftmax", num_buckets=56, bucket_examples=56, bucket_classes=M, **head),
    }
    return table | {name: ranked(name, table["codebook"]) for name in RANKING}


def equal_time():
    """What differs when all rows train for the same seconds, on an idle machine."""
    names = "recall_at_10", "ndcg_at_10"
    return {
        "title": "Next-item prediction on Amazon Beauty, leave-one-out: equal time",
        "methods": EQUAL_TIME,
        "seeds": (0, 1, 2),
        "epochs": 8,  # equal parts of the time
        "max_train_seconds": 40.0,
        "keep": "best",
        "keep_by": "ndcg_at_10",
        "columns": (*(f"best.test_{n}" for n in names), *(f"test_{n}" for n in names), "step_ms"),
        "paper": {},
    }


def get_config(part=None):
    """Returns the experiment, or that at equal time; every value can be overridden."""
    if part not in (None, "equal_time"):
        raise ConfigError(f"After the colon: nothing or equal_time. Received: {part!r}")
    published = {"uniform": (0.0921, 0.0531), "bce_1": (0.0605, 0.0318), "sce": (0.0935, 0.0544)}
    fields = {
        "title": "Next-item prediction on Amazon Beauty, leave-one-out",
        "dataset": {"name": "beauty"},
        "model": MODEL,
        "optimizer": {"name": "adam", "learning_rate": 3e-3},
        "method_table": method_table(),
        "methods": ",".join(name for name in method_table() if name not in RANKING),
        "epochs": 20,
        "cell_timeout_s": 2 * 3600.0,
        "curves_against": "seconds" if part else "step",
        "timing": {"warmup_steps": 5, "head_repetitions": 10},
        "paper": {
            f"beauty-sasrec-{name}": dict(zip(COLUMNS[:2], numbers, strict=True))
            for name, numbers in published.items()
        },
        "columns": COLUMNS,
    }
    smoke = {
        "dataset": SMALL_HISTORIES,
        "model": {**MODEL, "dim": 16, "length": 16},
        "methods": "full,in_batch,gbce,sce",
        "epochs": 2,
        "timing": SMALL_TIMING,
    }
    large = {**ACCELERATOR, "model": {**MODEL, "batch_size": 80}, "epochs": 40}
    if part:
        fields |= equal_time()
        smoke |= {"max_train_seconds": 3.0, "seeds": (0,)}
        large |= {"epochs": 8, "max_train_seconds": 20.0, "seeds": (0,)}
    name = "sequences_equal_time" if part else "sequences"
    presets = {"smoke": smoke, "paper": {}, "accelerator": large}
    return experiment(name, **fields, presets=presets)

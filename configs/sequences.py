"""Next-item prediction on Amazon Beauty (12,101 items): one SASRec, the losses of recommenders.

    softbench --config=configs/sequences.py --data_dir=<folder with sequences/> --backend=jax

With `--config.dataset.path`, a file of your own, it is `--config=interactions`.

Leave-one-out: the last item of each user is the test, the one before it the validation; all items
are ranked but those that the user has had. The encoder has one block of 64 units with one head,
as in the eSASRec paper, and reads its items from the table of the head; histories are packed into
rows of 50 steps, so that no step is padding. Every method has the same 256 classes to compare
with, and `full` all of them.

With `uniform`, 40 epochs are 4.4 minutes of training on two cores that other programs shared: test
recall@10 0.0854 and nDCG@10 0.0504, below the published numbers; `uniform_cosine` reaches 0.0814
and 0.0468. The other rows have not been run to the end.

The published numbers beside ours: SASRec with binary cross-entropy and one negative, and with
sampled softmax of 256 (arXiv 2508.06450); SCE (Mezentsev et al. 2024), which has two blocks.
"""

from softbench.bench.config import experiment
from softbench.bench.methods import (
    FLAT_COUNTS,
    SMALL_HISTORIES,
    SMALL_TIMING,
    full,
    normalised,
    ranking_columns,
    row,
    sampled,
    sampler,
)

MODEL = {
    "name": "sasrec",
    "dim": 64,
    "length": 50,
    "num_blocks": 1,
    "num_heads": 1,
    "dropout": 0.5,
    "tied": True,
    "batch_size": 16,
    "valid_users": 1024,
}
M = 256
PLAIN = {"use_bias": False}
SHARED = {"share_draws": True}
COLUMNS = (*ranking_columns(10), "epochs", "step_ms", "head_ms", "memory_mb")


def logistic(num_sampled, t):
    """Binary cross-entropy with negatives drawn for each example, gBCE if t > 0."""
    kwargs = {"objective": "gbce", "t": t, "remove_accidental_hits": True, **PLAIN}
    uniform = sampler("uniform", share_draws=num_sampled > 1)
    return row("NegativeSampling", sampler=uniform, num_sampled=num_sampled, **kwargs)


def get_config():
    """Returns the experiment; every value can be overridden on the command line."""
    both = {"first": sampler("in_batch", counts="train"), "second": sampler("uniform", **SHARED)}
    mixed = sampler("mixed", **both, num_sampled=(M // 2, M // 2))
    methods = {
        "full": full(**PLAIN),
        "uniform": sampled("uniform", M, PLAIN, **SHARED),
        # Bounded scores: those of `uniform` grow until its likelihood is worse than chance.
        "uniform_cosine": normalised("uniform", M, **SHARED),
        "popularity": sampled("unigram", M, PLAIN, **FLAT_COUNTS, **SHARED),
        "in_batch": sampled("in_batch", M, PLAIN, counts="train"),
        "mixed": row("SampledSoftmax", sampler=mixed, num_sampled=M, **PLAIN),
        "quadratic": sampled("quadratic", M, PLAIN, **SHARED),
        "codebook": sampled("codebook", M, PLAIN, num_codewords=32, **SHARED),
        "top_and_tail": sampled("top_and_tail", M, PLAIN, num_top=M // 2, groups=1, counts="train"),
        "gbce": logistic(M, 0.75),
        "bce": logistic(M, 0.0),
        "bce_1": logistic(1, 0.0),
        "sce": row(
            "BucketedSoftmax", num_buckets=56, bucket_examples=56, bucket_classes=M, **PLAIN
        ),
    }
    published = {"uniform": (0.0921, 0.0531), "bce_1": (0.0605, 0.0318), "sce": (0.0935, 0.0544)}
    return experiment(
        "sequences",
        title="Next-item prediction on Amazon Beauty, leave-one-out",
        dataset={"name": "beauty"},
        model=MODEL,
        optimizer={"name": "adam", "learning_rate": 1e-3},
        method_table=methods,
        epochs=40,
        cell_timeout_s=2 * 3600.0,
        timing={"warmup_steps": 5, "head_repetitions": 10},
        paper={
            f"beauty-sasrec-{name}": dict(zip(COLUMNS[:2], numbers, strict=True))
            for name, numbers in published.items()
        },
        columns=COLUMNS,
        presets={
            "smoke": {
                "dataset": SMALL_HISTORIES,
                "model": {**MODEL, "dim": 16, "length": 16},
                "methods": "full,in_batch,gbce,sce",
                "epochs": 2,
                "timing": SMALL_TIMING,
            },
            "paper": {},
        },
    )

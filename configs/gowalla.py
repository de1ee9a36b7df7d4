"""Which places users check in at (Gowalla, 40,981 of them): matrix factorisation, sampled heads.

    softbench --config=configs/gowalla.py --data_dir=<folder with gowalla/> --backend=jax

The split of the LightGCN paper, of which 2 % of the training interactions are held out for the
learning curve; all items are ranked but those that the user has had. A user is a row of 64 numbers
and so is an item; scores are cosines over a temperature, and both tables take row updates. Each
interaction is a training example. All rows train for the same time, one at a time on an idle
machine, with one rate that was chosen on `uniform`.

To be put beside: recall@20 0.1824 and nDCG@20 0.1547 of LightGCN with three layers and the pairwise
loss, a graph network and not this model.
"""

from softbench.bench.config import experiment
from softbench.bench.methods import (
    FLAT_COUNTS,
    SMALL_HISTORIES,
    SMALL_TIMING,
    full,
    ranking_columns,
    row,
    sampled,
    sampler,
    with_row_updates,
)

ROWS = {"name": "adam", "learning_rate": 1e-2}
MODEL = {
    "name": "matrix_factorisation",
    "dim": 64,
    "row_optimizer": ROWS,
    "batch_size": 2048,
    "valid_users": 4096,
}
COSINE = {"normalize": True, "temperature": 0.1, "use_bias": False}
M = 1024
COLUMNS = (*ranking_columns(20), "epochs", "step_ms", "memory_mb")


def get_config():
    """Returns the experiment; every value can be overridden on the command line."""
    shared = {"share_draws": True}
    both = {"first": sampler("in_batch", counts="train"), "second": sampler("uniform", **shared)}
    mixed = sampler("mixed", **both, num_sampled=(M // 2, M // 2))
    logistic = {"objective": "gbce", "remove_accidental_hits": True, **COSINE}
    methods = {
        "uniform": sampled("uniform", M, COSINE, **shared),
        "popularity": sampled("unigram", M, COSINE, unique=True, **FLAT_COUNTS, **shared),
        "in_batch": sampled("in_batch", M, COSINE, counts="train"),
        "mixed": row("SampledSoftmax", sampler=mixed, num_sampled=M, **COSINE),
        "codebook_16x64": sampled("codebook", 64, COSINE, counts="train", share_draws=16),
        "top_and_tail": sampled("top_and_tail", M, COSINE, counts="train", own_tails=False),
        "gbce": row(
            "NegativeSampling", sampler=sampler("uniform", **shared), num_sampled=M, **logistic
        ),
    }
    return experiment(
        "gowalla",
        title="Check-ins of Gowalla by matrix factorisation",
        dataset={"name": "gowalla"},
        model=MODEL,
        optimizer={"name": "adam", "learning_rate": 1e-3},
        method_table={
            "full": full(**COSINE),
            **{name: with_row_updates(method, ROWS) for name, method in methods.items()},
        },
        epochs=0,  # as many as there is time for
        max_train_seconds=180.0,
        cell_timeout_s=2 * 3600.0,
        timing={"warmup_steps": 5, "head_repetitions": 10},
        columns=COLUMNS,
        presets={
            "smoke": {
                "dataset": SMALL_HISTORIES,
                "model": {**MODEL, "dim": 16, "batch_size": 64},
                "methods": "full,uniform,gbce",
                "epochs": 2,
                "timing": SMALL_TIMING,
            },
            "paper": {},
        },
    )

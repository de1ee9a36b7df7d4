"""How near proposals are to a head's softmax as it trains, and their cost.

    softbench --config=configs/proposals.py --backend=jax --data_dir=<folder that holds ptb/>
    softbench --config=configs/proposals.py:beauty --backend=jax --data_dir=<one with sequences/>
    softbench --config=configs/proposals.py:eltec --backend=jax --data_dir=<one with eltec-hun/>

The first is about a language, Penn Treebank, the second about a recommender, the items of Amazon
Beauty, where the softmax is far from the frequencies: the SASRec of `sequences`, for ten epochs.
The third is about 197,030 words: the LSTM of `large_vocabulary`, for 3,000 steps of 800 words with
1,000 unigram draws shared by them, since the full softmax would take hours; it is asked at the end
alone.

On Penn Treebank the head is that of `gradient_bias` (a small LSTM, normalised embeddings, one epoch
of the full softmax). A head is kept after 10 %, 50 % and 100 % of its steps. At each point every
sampler is built from its table, and asked about 400 validation contexts: KL(p, q) and effective
sample size, the relative variance of the estimated partition and of the rows' gradients with the
draws of a batch. Rows that are `stale` were fitted at an earlier point, and have not seen the table
since; rows that follow were built before the first step, and made a Lloyd pass over the table in
every 20th. Draws are timed on the last table; a row of `every_step` makes a pass with each.
"""

from softbench.bench.config import ConfigError, experiment
from softbench.bench.methods import (
    FLAT_COUNTS,
    FLAT_PRIOR,
    NORMALISED,
    SASREC,
    SMALL_LANGUAGE,
    adagrad,
    full,
    one_tail,
    sampled,
    with_row_updates,
)

SHARED, PER_EXAMPLE = 1000, 100  # draws
CODEWORDS = (32, 64, 128, 256)
ROWS = adagrad(0.1, accumulator=1e-8)  # as in `large_vocabulary`
LANGUAGE = {
    "title": "Proposals on a Penn Treebank head while it trains: quality, and cost of a draw",
    "dataset": {"name": "ptb"},
    "model": {"name": "lstm", "preset": "small"},
    "optimizer": {"name": "adam", "learning_rate": 2e-3},
    "epochs": 1,
}
BEAUTY = {
    "title": "Proposals on the head of a recommender while it trains: quality, and cost of a draw",
    "dataset": {"name": "beauty"},
    "model": {**SASREC, "dropout": 0.2, "batch_size": 16},
    "optimizer": {"name": "adam", "learning_rate": 3e-3},
    "epochs": 10,
}
ELTEC = {
    "title": "Proposals on a head of 197,030 words: quality, and cost of a draw",
    "dataset": {
        "name": "eltec-hun",
        "valid_fraction": 0.0015,
        "test_fraction": 0.003,
        "split_lines": 50,
    },
    "model": {"name": "lstm", "preset": "small", "batch_size": 40, "row_optimizer": ROWS},
    "optimizer": {"name": "adam", "learning_rate": 2e-3, "global_clipnorm": 5.0},
    "epochs": 1,
    "steps_per_epoch": 3000,
}
PROBLEMS = {None: LANGUAGE, "beauty": BEAUTY, "eltec": ELTEC}
FOLLOWING = ("codebook_K128", "codebook_K256")
STALE = ("codebook_K128", "codebook_K256", "top_and_tail_1", "top_and_tail_16")


def asked(name, num_sampled=PER_EXAMPLE, **config):
    """A row that asks one sampler on the normalised table."""
    return sampled(name, num_sampled, NORMALISED, **config)


def method_table(part):
    """The head that is trained, then the samplers."""
    counts = "train" if part is None else "train + 1"  # some classes are in no training example
    flat, prior = {**FLAT_COUNTS, "counts": counts}, {**FLAT_PRIOR, "prior": counts}
    trained = {"full": full(**NORMALISED)}
    if part == "eltec":
        unigram = asked("unigram", SHARED, share_draws=True, unique=True, **flat)
        trained = {"trained": with_row_updates(unigram, ROWS)}
    counts = {"counts": counts}
    table = {
        **trained,
        "uniform": asked("uniform"),
        "unigram_p75": asked("unigram", **flat),
        "unigram_p75_shared": asked("unigram", SHARED, share_draws=True, **flat),
        "unigram_p75_unique": asked("unigram", SHARED, share_draws=True, unique=True, **flat),
        "exp": asked("exp"),
        "quadratic": asked("quadratic"),
        "rff_D1024_nu4": asked("rff", num_features=1024, nu=4.0),
        "positive_prior_D512_nu4": asked("positive", num_features=512, nu=4.0, **prior),
    }
    for size in CODEWORDS:
        table[f"codebook_K{size}"] = asked("codebook", num_codewords=size, **counts)
    own = {"num_codewords": 128, **counts}
    table["codebook_K128_every_step"] = asked("codebook", refresh_every=1, **own)
    table["codebook_K128_unweighted"] = asked("codebook", num_codewords=128, counts="equal")
    table["codebook_K128_product"] = asked("codebook", quantizer="product", **own)
    table["codebook_K128_exact"] = asked("codebook", within_cell="exact", **own)
    top = {"num_top": 256, "tail": one_tail(counts["counts"]), **counts}
    for groups in (1, 16):
        name = f"top_and_tail_{groups}"
        table[name] = asked("top_and_tail", SHARED, share_draws=groups, **top)
    table["top_and_tail_16_candidates"] = asked(
        "top_and_tail", SHARED, share_draws=16, num_candidates=1024, **top
    )
    return table


def get_config(part=None):
    """Returns the experiment, or one on another head; every value can be overridden."""
    if part not in PROBLEMS:
        raise ConfigError(f"After the colon: nothing, beauty or eltec. Received: {part!r}")
    table = method_table(part)
    trained = next(iter(table))
    return experiment(
        f"proposals_{part}" if part else "proposals",
        **PROBLEMS[part],
        task="proposals",
        method_table=table,
        options={
            "fractions": (1.0,) if part == "eltec" else (0.1, 0.5, 1.0),  # of the training steps
            # row -> fraction at which it was fitted
            "stale": {} if part == "eltec" else dict.fromkeys(STALE, 0.1),
            "following": () if part == "eltec" else FOLLOWING,
            "timing": {"rounds": 5, "block": 4, "max_seconds": 10.0},  # of `timing.in_turn`
        },
        cell_timeout_s=3 * 3600.0,
        presets={
            "smoke": {
                "dataset": {**SMALL_LANGUAGE, "num_classes": 2_500, "num_train": 20_000},
                "model": {"name": "lstm", "preset": "small", "units": 16},
                "methods": f"{trained},unigram_p75,unigram_p75_unique,exp,codebook_K32,"
                "top_and_tail_16",
                "steps_per_epoch": 0,
                "options": {
                    "fractions": (0.5, 1.0),
                    "stale": {"codebook_K32": 0.5},
                    "following": ("codebook_K32",),
                    "timing": {"rounds": 2, "block": 2, "max_seconds": 1.0},
                },
            },
            "paper": {},
        },
    )

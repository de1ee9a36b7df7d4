"""Which head and draws to use: every method at equal price, on problems of three kinds.

    softbench --config=configs/decisions.py:beauty --data_dir=... --backend=jax --price
    softbench --config=configs/decisions.py:beauty --data_dir=... --backend=jax \\
        --config.budget=full:4800

After the colon: beauty (items, n = 12,101, the default), gowalla (items, 40,724; a third of the
users), yelp2018 (items, 36,973; a fifth of the users), ptb (words, 10,000), eltec (words, 50,000; a
text of a million), citeulike (labels of documents, 52,946), wd50k (entities, 41,334) or hierarchy
(generated labels, 200,000, as no real data of that size are at hand). `--price` measures what a
step of each method costs in steps of `full`, and the second command trains all for as many steps as
4,800 of `full` cost. `BUDGETS` are the three prices of each problem: all that `full` needs until
its validation figure improves no more, a third and a tenth of it.

All rows of a problem have one encoder, one head model, the same start and the same batches for a
seed, and a rate that falls to a twentieth over the steps that are paid for. Where draws are shared
by the batch, there are 1,024; `codebook_own` has 32 for each example. Three rates are tried for
each method, 400 steps each, on the validation set. The page reads the best of eight validation
points (`keep="best"`); the test set is evaluated for it alone and for the last one.

On ptb and on the hierarchy all methods are best at the highest rate of the search. At twice that
rate, 400 steps of `in_batch`, `unigram` and `codebook` on ptb end at validation perplexities of
573, 713 and 527 instead of 261, 289 and 291. On the hierarchy those of `full` end at a validation
precision@1 of 0.544 instead of 0.538, and those of `in_batch` at 0.527 instead of 0.525 (one seed,
`--config.search.learning_rate="(0.02, 0.04)"`).
"""

from softbench.bench.config import ConfigError, experiment
from softbench.bench.methods import (
    HUGE_PAGES,
    NORMALISED_FREQUENCIES,
    SASREC,
    SMALL_HISTORIES,
    SMALL_LABELS,
    SMALL_LANGUAGE,
    SMALL_TIMING,
    SMALL_TRIPLES,
    comparison,
    gbce,
    sampled,
)

M, OWN = 1024, 32
NOVELS = {
    "name": "eltec-hun",
    "vocabulary_size": 50_000,
    "vocabulary_from": "train",
    "split_lines": 50,
    "valid_fraction": 0.004,
    "test_fraction": 0.008,
    "train_fraction": 0.15,
}
# An example a class, in the mean; features do not tell the 16 siblings of a parent apart.
HIERARCHY = {
    "name": "synthetic_xmc",
    "label": "hierarchy",
    "num_classes": 200_000,
    "num_features": 20_000,
    "num_train": 200_000,
    "num_valid": 4_000,
    "num_test": 10_000,
    "labels_per_example": 1.0,
    "lowest_level": 1,
}
# In steps of `full`. On ptb 14,000 are no better than 9,300, and on eltec 10,350 no better than
# 6,900, which reach validation perplexities of 590 and 595 where 4,600 reach 602 and 604.
# On the hierarchy `full` has a validation precision@1 of 0.605 after 2,400 of 3,200 steps and of
# 0.607 at their end (means of three seeds).
BUDGETS = {
    "beauty": (480, 1_600, 4_800),
    "ptb": (930, 3_100, 9_300),
    "eltec": (460, 2_300, 6_900),
    "citeulike": (450, 1_500, 4_500),
    "wd50k": (130, 430, 1_300),
    "hierarchy": (320, 1_070, 3_200),
    "gowalla": (300, 1_000, 3_000),
    "yelp2018": (300, 1_000, 3_000),
}
SHARES_OF_USERS = {"gowalla": 0.33, "yelp2018": 0.2}


def methods(head, *others):
    """The rows that all problems have, and some of those that not all of them have.

    Args:
        head: arguments of every head.
        *others: "gbce" or "adversarial".
    """
    table = comparison(head, M, OWN)
    mixed = table["mixed"]["kwargs"]["sampler"]
    mixed["config"]["num_sampled"] = (M // 2, M // 2)  # the default, as it stands in the records
    further = {
        "gbce": gbce(head, M),
        "adversarial": sampled("adversarial", OWN, head, num_components=16, regularization=10.0),
    }
    return table | {name: further[name] for name in others}


def adam(rate, **options):
    """Adam whose rate falls to a twentieth; a budget sets the steps that it does so in."""
    config = {"initial_learning_rate": rate, "decay_steps": 1_000, "alpha": 0.05}
    schedule = {"class_name": "CosineDecay", "config": config}
    return {"name": "adam", "learning_rate": schedule, **options}


def problem(name):
    """Fields of a problem, and the set of a few generated examples of its kind."""
    if name == "beauty" or name in SHARES_OF_USERS:
        dataset, k = {"name": "beauty"}, 10
        model = {**SASREC, "dropout": 0.2, "tied": True, "batch_size": 16, "valid_users": 1024}
        if name in SHARES_OF_USERS:
            dataset, k = {"name": name, "user_fraction": SHARES_OF_USERS[name]}, 20
            model = {"name": "matrix_factorisation", "dim": 64, "spectral": True}
            model |= {"batch_size": 1024, "valid_users": 4096}
        ndcg = f"test_ndcg_at_{k}"
        return {
            "dataset": dataset,
            "model": model,
            "optimizer": adam(6e-3),
            "method_table": methods(NORMALISED_FREQUENCIES, "gbce"),
            "search": {"learning_rate": (3e-3, 6e-3, 1.2e-2)},
            "keep_by": f"ndcg_at_{k}",
            "columns": (f"best.{ndcg}", ndcg, f"test_recall_at_{k}", "step_ms"),
        }, SMALL_HISTORIES
    if name in ("ptb", "eltec"):
        dataset, units = (NOVELS, {"units": 128}) if name == "eltec" else ({"name": name}, {})
        return {
            "dataset": dataset,
            "model": {"name": "lstm", "preset": "small", **units},
            "optimizer": adam(2e-3, global_clipnorm=5.0),
            "method_table": methods(NORMALISED_FREQUENCIES),
            "search": {"learning_rate": (1e-3, 2e-3, 4e-3)},
            "keep_by": "perplexity",
            "columns": ("best.test_perplexity", "test_perplexity", "step_ms"),
        }, SMALL_LANGUAGE
    precision = "test_precision_at_1"
    labels = {
        "optimizer": adam(5e-3),
        "method_table": methods(NORMALISED_FREQUENCIES, "adversarial"),
        "search": {"learning_rate": (5e-3, 1e-2, 2e-2)},
        "keep_by": "precision_at_1",
        "columns": (f"best.{precision}", precision, "test_perplexity", "step_ms"),
    }
    if name == "hierarchy":
        return {
            "dataset": HIERARCHY,
            "model": {"name": "bag", "dim": 32, "normalize": True, "batch_size": 512},
            **labels,
        }, SMALL_LABELS
    if name == "citeulike":
        return {
            "dataset": {"name": "xmc/citeulike-t", "valid_fraction": 0.05},
            "model": {"name": "bag", "dim": 128, "normalize": True, "batch_size": 128},
            **labels,
        }, SMALL_LABELS
    return {
        "dataset": {"name": "wd50k"},
        "model": {"name": "pair", "dim": 128, "hidden_units": 256, "batch_size": 512},
        **labels,
    }, SMALL_TRIPLES


def get_config(name="beauty"):
    """Returns the experiment on one problem; every value can be overridden."""
    if name not in BUDGETS:
        raise ConfigError(f"After the colon: {', '.join(BUDGETS)}. Received: {name!r}")
    fields, small = problem(name)
    return experiment(
        f"decisions_{name}",
        title=f"Which one to use: {name} at equal price",
        seeds=(0, 1, 2),
        epochs=8,  # equal parts of a budget
        keep="best",
        search_budget={"epochs": 1, "steps": 400},
        cell_timeout_s=3 * 3600.0,
        environment=HUGE_PAGES,
        curves_against="step",
        timing={"warmup_steps": 5, "head_repetitions": 0, "diagnose_last": True},
        **fields,
        presets={
            "smoke": {
                "dataset": small,
                "methods": "full,in_batch,codebook_own",
                "search": {"learning_rate": ()},
                "seeds": (0,),
                "epochs": 2,
                "timing": SMALL_TIMING,
            },
            "paper": {},
        },
    )

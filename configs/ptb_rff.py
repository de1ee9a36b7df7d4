"""Rawat et al. (2019), Figures 1 to 3: an LSTM language model on Penn Treebank with normalised
embeddings, n = 10,000, d = 200, 1 / temperature = 11.1.

    softbench --config=configs/ptb_rff.py --data_dir=<folder that holds ptb/> --backend=jax
    softbench --config=configs/ptb_rff.py --config.methods=rff_nu1,rff_nu2,rff,rff_nu8,rff_nu11
    softbench --config=configs/ptb_rff.py --config.methods=rff_d256,rff,rff_d4096
    softbench --config=configs/ptb_rff.py:equal_time --data_dir=... --backend=jax

Figure 3 is the first command, with `--config.epochs=4` to where `full` has converged: `full`,
`exp`, `uniform`, `quadratic`, `rff`, `sorf` and `positive` with 100 draws for each token. Figure 1
is the second (nu; the paper's T is 1 / sqrt(nu)), Figure 2 the third (D). `quadratic` trains the
absolute softmax, as in the paper; `quadratic_plain` the ordinary one. `codebook` draws from 128 x
128 codewords that are fitted with the word counts, `midx` from those of a fit without (arXiv
2501.08563). `unigram_16x563_unique` has 563 draws without replacement for each of 16 groups of a
batch; the rows of `top_and_tail` have certain classes besides. `*_shared` share 1,000 draws by the
batch, the kernels' from the mixture of its proposals; the `prior` rows weight the kernel by counts
** 0.75, and `mixed` takes half of its draws from the unigram. `redraw` rows draw new directions
every 10 steps.

`equal_time` gives these rows, `full` and `exp` the same seconds of training, and evaluates after
every whole epoch and when the time is over. 1,260 s are about six epochs of `full` on two hardware
threads of one core (JAX); give a faster machine `--config.max_train_seconds` in proportion.

Half an epoch (`--config.steps_per_epoch=1162`, JAX, two busy hardware threads, single seed, 1 to 12
minutes a row): `full` 189.8, `exp` 190.0, `codebook` 190.9, `unigram_shared_unique` 196.9, `rff`
210.2 (205.9 with `redraw`, 197.5 with exact shares in blocks of 16), `quadratic` 220.1, `uniform`
548.7. Unigram draws without replacement, groups x draws: 1 x 3000 191.1, 4 x 750 193.4, 8 x 375
195.2, 16 x 187 198.2; 4 x 2250 189.9, 16 x 563 191.1: of as many draws, fewer groups are better.
`unigram_groups`, 16 x 563 with replacement, 191.9. `top_and_tail`, 256 certain classes and 1,000
shared draws, 200.5; `top_and_tail_16`, certain for each of 16 groups, 199.9; `top_and_tail_16x563`,
64 certain and 499 draws for each group, 191.7. The certain classes make the variance of the
partition 5 and 13 times smaller than that of the 1,000 draws alone, and do not train better. What
orders these 17 rows best, of what `diagnostics` measures on a head after a whole epoch, is the
median of `row_variance` over the classes of rank 100 to 1,000 (Spearman 0.79); that over all
classes is at 0.38, and the mean relative variance of the partition at 0.49.

The paper does not name its optimizer. Zaremba's SGD leaves the normalised `full` at perplexity 833
after an epoch; Adam at 2e-3 with clipping at norm 5 does not, and is used for all rows.

`--config.preset=accelerator`, JAX on one GPU: batches of 128 x 32 = 4,096 tokens; the rows of the
figures for 10 epochs, those at equal time for 60 s each. It needs the folder `ptb/` (6 MB). The
largest arrays of a step are per token: 4,096 x 10,000 scores of `full`, `exp` and the kernels'
draws, 164 MB, and the 100 drawn rows of each, 328 MB; the sums of `rff_d4096` are 328 MB.
"""

from softbench.bench.config import ConfigError, experiment
from softbench.bench.methods import (
    ACCELERATOR,
    FLAT_COUNTS,
    FLAT_PRIOR,
    HUGE_PAGES,
    LANGUAGE_COLUMNS,
    NORMALISED,
    SMALL_LANGUAGE,
    SMALL_TIMING,
    full,
    normalised,
    one_tail,
    sampler,
)

# Rows of Figures 1 to 3.
FIGURES = (
    "full,exp,uniform,quadratic,rff,rff_nu1,rff_nu2,rff_nu8,rff_nu11,rff_d64,rff_d256,rff_d4096"
)
# Rows that a time budget compares.
EQUAL_TIME = (
    "full,exp,unigram_shared,unigram_shared_unique,rff_shared,rff_shared_prior,positive_shared,"
    "positive_shared_prior,mixed_shared"
)


def shared(name, **config):
    """A row whose batch shares 1,000 draws."""
    return normalised(name, 1000, share_draws=True, **config)


def method_table():
    """All rows: those of the paper's figures, then the shared ones."""
    rff, positive = {"num_features": 1024, "nu": 4.0}, {"num_features": 512, "nu": 4.0}
    exact = {"within_block": "exact", "block_size": 16}
    table = {
        "full": full(**NORMALISED),
        "exp": normalised("exp"),
        "uniform": normalised("uniform"),
        "unigram": normalised("unigram", **FLAT_COUNTS),
        "quadratic": normalised("quadratic", absolute=True),
        "quadratic_plain": normalised("quadratic"),
        "rff": normalised("rff", **rff),
        "sorf": normalised("sorf", **rff),
        "positive": normalised("positive", **rff),
        "positive_prior": normalised("positive", **positive, **FLAT_PRIOR),
    }
    for name, nu in {"nu1": 1.0, "nu2": 2.0, "nu8": 8.0, "nu11": 11.1}.items():
        table[f"rff_{name}"] = normalised("rff", num_features=1024, nu=nu)
    for features in (64, 256, 4096):
        table[f"rff_d{features}"] = normalised("rff", num_features=features, nu=4.0)
    for groups, draws in ((16, 563), (16, 187), (8, 375), (4, 750), (4, 2250), (1, 3000)):
        table[f"unigram_{groups}x{draws}_unique"] = normalised(
            "unigram", draws, **FLAT_COUNTS, share_draws=groups, unique=True
        )
    table |= {
        "rff_exact16": normalised("rff", **rff, **exact),
        "positive_prior_exact16": normalised("positive", **positive, **FLAT_PRIOR, **exact),
        "rff_redraw": normalised("rff", **rff, redraw=True),
        "codebook": normalised("codebook", counts="train"),
        "codebook_25": normalised("codebook", 25, counts="train"),
        "codebook_exact": normalised("codebook", counts="train", within_cell="exact"),
        "midx": normalised("codebook", counts="equal"),
        "codebook_16x100": normalised("codebook", counts="train", share_draws=16),
        "top_and_tail": normalised("top_and_tail", 1000, counts="train", share_draws=True),
        "top_and_tail_16": normalised("top_and_tail", 1000, counts="train", tail=one_tail()),
        "top_and_tail_16x563": normalised("top_and_tail", 499, counts="train", num_top=64),
        "unigram_groups": normalised("unigram", 563, **FLAT_COUNTS, share_draws=16),
        "uniform_shared": shared("uniform"),
        "unigram_shared": shared("unigram", **FLAT_COUNTS),
        "unigram_shared_unique": shared("unigram", unique=True, **FLAT_COUNTS),
        "unigram_1256_unique": normalised(
            "unigram", 1256, **FLAT_COUNTS, share_draws=True, unique=True
        ),
        "exp_shared": shared("exp"),
        "rff_shared": shared("rff", **rff),
        "rff_shared_prior": shared("rff", **rff, **FLAT_PRIOR),
        "positive_shared": shared("positive", **positive),
        "positive_shared_prior": shared("positive", **positive, **FLAT_PRIOR),
        "positive_shared_prior_exact4": shared(
            "positive", **positive, **FLAT_PRIOR, within_block="exact", block_size=4
        ),
        "positive_shared_prior_redraw": shared("positive", **positive, **FLAT_PRIOR, redraw=True),
        "mixed_shared": shared(
            "mixed",
            first=sampler("unigram", **FLAT_COUNTS, share_draws=True, unique=True),
            second=sampler("positive", **positive, **FLAT_PRIOR, share_draws=True),
            weight=0.5,
        ),
    }
    return table


def equal_time():
    """What differs when all rows train for the same seconds."""
    return {
        "title": "Penn Treebank, normalised embeddings: equal time",
        "methods": EQUAL_TIME,
        "epochs": 0,
        "max_train_seconds": 1260.0,
        "columns": LANGUAGE_COLUMNS,
    }


def get_config(part=None):
    """Returns the experiment, or that at equal time; every value can be overridden."""
    if part not in (None, "equal_time"):
        raise ConfigError(f"After the colon: nothing or equal_time. Received: {part!r}")
    fields = {
        "title": "Penn Treebank, normalised embeddings: Rawat et al. 2019, Figures 1 to 3",
        "dataset": {"name": "ptb"},
        "model": {"name": "lstm", "preset": "small"},
        "optimizer": {"name": "adam", "learning_rate": 2e-3, "global_clipnorm": 5.0},
        "methods": "full,exp,uniform,quadratic,rff,sorf,positive",
        "method_table": method_table(),
        "epochs": 1,
        # 150 steps of `full` and of a shared row took 27 and 36 % less with them.
        "environment": HUGE_PAGES,
        "cell_timeout_s": 6 * 3600.0,
        "curves_against": "seconds" if part else "step",
        "columns": ("epochs", *LANGUAGE_COLUMNS),
    }
    smoke = {
        "dataset": SMALL_LANGUAGE,
        "timing": SMALL_TIMING,
        "model": {**fields["model"], "units": 16},
        "methods": "full,quadratic,positive_shared_prior",
    }
    paper = {"methods": FIGURES, "epochs": 10, "cell_timeout_s": 7 * 86_400.0}
    large = {**ACCELERATOR, "model": {**fields["model"], "batch_size": 128, "num_steps": 32}}
    large |= {"max_train_seconds": 60.0} if part else {"methods": FIGURES, "epochs": 10}
    if part:
        fields |= equal_time()
        smoke["max_train_seconds"] = 3.0
        paper = {}
    name = "ptb_equal_time" if part else "ptb_rff"
    presets = {"smoke": smoke, "paper": paper, "accelerator": large}
    return experiment(name, **fields, presets=presets)

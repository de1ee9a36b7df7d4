"""Ma & Collins (2018), Tables 1 and 2: an LSTM language model on Penn Treebank, n = 10,000.

    softbench --config=configs/ptb_nce.py --data_dir=<folder that holds ptb/>
    softbench --config=configs/ptb_nce.py --config.methods=full,unigram_shared --config.epochs=13
    softbench --config=configs/ptb_nce.py --config.model.preset=medium --config.epochs=39

Measured with the small model on two busy hardware threads (JAX): 92 minutes of training for the 13
epochs of `full`, which end at validation perplexity 120.1, test 115.9 (paper: 116.8, 111.5). With
huge pages a step of `ranking_800` takes 32 to 35 ms on one thread, without them 50. With the medium
model `--price` measures 0.64 s for a step of `full` and 0.47 s for `ranking_1600`, on both threads
and idle: the 51,753 steps of its 39 epochs would take 9.3 and 6.8 hours, and have not been run.

Model, batches and schedule are Zaremba et al. (2014): two LSTM layers, carried state, SGD at rate
1.0 with clipping at norm 5, halved every epoch after the fourth (small); rate and clip norm are
those of the loss summed over the unrolled steps.

The NCE rows draw K classes from the unigram distribution once per batch: all its tokens share them
(`share_draws`). The paper does not say; noise per token is `ranking_<K>_per_example` and
`binary_<K>_per_example`, at B * T * K gathered rows a step. `exp` draws from the model's softmax
per token, `exp_shared` from its mixture over the batch. The unigram rows of sampled softmax use
counts ** 0.75.

`--config.preset=accelerator`, JAX on one GPU: five rows with the small and with the medium model,
in the paper's batches and epochs, which its schedule is for. It needs the folder `ptb/` (6 MB).
Memory is no question: the medium model's class table is 26 MB, the scores of a batch of `full` 28.
"""

from softbench.bench.config import experiment
from softbench.bench.methods import (
    ACCELERATOR,
    FLAT_COUNTS,
    HUGE_PAGES,
    LANGUAGE_COLUMNS,
    SMALL_LANGUAGE,
    SMALL_TIMING,
    biases,
    full,
    noise,
    sampled,
)

EPOCHS = {"small": 13, "medium": 39, "large": 55}
NOISE_SIZES = (200, 400, 800, 1600, 3200)  # the last is not in the paper

# {row: {model preset: (test, validation)}}
PAPER = {
    "full": {"small": (111.5, 116.8), "medium": (82.7, 86.2), "large": (78.4, 82.2)},
    "ranking_200": {"small": (113.8, 121.1), "medium": (83.2, 87.8), "large": (79.3, 84.1)},
    "ranking_400": {"small": (112.9, 119.0), "medium": (82.3, 87.2), "large": (77.9, 82.9)},
    "ranking_800": {"small": (111.9, 116.8), "medium": (81.4, 86.4), "large": (77.8, 82.3)},
    "ranking_1600": {"small": (110.6, 116.5), "medium": (81.7, 86.3), "large": (77.5, 82.0)},
    "binary_200": {"small": (106.8, 112.1), "medium": (82.1, 86.3), "large": (76.0, 80.8)},
    "binary_400": {"small": (105.6, 110.6), "medium": (81.5, 85.8), "large": (75.6, 80.0)},
    "binary_800": {"small": (105.3, 110.1), "medium": (81.6, 85.5), "large": (75.7, 79.9)},
    "binary_1600": {"small": (104.8, 109.8), "medium": (81.5, 85.4), "large": (75.9, 79.5)},
    "reg_mle": {"small": (105.4, 109.9), "medium": (79.9, 83.1), "large": (77.0, 79.9)},
    "reg_ranking_1600": {"small": (105.4, 110.5), "medium": (79.8, 83.3), "large": (75.0, 78.4)},
    "reg_binary_1600": {"small": (104.8, 109.0), "medium": (82.5, 86.1), "large": (75.7, 79.7)},
}

# The paper tunes alpha and does not print it; ours is not tuned.
ALPHA = 0.1

# At first log Z is near 0 with biases of -log(10,000); the paper does not say where a head starts.
# Binary NCE needs that, and so do the regularised rows, where biases of 0 would add 8 nats to the
# first loss. The losses of `full` and ranking NCE do not depend on such a constant.
SELF_NORMALISED = biases(-9.21)
OBJECTIVES = {"ranking": {}, "binary": SELF_NORMALISED}


def method_table():
    """All rows, those of the paper and ours."""
    flat = {**FLAT_COUNTS, "share_draws": True}
    table = {
        "full": full(),
        "exp": sampled("exp", 100),
        "exp_shared": sampled("exp", 1000, share_draws=True),
        "unigram_shared": sampled("unigram", 1000, unique=True, **flat),
        "unigram_shared_replacement": sampled("unigram", 1000, **flat),
        "uniform_shared": sampled("uniform", 1000, share_draws=True),
    }
    for name, start in OBJECTIVES.items():
        for suffix, shared in {"": True, "_per_example": False}.items():
            table |= {
                f"{name}_{k}{suffix}": noise(name, k, start, share_draws=shared)
                for k in NOISE_SIZES
            }
    regularized = {**SELF_NORMALISED, "regularization": ALPHA}
    table["reg_mle"] = full(**regularized)
    for name in OBJECTIVES:
        table[f"reg_{name}_1600"] = noise(name, 1600, regularized, share_draws=True)
    return table


def get_config():
    """Returns the experiment; every value can be overridden on the command line."""
    table = method_table()
    return experiment(
        "ptb_nce",
        title="Penn Treebank: Ma & Collins 2018, Tables 1 and 2",
        dataset={"name": "ptb"},
        model={"name": "lstm", "preset": "small"},
        optimizer={"name": "sgd", "schedule": "zaremba"},
        methods=",".join(name for name in table if not name.endswith("_per_example")),
        method_table=table,
        epochs=13,
        environment=HUGE_PAGES,
        cell_timeout_s=6 * 3600.0,
        paper={
            f"ptb-lstm_{preset}-{row}": {
                "epochs": EPOCHS[preset],
                "test_perplexity": numbers[preset][0],
                "valid_perplexity": numbers[preset][1],
            }
            for row, numbers in PAPER.items()
            for preset in ("small", "medium", "large")
        },
        columns=("epochs", *LANGUAGE_COLUMNS),
        curves_against="step",
        presets={
            "smoke": {
                "dataset": SMALL_LANGUAGE,
                "timing": SMALL_TIMING,
                "model": {"name": "lstm", "preset": "small", "units": 16},
                "methods": "full,binary_200,reg_mle,reg_ranking_1600",
                "epochs": 1,
            },
            "paper": {
                "methods": ",".join(PAPER),
                "problems": {
                    preset: {"model": {"name": "lstm", "preset": preset}, "epochs": epochs}
                    for preset, epochs in EPOCHS.items()
                },
                "cell_timeout_s": 7 * 86_400.0,
            },
            "accelerator": {
                **ACCELERATOR,
                "methods": "full,unigram_shared,exp_shared,ranking_800,binary_800",
                "problems": {
                    preset: {"model": {"name": "lstm", "preset": preset}, "epochs": EPOCHS[preset]}
                    for preset in ("small", "medium")
                },
            },
        },
    )

"""Which heads give probabilities: calibration and log-likelihood of every kind of loss.

    softbench --config=calibration --backend=jax

11 cells, six minutes on two cores; nothing to download. A generated language of 5,000 words, one
LSTM and one model of the scores (normalised vectors at temperature 0.09, biases that begin at the
log frequencies), one pass over 400,000 words for all; rows differ in the loss alone. `test_ece` is
the expected calibration error of the most probable word over 20,000 words, in 15 bins of equal
mass: 0.01 of it is noise. `test_nll` is the exact negative log-likelihood of the corrected scores,
which every head gives by itself (docs/mathematics.md has the correction of each).

Where `test_ece` is small the softmax of `head(h)` can be read as probabilities. `hinge` and `sce`
are losses whose scores are to rank, and `nce_binary` is as good as its model can normalise itself.
"""

from softbench.bench.config import experiment
from softbench.bench.methods import (
    FLAT_COUNTS,
    LOG_FREQUENCIES,
    SMALL_LANGUAGE,
    SMALL_TIMING,
    full,
    noise,
    row,
    sampled,
    sampler,
)

MODEL = {"normalize": True, "temperature": 0.09, "bias_initializer": LOG_FREQUENCIES}
# Against draws by frequency the scores learn log p(y|x) - log p_n: these begin at 0.
FLAT = {"normalize": True, "temperature": 0.09, "bias_initializer": "zeros"}


def get_config():
    """Returns the experiment; every value can be overridden on the command line."""
    shared = {"share_draws": True}
    uniform = {"sampler": sampler("uniform", **shared), "num_sampled": 256}
    drawn = {"sampler": sampler("unigram", counts="train + 1", power=1.0, **shared)}
    lstm = {"name": "lstm", "units": 64, "num_layers": 1, "batch_size": 40, "num_steps": 10}
    sizes = {"num_classes": 5_000, "num_train": 400_000, "num_valid": 5_000, "num_test": 20_000}
    return experiment(
        "calibration",
        title="Which heads give probabilities",
        dataset={"name": "synthetic_language", "label": "language", **sizes},
        model=lstm,
        optimizer={
            "name": "adam",
            "learning_rate": 1e-2,
            "epsilon": 1e-4,
            "global_clipnorm": 1.0,
        },
        method_table={
            "full": full(**MODEL),
            "unigram": sampled("unigram", 256, MODEL, unique=True, **FLAT_COUNTS, **shared),
            "codebook": sampled("codebook", 256, MODEL, **shared),
            "one_vs_each": row("OneVsEach", **MODEL, **uniform),
            "nce_ranking": noise("ranking", 256, MODEL, **shared),
            "nce_binary": noise("binary", 256, MODEL, **shared),
            "nce_binary_partition": noise(
                "binary", 256, {**MODEL, "learn_log_partition": True}, **shared
            ),
            "negative_sampling": row("NegativeSampling", **FLAT, **drawn, num_sampled=256),
            "gbce": row("NegativeSampling", **MODEL, **uniform, objective="gbce", t=0.75),
            "sce": row(
                "BucketedSoftmax", **MODEL, num_buckets=40, bucket_examples=40, bucket_classes=256
            ),
            "hinge": row("SampledHinge", **MODEL, **uniform),
        },
        timing={"warmup_steps": 5, "head_repetitions": 0},
        columns=("test_nll", "test_ece", "test_perplexity", "test_precision_at_1"),
        presets={
            "smoke": {
                "dataset": SMALL_LANGUAGE,
                "model": {**lstm, "units": 8},
                "methods": "gbce",
                "epochs": 1,
                "timing": SMALL_TIMING,
            },
            "paper": {},
        },
    )

"""Next-word prediction over 197,030 Hungarian words, equal wall-clock budgets for all methods.

    softbench --config=configs/large_vocabulary.py --data_dir=<folder with eltec-hun/> --backend=jax
    softbench --config=configs/large_vocabulary.py --config.max_train_seconds=3600

100 novels, 6.68M words; the classes are the 197,029 words that are seen twice or more, and `<unk>`.
An LSTM of 200 units reads words through a table that takes row updates (Adagrad), as the class
table of every sampled method does; `full` streams the classes in chunks and updates all of its
rows with the model's Adam, at a rate of its own. Biases begin at the class frequencies. Each method
trains for `max_train_seconds`, compilation included and evaluation left out, and is evaluated after
each of its `epochs` equal parts: validation perplexity is exact, over all classes, on about 0.15 %
of the text, and the test one on 0.3 %.

`--config.preset=accelerator`, JAX on one GPU: batches of 128 x 32 = 4,096 tokens, 60 s for each of
seven methods; rates are those of the small batch. It needs `eltec-hun`, prepared once with the
options of the data set below (a folder of 31 MB, else every cell reads the text):

    softbench-prepare --dataset=eltec-hun --data_dir=<files> --out=<prepared root> \\
        --option=valid_fraction=0.0015 --option=test_fraction=0.003 --option=split_lines=50

Each of the two tables with Adagrad's sums is 317 MB, the sums of `rff` 0.5 GB, a chunk of the
scores of `full` 268 MB.
"""

from softbench.bench.config import experiment
from softbench.bench.methods import (
    ACCELERATOR,
    HUGE_PAGES,
    LOG_FREQUENCIES,
    NORMALISED,
    SMALL_LANGUAGE,
    adagrad,
    full,
    noise,
    row,
    sampled,
    sampler,
    with_row_updates,
)

# After 100 s of the unigram a validation perplexity of 2,376; from 0.1, the default, 4,813; at rate
# 0.03 2,743; RowAdam at 2e-3 3,588.
ROWS = adagrad(0.1, accumulator=1e-8)
MODEL = {"name": "lstm", "preset": "small", "batch_size": 40, "row_optimizer": ROWS}
# A class that is never drawn and never a label stays where it began, and counts in the partition.
COUNTS = "train + 1"
FLAT = {"counts": COUNTS, "power": 0.75, "share_draws": True, "unique": True}
# 20 minutes of the full softmax are some hundred steps: too few to learn what counting tells. Of
# zero table rows this makes log Z = 0, which binary NCE needs from the start.
BIAS = {"bias_initializer": LOG_FREQUENCIES}


def blend(first):
    """800 draws of a sampler and 1,000 of the unigram, corrected by the expected counts of both."""
    second = sampler("unigram", **FLAT)
    parts = sampler("mixed", first=first, second=second, num_sampled=(800, 1000))
    return row("SampledSoftmax", num_sampled=1800, sampler=parts, **BIAS)


def get_config():
    """Returns the experiment; every value can be overridden on the command line."""
    rff = {"num_features": 1024, "nu": 4.0, "share_draws": True}
    shared = {
        # Biases of zero: perplexity after 20 s is 36,527 so, and 34,808 with the frequencies.
        "uniform": sampled("uniform", 1000, share_draws=True),
        "unigram": sampled("unigram", 1000, BIAS, **FLAT),
        "nce_binary": noise("binary", 1000, BIAS, counts=COUNTS, share_draws=True),
        "rff": sampled("rff", 1000, NORMALISED, **rff),
        "in_batch": sampled("in_batch", 1000, BIAS, counts="train"),
        "codebook": sampled("codebook", 1000, BIAS, counts=COUNTS, share_draws=True),
        "midx": sampled("codebook", 1000, BIAS, counts="equal", share_draws=True),
        "unigram_2500": sampled("unigram", 2500, BIAS, **FLAT),
        "in_batch_unigram": blend(sampler("in_batch", counts="train")),
        "codebook_unigram": blend(sampler("codebook", counts=COUNTS, share_draws=True)),
        "top_and_tail": sampled(
            "top_and_tail", 1000, BIAS, num_top=512, share_draws=True, counts=COUNTS
        ),
        "top_and_tail_in_batch": sampled(
            "top_and_tail",
            800,
            BIAS,
            num_top=512,
            share_draws=True,
            counts=COUNTS,
            tail=sampler("in_batch", counts="train", share_draws=True),
        ),
    }
    return experiment(
        "large_vocabulary",
        title="A vocabulary of 197,030 words at equal wall-clock time",
        dataset={
            "name": "eltec-hun",
            "valid_fraction": 0.0015,
            "test_fraction": 0.003,
            "split_lines": 50,
        },
        model=MODEL,
        optimizer={"name": "adam", "learning_rate": 2e-3, "global_clipnorm": 5.0},
        method_table={
            # Perplexity after 80 steps, from 4,210: 3,753; at 2e-3 3,886, at 1e-2 3,753, and 3,835
            # with Adagrad at 0.02.
            "full": {**full(class_chunk=16_384, **BIAS), "optimizer": {"learning_rate": 5e-3}},
            **{name: with_row_updates(method, ROWS) for name, method in shared.items()},
        },
        epochs=5,
        max_train_seconds=1200.0,
        # Huge pages: tables of hundreds of MB are read and written at random rows.
        environment=HUGE_PAGES,
        cell_timeout_s=3 * 3600.0,
        timing={"warmup_steps": 5, "head_repetitions": 5},
        columns=(
            "valid_perplexity",
            "test_perplexity",
            "test_precision_at_1",
            "test_nll_head",
            "test_nll_torso",
            "test_nll_tail",
            "step_ms",
            "tokens/s",
        ),
        presets={
            "smoke": {
                "dataset": SMALL_LANGUAGE,
                "model": {**MODEL, "units": 16},
                "methods": "full,nce_binary,in_batch",
                "max_train_seconds": 3.0,
            },
            "paper": {},
            "accelerator": {
                **ACCELERATOR,
                "model": {**MODEL, "batch_size": 128, "num_steps": 32},
                "methods": "full,unigram,in_batch,nce_binary,uniform,rff,top_and_tail",
                "max_train_seconds": 60.0,
            },
        },
    )

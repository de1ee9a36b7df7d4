"""Cost of a row of extreme classification at the shape of WikiLSHTC-325K, beside Delicious'.

    softbench --config=configs/xmc_scale.py --backend=jax

Generated rows with n labels and v features as in the two sets; all else is the same: 3 labels a
row, bags times a normalised (v, 128) table. Both tables take row updates, so that no step passes
over all n or v rows. What is left to grow with n is the draw from a kernel's sums, and the number
of rows, of the table and of these sums, that a batch touches.

`uniform`, `codebook`, `rff` and `rff_exact` (the softmax's own shares within blocks of 32 classes)
draw 100 classes for every row, and so do the two rows of MIDX (arXiv 2501.08563: an unweighted
k-means, and classes within a cell drawn uniformly or by their counts). `rff_shared` draws 1,000 for
the batch, of 128 rows and of 1,024: its draws cost the same for both. `memory_mb` is the peak of
the whole process: generating the data, training, evaluating.

`--config.preset=accelerator`, JAX on one GPU of 80 GB: batches of 1,024 and 4,096 at the shapes of
WikiLSHTC-325K and Amazon-3M (2,812,281 labels, 337,067 features), and of as many features with
10,000,000 labels. Bytes there: a class with Adagrad's sum 1,024, 10.2 GB at the largest n; a
feature as many, 0.35 GB; a step's 100 drawn rows per example 0.2 GB, and as much for their
gradients. The sums of `rff` are 7.7 GB for Amazon-3M, and would be 27 GB for 10,000,000 labels:
beside the table 38 GB, which fit, but are written as a checkpoint after the epoch; so it is not
there.
"""

from softbench.bench.config import experiment
from softbench.bench.methods import (
    ACCELERATOR,
    HUGE_PAGES,
    NORMALISED,
    SMALL_LABELS,
    SMALL_TIMING,
    adagrad,
    sampled,
)

COLUMNS = ("step_ms", "head_ms", "examples/s", "compile_s", "memory_mb")
ROWS = adagrad(0.1, accumulator=1e-8)
HEAD = {**NORMALISED, "row_optimizer": ROWS}
BAG = {
    "name": "bag",
    "dim": 128,
    "normalize": True,
    "row_optimizer": ROWS,
    "batch_size": 128,
    "max_features": 64,
}
DELICIOUS = {"label": "delicious-shape", "num_classes": 983, "num_features": 500}
WIKILSHTC = {
    "label": "wikilshtc-325k-shape",
    "num_classes": 325_056,
    "num_features": 1_617_899,
}
AMAZON = {"label": "amazon-3m-shape", "num_classes": 2_812_281, "num_features": 337_067}
LARGEST = {"label": "n10000000", "num_classes": 10_000_000, "num_features": 337_067}


def problem(sizes, batch_size, methods="", num_train=20_000):
    """Generated rows in the shape of a set, in batches of a size."""
    rows = {"num_train": num_train, "num_valid": 512, "num_test": 512}
    return {
        "dataset": {"name": "synthetic_xmc", **sizes, **rows},
        "model": {**BAG, "batch_size": batch_size, "label": f"batch{batch_size}"},
        "methods": methods,
    }


def get_config():
    """Returns the experiment; every value can be overridden on the command line."""
    features, shared = {"num_features": 1024, "nu": 4.0}, "uniform,codebook,rff_shared"
    return experiment(
        "xmc_scale",
        title="Extreme classification: cost of a row against the shape of the data",
        problems={
            "delicious": problem(DELICIOUS, 128),
            "wikilshtc-325k": problem(WIKILSHTC, 128),
            "delicious_1024": problem(DELICIOUS, 1024, "uniform,rff,rff_shared"),
            "wikilshtc-325k_1024": problem(WIKILSHTC, 1024, "uniform,rff_shared"),
        },
        model=BAG,
        optimizer={"name": "adam", "learning_rate": 5e-3},
        method_table={
            "uniform": sampled("uniform", 100, HEAD),
            "codebook": sampled("codebook", 100, HEAD, counts="train"),
            "midx": sampled("codebook", 100, HEAD, counts="equal"),
            "midx_popularity": sampled("codebook", 100, HEAD, counts="equal", prior="train + 1"),
            "rff": sampled("rff", 100, HEAD, **features),
            "rff_exact": sampled("rff", 100, HEAD, within_block="exact", **features),
            "rff_shared": sampled("rff", 1000, HEAD, share_draws=True, **features),
        },
        steps_per_epoch=60,
        # Huge pages: tables and sums of up to a GB are read and written at random rows.
        environment=HUGE_PAGES,
        columns=COLUMNS,
        presets={
            "smoke": {
                "problems": {"small": {}},
                "dataset": SMALL_LABELS,
                "model": {**BAG, "batch_size": 32},
                "methods": "rff,rff_shared",
                "steps_per_epoch": 5,
                "timing": SMALL_TIMING,
            },
            "paper": {},
            "accelerator": {
                **ACCELERATOR,
                "problems": {
                    "1_wikilshtc-325k": problem(WIKILSHTC, 1024, "", 250_000),
                    "2_wikilshtc-325k": problem(WIKILSHTC, 4096, shared, 250_000),
                    "3_amazon-3m": problem(AMAZON, 4096, shared, 250_000),
                    "4_n10000000": problem(LARGEST, 4096, "uniform,codebook", 250_000),
                },
                "columns": (*COLUMNS, "device_memory_mb"),
            },
        },
    )

"""Cost of a row of extreme classification at the shape of WikiLSHTC-325K, beside Delicious'.

    softbench --config=configs/xmc_scale.py --backend=jax

Generated rows with n labels and v features as in the two sets; all else is the same: 3 labels a
row, bags times a normalised (v, 128) table, batch 128. Both tables take row updates, so that no
step passes over all n or v rows. What is left to grow with n is the draw from a kernel's sums, and
the number of rows, of the table and of these sums, that a batch touches.

`uniform`, `rff` and `rff_exact` (the softmax's own shares within blocks of 32 classes) draw 100
classes for every row, `rff_shared` 1,000 for the batch. `memory_mb` is the peak of the whole
process: generating the data, training, evaluating.
"""

from softbench.bench.config import SMALL_LABELS, SMALL_TIMING, experiment

ROWS = {"name": "adagrad", "learning_rate": 0.1, "initial_accumulator_value": 1e-8}
BAG = {"name": "bag", "dim": 128, "normalize": True, "row_optimizer": ROWS}


def sampled(name, num_sampled=100, **sampler):
    """A `SampledSoftmax` row on normalised vectors, with row updates."""
    kwargs = {
        "sampler": {"class_name": name, "config": sampler},
        "num_sampled": num_sampled,
        "normalize": True,
        "temperature": 0.09,
        "use_bias": False,
        "row_optimizer": ROWS,
    }
    return {"head": "SampledSoftmax", "kwargs": kwargs}


def shape(name, num_classes, num_features):
    """Generated rows in the shape of a set."""
    sizes = {"num_classes": num_classes, "num_features": num_features}
    sizes |= {"num_train": 20_000, "num_valid": 512, "num_test": 512}
    return {"dataset": {"name": "synthetic_xmc", "label": f"{name}-shape", **sizes}}


def get_config():
    """Returns the experiment; every value can be overridden on the command line."""
    features = {"num_features": 1024, "nu": 4.0}
    return experiment(
        "xmc_scale",
        title="Extreme classification: cost of a row against the shape of the data",
        problems={
            "delicious": shape("delicious", 983, 500),
            "wikilshtc-325k": shape("wikilshtc-325k", 325_056, 1_617_899),
        },
        model={**BAG, "batch_size": 128, "max_features": 64},
        optimizer={"name": "adam", "learning_rate": 5e-3},
        method_table={
            "uniform": sampled("uniform"),
            "rff": sampled("rff", **features),
            "rff_exact": sampled("rff", within_block="exact", **features),
            "rff_shared": sampled("rff", 1000, share_draws=True, **features),
        },
        steps_per_epoch=60,
        # Huge pages: tables and sums of up to a GB are read and written at random rows.
        environment={"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"},
        columns=("step_ms", "head_ms", "examples/s", "compile_s", "memory_mb"),
        presets={
            "smoke": {
                "problems": {"small": {}},
                "dataset": SMALL_LABELS,
                "model": {**BAG, "batch_size": 32, "max_features": 64},
                "methods": "rff,rff_shared",
                "steps_per_epoch": 5,
                "timing": SMALL_TIMING,
            },
            "paper": {},
        },
    )

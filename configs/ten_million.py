"""Whole training steps at ten million classes: memory and time, each row in a process of its own.

    softbench --config=configs/ten_million.py --backend=jax

d = 64, batch 256, float32 tables with row Adagrad (5.1 GB of table and slots at n = 10,000,000). A
step is one compiled call: forward, backward and update. `resident_mb` is what the process holds
after the last step, `peak_mb` the most that it held: the table was made in it and, for `codebook`,
its cells were fitted.
`per_row` keeps one accumulator for each row, `bfloat16` stores the table in half as well.
"""

from softbench.bench.config import experiment
from softbench.bench.methods import adagrad, sampled

ADAGRAD = adagrad(0.05)
BY_ROW = {**ADAGRAD, "per_row": True}
METHODS = ("uniform", "codebook", "in_batch", "per_row", "bfloat16")
# Without it, XLA on a CPU makes a float32 copy of a bfloat16 table at every step.
IN_PLACE = "--xla_disable_hlo_passes=float-normalization-bf16"


def drawn(name, num_sampled=1000, row_optimizer=ADAGRAD, table_dtype=None, **config):
    """A row of draws that the batch shares."""
    options = {"row_optimizer": row_optimizer}
    if table_dtype:
        options["table_dtype"] = table_dtype
    return sampled(name, num_sampled, options, share_draws=True, **config)


def problems(*sizes):
    """One for each number of classes and method, the small ones first: a process holds one."""
    return {
        f"n{units:08d}_{method}": {
            "dataset": {
                "name": "random",
                "label": f"random{units}-{method}",
                "num_classes": units,
            },
            "methods": method,
        }
        for units in sizes
        for method in METHODS
    }


def get_config():
    """Returns the experiment; every value can be overridden on the command line."""
    return experiment(
        "ten_million",
        title="Ten million classes: memory and time of a training step",
        task="step_time",
        problems=problems(1_000_000, 3_000_000, 10_000_000),
        model={"name": "dense", "dim": 64, "batch_size": 256},
        optimizer=ADAGRAD,
        method_table={
            "uniform": drawn("uniform"),
            "codebook": drawn("codebook"),
            "in_batch": drawn("in_batch", 256),
            "per_row": drawn("uniform", row_optimizer=BY_ROW),
            "bfloat16": drawn("uniform", row_optimizer=BY_ROW, table_dtype="bfloat16"),
        },
        timing={"rounds": 20, "block": 5, "max_seconds": 15.0},
        environment={"XLA_FLAGS": IN_PLACE},
        cell_timeout_s=1200.0,
        presets={
            "smoke": {
                "problems": problems(200),
                "timing": {"rounds": 1, "block": 2, "max_seconds": 1.0},
            },
            "paper": {},
        },
    )

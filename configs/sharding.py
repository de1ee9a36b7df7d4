"""A step of a class table that is divided over 1, 2 and 4 devices: time, memory, bytes sent.

    softbench --config=configs/sharding.py --backend=jax

`keras.distribution.ModelParallel` with `softbench.distribution.layout_map`, on JAX. Every number of
devices has a process of its own. Where there is no accelerator the devices are virtual ones of the
processor, which share its cores: then the times are a test of overhead, and what the page shows is
memory on one device and the bytes of the collectives. n = 1,000,000, d = 64 and n = 10,000,000,
d = 32, batch 256, 1,000 shared draws, row updates.
"""

from softbench.bench.config import experiment
from softbench.bench.methods import adagrad, sampled

ROWS = {"row_optimizer": adagrad(0.05)}


def problems(units, dim, devices=(1, 2, 4)):
    """One for each number of devices."""
    return {
        f"n{units}_devices{count}": {
            "dataset": {"name": "random", "label": f"random{units}", "num_classes": units},
            "model": {
                "name": "dense",
                "label": f"devices{count}",
                "dim": dim,
                "batch_size": 256,
                "devices": count,
            },
        }
        for count in devices
    }


def get_config():
    """Returns the experiment; every value can be overridden on the command line."""
    return experiment(
        "sharding",
        title="A class table divided over devices",
        task="sharding",
        problems=problems(1_000_000, 64) | problems(10_000_000, 32),
        optimizer=adagrad(0.05),
        backend="jax",
        method_table={
            "uniform": sampled("uniform", 1000, ROWS, share_draws=True),
            "in_batch": sampled("in_batch", 256, ROWS),
            "codebook": sampled("codebook", 1000, ROWS, share_draws=True),
        },
        timing={"rounds": 6, "block": 5, "max_seconds": 20.0},
        cell_timeout_s=1800.0,
        presets={
            "smoke": {
                "problems": problems(512, 8, (1, 2)),
                "timing": {"rounds": 1, "block": 2, "max_seconds": 1.0},
            },
            "paper": {},
        },
    )
